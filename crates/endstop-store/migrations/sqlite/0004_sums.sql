-- Ids are 16 bytes, which `hex(id)` shows. Only repeated requests are looked for by their turn: the first
-- request of a turn gave it its id.
CREATE TABLE endstop_new_requests (
    id blob PRIMARY KEY,
    created_at integer NOT NULL,
    team_id text,
    finish_reason text,
    native_finish_reason text,
    native_field text,
    reason text,
    confidence text,
    provider text,
    model text,
    dialect text,
    upstream text,
    key_id text,
    turn_id text,
    attempt integer,
    path text,
    streamed integer,
    mode text,
    status integer,
    closed text,
    cause text,
    shown text,
    decision text,
    action text,
    tokens_in integer,
    tokens_out integer,
    tokens_reasoning integer,
    tokens_cached integer,
    cap integer,
    first_byte_us integer,
    total_us integer,
    bytes integer,
    delivered_bytes integer,
    events integer,
    error_type text,
    upstream_request_id text,
    rules integer,
    sequence integer,
    previous_reason text,
    previous_finish_reason text,
    previous_rules integer,
    client_status integer
);
INSERT INTO endstop_new_requests SELECT iif(length(unhex(id, '-')) = 16, unhex(id, '-'), id), created_at, team_id, finish_reason, native_finish_reason,
    native_field, reason, confidence, provider, model, dialect, upstream, key_id, turn_id, attempt, path,
    streamed, mode, status, closed, cause, shown, decision, action, tokens_in, tokens_out, tokens_reasoning,
    tokens_cached, cap, first_byte_us, total_us, bytes, delivered_bytes, events, error_type,
    upstream_request_id, rules, sequence, previous_reason, previous_finish_reason, previous_rules,
    client_status FROM gateway_requests;
DROP TABLE gateway_requests;
ALTER TABLE endstop_new_requests RENAME TO gateway_requests;
CREATE INDEX idx_gateway_requests_finish_reason
    ON gateway_requests (team_id, finish_reason, created_at DESC);
CREATE INDEX idx_gateway_requests_created_at ON gateway_requests (created_at);
CREATE INDEX idx_gateway_requests_turn_id ON gateway_requests (turn_id) WHERE attempt > 1;

-- Sums are told apart by more. Those that were kept until now have none of the new values.
CREATE TABLE endstop_new_series (
    id integer PRIMARY KEY,
    team_id text NOT NULL,
    key_id text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    upstream text NOT NULL,
    dialect text NOT NULL,
    reason text NOT NULL,
    finish_reason text NOT NULL,
    action text NOT NULL,
    status text NOT NULL,
    streamed text NOT NULL,
    UNIQUE (team_id, key_id, provider, model, upstream, dialect, reason, finish_reason, action, status,
            streamed)
);
INSERT INTO endstop_new_series SELECT id, team_id, key_id, provider, model, upstream, '', reason,
    finish_reason, '', '', '' FROM endstop_series;
DROP TABLE endstop_series;
ALTER TABLE endstop_new_series RENAME TO endstop_series;

-- The sums of an earlier version, packed; they are folded into `endstop_sums`.
ALTER TABLE endstop_hourly RENAME TO endstop_chunks;

