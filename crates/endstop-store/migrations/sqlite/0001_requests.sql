-- One row per response of an upstream. Times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS gateway_requests (
    id text PRIMARY KEY,
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
    previous_rules integer
);

CREATE INDEX IF NOT EXISTS idx_gateway_requests_finish_reason
    ON gateway_requests (team_id, finish_reason, created_at DESC);
CREATE INDEX IF NOT EXISTS idx_gateway_requests_created_at ON gateway_requests (created_at);
CREATE INDEX IF NOT EXISTS idx_gateway_requests_turn_id ON gateway_requests (turn_id);
