-- What sums are told apart by, each combination once. The empty text is none, and a quote stands before
-- one that is empty or begins with one.
CREATE TABLE IF NOT EXISTS endstop_series (
    id integer PRIMARY KEY,
    team_id text NOT NULL,
    key_id text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    upstream text NOT NULL,
    reason text NOT NULL,
    finish_reason text NOT NULL,
    UNIQUE (team_id, key_id, provider, model, upstream, reason, finish_reason)
);

-- Sums per hour, kept with the rows, so that reports do not scan. `hour` is its first millisecond since
-- 1970; a chunk has the lines of 32 series of neighbouring ids, packed, so that a batch writes few rows
-- and a report reads few.
CREATE TABLE IF NOT EXISTS endstop_hourly (
    hour bigint NOT NULL,
    chunk bigint NOT NULL,
    lines blob NOT NULL,
    PRIMARY KEY (hour, chunk)
);

-- The providers' own words, as they were seen; times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS endstop_words (
    provider text NOT NULL,
    dialect text NOT NULL,
    field text NOT NULL,
    word text NOT NULL,
    reason text NOT NULL,
    first_seen bigint NOT NULL,
    last_seen bigint NOT NULL,
    seen bigint NOT NULL,
    PRIMARY KEY (provider, dialect, field, word, reason)
) WITHOUT ROWID;
