-- One row per response of an upstream. A table of this name that is there already keeps its rows and its
-- columns, and gains those that are missing.
--
-- Supabase serves the tables of `public` to the world, as the role `anon`. Without a policy, row level
-- security leaves the rows to the table's owner and to roles that bypass it; the gateway should connect
-- as one of them. Who may read a table that was there before is its owner's to say.
DO $$
BEGIN
    IF to_regclass('public.gateway_requests') IS NULL THEN
        CREATE TABLE IF NOT EXISTS public.gateway_requests (
            id uuid PRIMARY KEY,
            created_at timestamptz NOT NULL DEFAULT now()
        );
        IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'anon') THEN
            ALTER TABLE public.gateway_requests ENABLE ROW LEVEL SECURITY;
        END IF;
    END IF;
END
$$;

ALTER TABLE public.gateway_requests
    ADD COLUMN IF NOT EXISTS created_at timestamptz,
    ADD COLUMN IF NOT EXISTS team_id text,
    ADD COLUMN IF NOT EXISTS finish_reason text,
    ADD COLUMN IF NOT EXISTS native_finish_reason text,
    ADD COLUMN IF NOT EXISTS native_field text,
    ADD COLUMN IF NOT EXISTS reason text,
    ADD COLUMN IF NOT EXISTS confidence text,
    ADD COLUMN IF NOT EXISTS provider text,
    ADD COLUMN IF NOT EXISTS model text,
    ADD COLUMN IF NOT EXISTS dialect text,
    ADD COLUMN IF NOT EXISTS upstream text,
    ADD COLUMN IF NOT EXISTS key_id text,
    ADD COLUMN IF NOT EXISTS turn_id text,
    ADD COLUMN IF NOT EXISTS attempt bigint,
    ADD COLUMN IF NOT EXISTS path text,
    ADD COLUMN IF NOT EXISTS streamed boolean,
    ADD COLUMN IF NOT EXISTS mode text,
    ADD COLUMN IF NOT EXISTS status bigint,
    ADD COLUMN IF NOT EXISTS closed text,
    ADD COLUMN IF NOT EXISTS cause text,
    ADD COLUMN IF NOT EXISTS shown text,
    ADD COLUMN IF NOT EXISTS decision text,
    ADD COLUMN IF NOT EXISTS action text,
    ADD COLUMN IF NOT EXISTS tokens_in bigint,
    ADD COLUMN IF NOT EXISTS tokens_out bigint,
    ADD COLUMN IF NOT EXISTS tokens_reasoning bigint,
    ADD COLUMN IF NOT EXISTS tokens_cached bigint,
    ADD COLUMN IF NOT EXISTS cap bigint,
    ADD COLUMN IF NOT EXISTS first_byte_us bigint,
    ADD COLUMN IF NOT EXISTS total_us bigint,
    ADD COLUMN IF NOT EXISTS bytes bigint,
    ADD COLUMN IF NOT EXISTS delivered_bytes bigint,
    ADD COLUMN IF NOT EXISTS events bigint,
    ADD COLUMN IF NOT EXISTS error_type text,
    ADD COLUMN IF NOT EXISTS upstream_request_id text,
    ADD COLUMN IF NOT EXISTS rules bigint,
    ADD COLUMN IF NOT EXISTS sequence bigint,
    ADD COLUMN IF NOT EXISTS previous_reason text,
    ADD COLUMN IF NOT EXISTS previous_finish_reason text,
    ADD COLUMN IF NOT EXISTS previous_rules bigint;

-- Where `id` is of another kind, or may stand twice, our own id has a column for itself.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT 1
        FROM pg_index i
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = 'public.gateway_requests'::regclass
            AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
            AND a.attname = 'id' AND a.atttypid = 'uuid'::regtype
    ) THEN
        ALTER TABLE public.gateway_requests ADD COLUMN IF NOT EXISTS endstop_id uuid;
        CREATE UNIQUE INDEX IF NOT EXISTS idx_gateway_requests_endstop_id
            ON public.gateway_requests (endstop_id);
    END IF;
END
$$;

CREATE INDEX IF NOT EXISTS idx_gateway_requests_finish_reason
    ON public.gateway_requests (team_id, finish_reason, created_at DESC);
CREATE INDEX IF NOT EXISTS idx_gateway_requests_created_at ON public.gateway_requests (created_at);
CREATE INDEX IF NOT EXISTS idx_gateway_requests_turn_id ON public.gateway_requests (turn_id);