-- Sums per hour, kept with the rows, so that reports do not scan. `hour` is its first millisecond since 1970.
-- `first_byte_under_5ms` counts responses whose first byte came after 2 ms and before 5 ms, and so on.
CREATE TABLE IF NOT EXISTS endstop_sums (
    hour bigint NOT NULL,
    series bigint NOT NULL,
    count bigint NOT NULL DEFAULT 0,
    repeated bigint NOT NULL DEFAULT 0,
    repeated_well bigint NOT NULL DEFAULT 0,
    tokens_in bigint NOT NULL DEFAULT 0,
    tokens_out bigint NOT NULL DEFAULT 0,
    tokens_reasoning bigint NOT NULL DEFAULT 0,
    tokens_cached bigint NOT NULL DEFAULT 0,
    tokens_of_cut bigint NOT NULL DEFAULT 0,
    counted bigint NOT NULL DEFAULT 0,
    first_byte_under_1ms bigint NOT NULL DEFAULT 0,
    first_byte_under_2ms bigint NOT NULL DEFAULT 0,
    first_byte_under_5ms bigint NOT NULL DEFAULT 0,
    first_byte_under_10ms bigint NOT NULL DEFAULT 0,
    first_byte_under_20ms bigint NOT NULL DEFAULT 0,
    first_byte_under_50ms bigint NOT NULL DEFAULT 0,
    first_byte_under_100ms bigint NOT NULL DEFAULT 0,
    first_byte_under_200ms bigint NOT NULL DEFAULT 0,
    first_byte_under_350ms bigint NOT NULL DEFAULT 0,
    first_byte_under_500ms bigint NOT NULL DEFAULT 0,
    first_byte_under_750ms bigint NOT NULL DEFAULT 0,
    first_byte_under_1000ms bigint NOT NULL DEFAULT 0,
    first_byte_under_1500ms bigint NOT NULL DEFAULT 0,
    first_byte_under_2000ms bigint NOT NULL DEFAULT 0,
    first_byte_under_3500ms bigint NOT NULL DEFAULT 0,
    first_byte_under_5000ms bigint NOT NULL DEFAULT 0,
    first_byte_under_7500ms bigint NOT NULL DEFAULT 0,
    first_byte_under_10000ms bigint NOT NULL DEFAULT 0,
    first_byte_under_20000ms bigint NOT NULL DEFAULT 0,
    first_byte_under_35000ms bigint NOT NULL DEFAULT 0,
    first_byte_under_60000ms bigint NOT NULL DEFAULT 0,
    first_byte_under_120000ms bigint NOT NULL DEFAULT 0,
    first_byte_under_300000ms bigint NOT NULL DEFAULT 0,
    first_byte_over bigint NOT NULL DEFAULT 0,
    total_under_1ms bigint NOT NULL DEFAULT 0,
    total_under_2ms bigint NOT NULL DEFAULT 0,
    total_under_5ms bigint NOT NULL DEFAULT 0,
    total_under_10ms bigint NOT NULL DEFAULT 0,
    total_under_20ms bigint NOT NULL DEFAULT 0,
    total_under_50ms bigint NOT NULL DEFAULT 0,
    total_under_100ms bigint NOT NULL DEFAULT 0,
    total_under_200ms bigint NOT NULL DEFAULT 0,
    total_under_350ms bigint NOT NULL DEFAULT 0,
    total_under_500ms bigint NOT NULL DEFAULT 0,
    total_under_750ms bigint NOT NULL DEFAULT 0,
    total_under_1000ms bigint NOT NULL DEFAULT 0,
    total_under_1500ms bigint NOT NULL DEFAULT 0,
    total_under_2000ms bigint NOT NULL DEFAULT 0,
    total_under_3500ms bigint NOT NULL DEFAULT 0,
    total_under_5000ms bigint NOT NULL DEFAULT 0,
    total_under_7500ms bigint NOT NULL DEFAULT 0,
    total_under_10000ms bigint NOT NULL DEFAULT 0,
    total_under_20000ms bigint NOT NULL DEFAULT 0,
    total_under_35000ms bigint NOT NULL DEFAULT 0,
    total_under_60000ms bigint NOT NULL DEFAULT 0,
    total_under_120000ms bigint NOT NULL DEFAULT 0,
    total_under_300000ms bigint NOT NULL DEFAULT 0,
    total_over bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (hour, series)
) WITHOUT ROWID;

-- What each batch adds to the sums and words, until it is folded into them.
CREATE TABLE IF NOT EXISTS endstop_deltas (
    id integer PRIMARY KEY,
    packed blob NOT NULL
);

