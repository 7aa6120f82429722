//! HTTP/2 without TLS, by hyper, on the same port.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::ledger::ResponseEnd;
use crate::request::Request;
use crate::script::{Script, ScriptEnd, Step};
use crate::server::{Job, Shared};

pub(crate) async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, shared).await) }
    });
    let builder = {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new());
        builder
    };
    let _served = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: hyper::Request<Incoming>, shared: Arc<Shared>) -> hyper::Response<Played> {
    let request = read(request).await;
    let job = shared.answer(request);
    let watch = Watch { shared: Arc::clone(&shared), number: job.number };
    if job.script.silent {
        // hyper drops this future when the peer resets the stream or closes the connection.
        std::future::pending::<()>().await;
    }
    let mut response = hyper::Response::builder().status(job.script.status);
    for (name, value) in &job.script.headers {
        response = response.header(name, value);
    }
    if let Some(length) = job.script.length {
        response = response.header("content-length", length);
    }
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(play(job, shared, sender, watch));
    response.body(Played(receiver)).unwrap_or_else(|_| {
        let (_, receiver) = mpsc::channel(1);
        hyper::Response::new(Played(receiver))
    })
}

async fn read(request: hyper::Request<Incoming>) -> Request {
    let (head, mut incoming) = request.into_parts();
    let mut body = Vec::new();
    while let Some(Ok(frame)) = next(&mut incoming).await {
        if let Ok(data) = frame.into_data() {
            body.extend_from_slice(&data);
        }
    }
    let text =
        |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value)));
    let host = head.uri.authority().map(|host| ("host".to_owned(), host.to_string()));
    let headers = headers.chain(host);
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    Request { method: head.method.to_string(), target, headers: headers.collect(), body, http: 2 }
}

async fn next(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

/// Guard that records that the peer closed first, if the response is still open when it is dropped.
struct Watch {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let open = self
            .shared
            .ledger
            .get(self.number)
            .is_some_and(|entry| entry.ended == ResponseEnd::Open);
        if open {
            self.shared.over(self.number, ResponseEnd::PeerClosed);
        }
    }
}

type Sender = mpsc::Sender<Result<Frame<Bytes>, std::io::Error>>;

/// The peer closed the stream.
struct Gone;

async fn play(job: Job, shared: Arc<Shared>, sender: Sender, watch: Watch) {
    if steps(&job.script, job.number, &shared, &sender).await.is_ok() {
        if job.script.finish != ScriptEnd::Whole {
            // Earlier frames must be sent first: hyper drops them otherwise.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _sent = sender.send(Err(std::io::ErrorKind::ConnectionReset.into())).await;
        }
        shared.over(job.number, ResponseEnd::Itself);
    }
    drop(watch);
}

async fn steps(script: &Script, number: u64, shared: &Shared, to: &Sender) -> Result<(), Gone> {
    for step in &script.steps {
        match step {
            Step::Bytes(bytes) => piece(number, shared, to, bytes).await?,
            Step::Wait(time) => wait(*time, to).await?,
            Step::Stall => {
                shared.stalled(number);
                to.closed().await;
                return Err(Gone);
            }
            Step::Drip(bytes) => loop {
                for byte in bytes {
                    piece(number, shared, to, &[*byte]).await?;
                    wait(shared.options.drip, to).await?;
                }
            },
            Step::Flood(byte, count) => {
                let bytes = vec![*byte; 64 << 10];
                let mut left = *count;
                while left > 0 {
                    let size = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    piece(number, shared, to, bytes.get(..size).unwrap_or_default()).await?;
                    left -= size as u64;
                }
            }
        }
    }
    Ok(())
}

async fn piece(number: u64, shared: &Shared, to: &Sender, bytes: &[u8]) -> Result<(), Gone> {
    let frame = Frame::data(Bytes::copy_from_slice(bytes));
    to.send(Ok(frame)).await.map_err(|_| Gone)?;
    shared.ledger.wrote(number, bytes);
    Ok(())
}

async fn wait(time: Duration, to: &Sender) -> Result<(), Gone> {
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        () = to.closed() => Err(Gone),
    }
}

/// Response body fed by a running script.
struct Played(mpsc::Receiver<Result<Frame<Bytes>, std::io::Error>>);

impl Body for Played {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.get_mut().0.poll_recv(context)
    }
}
