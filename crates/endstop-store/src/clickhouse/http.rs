//! Plain HTTP to ClickHouse, over one connection that is kept.
//!
//! All requests can be repeated: rows are versions, and the server drops a block that it has. So a request on a
//! connection that has ended meanwhile is sent once more on a new one, and the next server is asked where one
//! cannot be reached.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use super::address::Address;
use crate::roots::roots;

/// The longest that a connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// A reply.
pub(super) struct Reply {
    pub(super) status: u16,
    /// `X-ClickHouse-Exception-Code`.
    pub(super) code: Option<u32>,
    pub(super) body: Bytes,
}

/// Cause of a request without a reply.
pub(super) enum Failure {
    /// It may work later.
    Passing(String),
    /// It would fail again.
    Lasting(String),
}

/// A connection, or none yet.
pub(super) struct Http {
    /// None only when it is dropped.
    runtime: Option<Runtime>,
    hosts: Vec<(String, u16)>,
    /// Number of the host that is asked.
    at: usize,
    tls: Option<TlsConnector>,
    user: String,
    password: String,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Drop for Http {
    fn drop(&mut self) {
        // Whoever drops it may be in the midst of another runtime, where nothing may be waited for.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Http {
    /// Prepares connections; says what is wrong with their settings.
    pub(super) fn new(address: &Address) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
        let tls = if address.is_tls { Some(connector(address)?) } else { None };
        for (name, value) in [("user", &address.user), ("password", &address.password)] {
            hyper::header::HeaderValue::from_str(value)
                .map_err(|_| format!("the {name} has a character that HTTP cannot send"))?;
        }
        Ok(Self {
            runtime: Some(runtime),
            hosts: address.hosts.clone(),
            at: 0,
            tls,
            user: address.user.clone(),
            password: address.password.clone(),
            sender: None,
        })
    }

    /// Sends a request and waits for the whole reply.
    pub(super) fn post(
        &mut self,
        target: &str,
        body: &Bytes,
        timeout: Duration,
    ) -> Result<Reply, Failure> {
        let runtime = self.runtime.take();
        let Some(kept) = &runtime else { return Err(Failure::Passing("it is closed".to_owned())) };
        let sent =
            kept.block_on(async { tokio::time::timeout(timeout, self.send(target, body)).await });
        self.runtime = runtime;
        sent.unwrap_or_else(|_| {
            self.sender = None;
            Err(Failure::Passing("it does not answer".to_owned()))
        })
    }

    /// Asks another server the next time.
    pub(super) fn turn_away(&mut self) {
        if self.hosts.len() > 1 {
            self.at = (self.at + 1) % self.hosts.len();
            self.sender = None;
        }
    }

    async fn send(&mut self, target: &str, body: &Bytes) -> Result<Reply, Failure> {
        if let Some(sender) = self.sender.take()
            && !sender.is_closed()
            && let Ok(reply) = self.ask(sender, target, body).await
        {
            return Ok(reply);
        }
        let mut failure = Failure::Passing("it names no host".to_owned());
        for _ in 0..self.hosts.len() {
            let asked = match self.connect().await {
                Ok(sender) => self.ask(sender, target, body).await.map_err(Failure::Passing),
                Err(failure) => Err(failure),
            };
            match asked {
                Ok(reply) => return Ok(reply),
                Err(why) => failure = why,
            }
            self.at = (self.at + 1) % self.hosts.len();
        }
        Err(failure)
    }

    async fn ask(
        &mut self,
        mut sender: SendRequest<Full<Bytes>>,
        target: &str,
        body: &Bytes,
    ) -> Result<Reply, String> {
        let host = self.hosts.get(self.at).map(|(host, _)| host.as_str()).unwrap_or_default();
        let request = Request::post(target)
            .header("host", host)
            .header("x-clickhouse-user", &self.user)
            .header("x-clickhouse-key", &self.password)
            .body(Full::new(body.clone()))
            .map_err(|error| error.to_string())?;
        sender.ready().await.map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        let code = head.headers.get("x-clickhouse-exception-code");
        let code = code.and_then(|code| code.to_str().ok()?.parse().ok());
        self.sender = Some(sender);
        Ok(Reply { status: head.status.as_u16(), code, body })
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let connecting = self.connect_to(self.hosts.get(self.at));
        tokio::time::timeout(CONNECT, connecting)
            .await
            .unwrap_or_else(|_| Err(Failure::Passing("the connection takes too long".to_owned())))
    }

    async fn connect_to(
        &self,
        host: Option<&(String, u16)>,
    ) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let passing = |error: std::io::Error| Failure::Passing(error.to_string());
        let lasting = |error: &dyn std::fmt::Display| Failure::Lasting(format!("TLS: {error}"));
        let (host, port) = host.ok_or_else(|| Failure::Lasting("it names no host".to_owned()))?;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(passing)?;
        stream.set_nodelay(true).map_err(passing)?;
        let Some(tls) = &self.tls else { return begin(TokioIo::new(stream)).await };
        let name = ServerName::try_from(host.clone()).map_err(|error| lasting(&error))?;
        let stream = tls.connect(name, stream).await.map_err(|error| lasting(&error))?;
        begin(TokioIo::new(stream)).await
    }
}

async fn begin(
    stream: impl Read + Write + Send + Unpin + 'static,
) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let begun = handshake(stream).await;
    let (sender, connection) = begun.map_err(|error| Failure::Passing(error.to_string()))?;
    // It ends with its sender, and requests tell its errors.
    tokio::spawn(async { drop(connection.await) });
    Ok(sender)
}

fn connector(address: &Address) -> Result<TlsConnector, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots(address.roots.as_deref())?)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}