-- The sums for people and for tools that speak SQL. They are up to a second old.
CREATE VIEW endstop_hours AS
SELECT
    datetime(h.hour / 1000, 'unixepoch') AS hour,
    CASE WHEN s.team_id = '' THEN NULL WHEN substr(s.team_id, 1, 1) = '"' THEN substr(s.team_id, 2) ELSE s.team_id END AS team_id,
    CASE WHEN s.key_id = '' THEN NULL WHEN substr(s.key_id, 1, 1) = '"' THEN substr(s.key_id, 2) ELSE s.key_id END AS key_id,
    CASE WHEN s.provider = '' THEN NULL WHEN substr(s.provider, 1, 1) = '"' THEN substr(s.provider, 2) ELSE s.provider END AS provider,
    CASE WHEN s.model = '' THEN NULL WHEN substr(s.model, 1, 1) = '"' THEN substr(s.model, 2) ELSE s.model END AS model,
    CASE WHEN s.upstream = '' THEN NULL WHEN substr(s.upstream, 1, 1) = '"' THEN substr(s.upstream, 2) ELSE s.upstream END AS upstream,
    CASE WHEN s.dialect = '' THEN NULL WHEN substr(s.dialect, 1, 1) = '"' THEN substr(s.dialect, 2) ELSE s.dialect END AS dialect,
    CASE WHEN s.reason = '' THEN NULL WHEN substr(s.reason, 1, 1) = '"' THEN substr(s.reason, 2) ELSE s.reason END AS reason,
    CASE WHEN s.finish_reason = '' THEN NULL WHEN substr(s.finish_reason, 1, 1) = '"' THEN substr(s.finish_reason, 2) ELSE s.finish_reason END AS finish_reason,
    CASE WHEN s.action = '' THEN NULL WHEN substr(s.action, 1, 1) = '"' THEN substr(s.action, 2) ELSE s.action END AS action,
    CASE WHEN s.status = '' THEN NULL WHEN substr(s.status, 1, 1) = '"' THEN substr(s.status, 2) ELSE s.status END AS status,
    CASE WHEN s.streamed = '' THEN NULL WHEN substr(s.streamed, 1, 1) = '"' THEN substr(s.streamed, 2) ELSE s.streamed END AS streamed,
    h.count, h.repeated, h.repeated_well, h.tokens_in, h.tokens_out, h.tokens_reasoning,
    h.tokens_cached, h.tokens_of_cut, h.counted, h.first_byte_under_1ms, h.first_byte_under_2ms,
    h.first_byte_under_5ms, h.first_byte_under_10ms, h.first_byte_under_20ms, h.first_byte_under_50ms,
    h.first_byte_under_100ms, h.first_byte_under_200ms, h.first_byte_under_350ms,
    h.first_byte_under_500ms, h.first_byte_under_750ms, h.first_byte_under_1000ms,
    h.first_byte_under_1500ms, h.first_byte_under_2000ms, h.first_byte_under_3500ms,
    h.first_byte_under_5000ms, h.first_byte_under_7500ms, h.first_byte_under_10000ms,
    h.first_byte_under_20000ms, h.first_byte_under_35000ms, h.first_byte_under_60000ms,
    h.first_byte_under_120000ms, h.first_byte_under_300000ms, h.first_byte_over, h.total_under_1ms,
    h.total_under_2ms, h.total_under_5ms, h.total_under_10ms, h.total_under_20ms, h.total_under_50ms,
    h.total_under_100ms, h.total_under_200ms, h.total_under_350ms, h.total_under_500ms,
    h.total_under_750ms, h.total_under_1000ms, h.total_under_1500ms, h.total_under_2000ms,
    h.total_under_3500ms, h.total_under_5000ms, h.total_under_7500ms, h.total_under_10000ms,
    h.total_under_20000ms, h.total_under_35000ms, h.total_under_60000ms, h.total_under_120000ms,
    h.total_under_300000ms, h.total_over
FROM endstop_sums AS h JOIN endstop_series AS s ON s.id = h.series;

-- The providers' own words, with the model. Those seen until now have none.
CREATE TABLE endstop_new_words (
    provider text NOT NULL,
    model text NOT NULL,
    dialect text NOT NULL,
    field text NOT NULL,
    word text NOT NULL,
    reason text NOT NULL,
    first_seen bigint NOT NULL,
    last_seen bigint NOT NULL,
    seen bigint NOT NULL,
    PRIMARY KEY (provider, model, dialect, field, word, reason)
) WITHOUT ROWID;
INSERT INTO endstop_new_words SELECT provider, '', dialect, field, word, reason, first_seen, last_seen, seen
    FROM endstop_words;
DROP TABLE endstop_words;
ALTER TABLE endstop_new_words RENAME TO endstop_words;

-- Facts about the store, such as the time before which rows were deleted.
CREATE TABLE IF NOT EXISTS endstop_state (name text PRIMARY KEY, value bigint NOT NULL) WITHOUT ROWID;
