//! The gateway: a streaming reverse proxy that knows how every response ended.
