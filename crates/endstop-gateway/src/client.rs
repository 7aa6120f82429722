//! The client's side: its connection, the headers and the bodies of responses.

pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod headers;
