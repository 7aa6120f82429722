//! The client's side: its connection, the headers, and the bodies of requests and responses.

pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod headers;
pub(crate) mod origin;
pub(crate) mod sending;
pub(crate) mod upload;
