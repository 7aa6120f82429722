-- What sums are told apart by, each combination once. The empty text is none, and a quote stands before
-- one that is empty or begins with one.
CREATE TABLE IF NOT EXISTS public.endstop_series (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
-- and a report reads few. Every batch updates the chunks of the present hour: with room on the page they
-- stay where they are, and what is packed already is not worth compressing or moving out.
CREATE TABLE IF NOT EXISTS public.endstop_hourly (
    hour bigint NOT NULL,
    chunk bigint NOT NULL,
    lines bytea NOT NULL,
    PRIMARY KEY (hour, chunk)
) WITH (fillfactor = 50, toast_tuple_target = 8160);

-- The providers' own words, as they were seen; times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS public.endstop_words (
    provider text NOT NULL,
    dialect text NOT NULL,
    field text NOT NULL,
    word text NOT NULL,
    reason text NOT NULL,
    first_seen bigint NOT NULL,
    last_seen bigint NOT NULL,
    seen bigint NOT NULL,
    PRIMARY KEY (provider, dialect, field, word, reason)
) WITH (fillfactor = 50);

-- Supabase serves the tables of `public` to the world, as the role `anon`. Without a policy, row level
-- security leaves the rows to the table's owner and to roles that bypass it.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
        ALTER TABLE public.endstop_series ENABLE ROW LEVEL SECURITY;
        ALTER TABLE public.endstop_hourly ENABLE ROW LEVEL SECURITY;
        ALTER TABLE public.endstop_words ENABLE ROW LEVEL SECURITY;
    END IF;
END
$$;
