-- Only repeated requests are looked for by their turn: the first request of a turn gave it its id.
DROP INDEX IF EXISTS public.idx_gateway_requests_turn_id;
CREATE INDEX IF NOT EXISTS idx_gateway_requests_repeated
    ON public.gateway_requests (turn_id) WHERE attempt > 1;

-- Rows of our own table come in the order of their times, for which a summary of each range of pages is
-- enough. The rows of a table of somebody else may stand in any order.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM pg_attribute
        WHERE attrelid = 'public.gateway_requests'::regclass AND attnum > 0 AND NOT attisdropped
            AND attname NOT IN (
                'id', 'created_at', 'team_id', 'finish_reason', 'native_finish_reason', 'native_field',
                'reason', 'confidence', 'provider', 'model', 'dialect', 'upstream', 'key_id',
                'turn_id', 'attempt', 'path', 'streamed', 'mode', 'status', 'closed', 'cause', 'shown',
                'decision', 'action', 'tokens_in', 'tokens_out', 'tokens_reasoning', 'tokens_cached',
                'cap', 'first_byte_us', 'total_us', 'bytes', 'delivered_bytes', 'events', 'error_type',
                'upstream_request_id', 'rules', 'sequence', 'previous_reason',
                'previous_finish_reason', 'previous_rules', 'endstop_id', 'client_status'
            )
    ) THEN
        CREATE INDEX IF NOT EXISTS idx_gateway_requests_time
            ON public.gateway_requests USING brin (created_at) WITH (pages_per_range = 32, autosummarize);
        DROP INDEX IF EXISTS public.idx_gateway_requests_created_at;
    END IF;
END
$$;

-- Sums are told apart by more. Those that were kept until now have none of the new values.
ALTER TABLE public.endstop_series
    ADD COLUMN IF NOT EXISTS dialect text NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS action text NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS status text NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS streamed text NOT NULL DEFAULT '';
DO $$
DECLARE
    old text;
BEGIN
    SELECT conname INTO old FROM pg_constraint
        WHERE conrelid = 'public.endstop_series'::regclass AND contype = 'u' AND cardinality(conkey) = 7;
    IF old IS NOT NULL THEN
        EXECUTE format('ALTER TABLE public.endstop_series DROP CONSTRAINT %I', old);
        ALTER TABLE public.endstop_series ADD UNIQUE (team_id, key_id, provider, model, upstream, dialect,
            reason, finish_reason, action, status, streamed);
    END IF;
END
$$;

-- The sums of an earlier version, packed; they are folded into `endstop_sums`.
DO $$
BEGIN
    IF to_regclass('public.endstop_chunks') IS NULL THEN
        ALTER TABLE public.endstop_hourly RENAME TO endstop_chunks;
    END IF;
    DROP TABLE IF EXISTS public.endstop_hourly;
END
$$;

-- Sums per hour, kept with the rows, so that reports do not scan. `hour` is its first millisecond since 1970.
-- `first_byte_under_5ms` counts responses whose first byte came after 2 ms and before 5 ms, and so on.
CREATE TABLE IF NOT EXISTS public.endstop_sums (
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
) WITH (fillfactor = 50);

-- What each batch adds to the sums and words, until it is folded into them.
CREATE TABLE IF NOT EXISTS public.endstop_deltas (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    packed bytea NOT NULL
);

-- The sums for people and for tools that speak SQL. They are up to a second old.
DO $do$
BEGIN
    -- A later step adds columns to it.
    IF to_regclass('public.endstop_hours') IS NULL THEN
        EXECUTE $view$
CREATE VIEW public.endstop_hours AS
SELECT
    to_timestamp(h.hour / 1000.0) AS hour,
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
FROM public.endstop_sums AS h JOIN public.endstop_series AS s ON s.id = h.series
        $view$;
    END IF;
END
$do$;

-- The providers' own words, with the model. Those seen until now have none.
ALTER TABLE public.endstop_words ADD COLUMN IF NOT EXISTS model text NOT NULL DEFAULT '';
DO $$
BEGIN
    IF (SELECT indnkeyatts FROM pg_index WHERE indrelid = 'public.endstop_words'::regclass AND indisprimary)
        = 5 THEN
        ALTER TABLE public.endstop_words DROP CONSTRAINT endstop_words_pkey;
        ALTER TABLE public.endstop_words
            ADD PRIMARY KEY (provider, model, dialect, field, word, reason);
    END IF;
END
$$;

-- Facts about the store, such as the time before which rows were deleted.
CREATE TABLE IF NOT EXISTS public.endstop_state (name text PRIMARY KEY, value bigint NOT NULL);

-- Supabase serves the tables of `public` to the world, as the role `anon`. Without a policy, row level
-- security leaves the rows to the table's owner and to roles that bypass it. A view would show them to
-- all, unless it asks as the one who reads it.
DO $$
BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
        ALTER TABLE public.endstop_sums ENABLE ROW LEVEL SECURITY;
        ALTER TABLE public.endstop_deltas ENABLE ROW LEVEL SECURITY;
        ALTER TABLE public.endstop_state ENABLE ROW LEVEL SECURITY;
        REVOKE ALL ON public.endstop_hours FROM anon;
        IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'authenticated') THEN
            REVOKE ALL ON public.endstop_hours FROM authenticated;
        END IF;
    END IF;
END
$$;
