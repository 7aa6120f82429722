//! Two reference proxies: a plain hyper passthrough, and a copy of bytes without parsing.

use std::net::SocketAddr;

use anyhow::Result;
use hyper::body::Incoming;
use hyper::http::uri::{Authority, Scheme};
use hyper::service::service_fn;
use hyper::{Request, Response, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};

use crate::process::{self, Scheduler};

/// Runs a minimal hyper proxy: every frame from the upstream becomes one frame to the client.
pub(crate) fn passthrough(
    scheduler: Scheduler,
    listen: SocketAddr,
    upstream: SocketAddr,
) -> Result<()> {
    process::until_input_ends(scheduler, async move {
        let listener = TcpListener::bind(listen).await?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
        let authority: Authority = upstream.to_string().parse()?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (client, authority) = (client.clone(), authority.clone());
            let service =
                service_fn(move |request| forward(client.clone(), authority.clone(), request));
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                // A client that disconnects is not a failure of the proxy.
                drop(connection.await);
            });
        }
    })
}

async fn forward(
    client: Client<HttpConnector, Incoming>,
    authority: Authority,
    request: Request<Incoming>,
) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
    let (mut head, body) = request.into_parts();
    let mut parts = head.uri.into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority);
    head.uri = Uri::from_parts(parts).unwrap_or_default();
    head.headers.remove(header::HOST);
    client.request(Request::from_parts(head, body)).await
}

/// Copies bytes between sockets: the least work that a proxy can do.
pub(crate) fn copy(listen: SocketAddr, upstream: SocketAddr) -> Result<()> {
    process::until_input_ends(Scheduler::Current, async move {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (mut near, _) = listener.accept().await?;
            near.set_nodelay(true)?;
            tokio::spawn(async move {
                let mut far = TcpStream::connect(upstream).await?;
                far.set_nodelay(true)?;
                tokio::io::copy_bidirectional(&mut near, &mut far).await?;
                Ok::<_, std::io::Error>(())
            });
        }
    })
}
