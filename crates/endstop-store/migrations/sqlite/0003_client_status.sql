-- The status that the client was sent; `status` is the upstream's. Null in older rows.
ALTER TABLE gateway_requests ADD COLUMN client_status integer;
