-- The status that the client was sent; `status` is the upstream's. Null in older rows.
ALTER TABLE public.gateway_requests ADD COLUMN IF NOT EXISTS client_status bigint;
