//! Clients that see everything: HTTP/1.1 by hand, byte for byte, and HTTP/2 by hyper.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long silence lasts before a client takes it for a hang. A machine under load is silent at
/// times.
const PATIENT: Duration = Duration::from_secs(20);

/// What came of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// The statuses of interim responses.
    pub(crate) interim: Vec<u16>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// Not yet.
    #[default]
    Open,
    /// As its framing wanted it.
    Clean,
    /// The connection was closed before the framing's end.
    Short,
    /// The connection was reset.
    Reset,
    /// The TCP connection was closed beneath TLS.
    Cut,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// The id that the gateway gave it.
    pub(crate) fn id(&self) -> &str {
        self.header("x-endstop-id")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What is expected next.
#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    Sized(usize),
    ChunkSize,
    ChunkData(usize),
    Trailers,
    UntilClose,
    Done,
}

/// A connection and the response that is being read from it.
#[derive(Debug)]
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    input: Vec<u8>,
    /// How much of it has been taken in.
    taken: usize,
    state: State,
    response: Response,
}

impl Client {
    pub(crate) async fn connect(to: SocketAddr) -> Self {
        Self::new(TcpStream::connect(to).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        let response = Response::default();
        Self { stream, input: Vec::new(), taken: 0, state: State::Head, response }
    }

    /// Sends as much as the peer takes.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        // Whoever refuses a request early may not read all of it.
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    /// Reads one response to its end, whatever that is.
    pub(crate) async fn finish(&mut self) -> Response {
        self.until(|_| false).await
    }

    /// Reads until the head has come.
    pub(crate) async fn head(&mut self) -> Response {
        self.until(|response| response.status != 0).await
    }

    /// Reads until this is so, or the response is over.
    pub(crate) async fn until(&mut self, enough: impl Fn(&Response) -> bool) -> Response {
        let mut buffer = vec![0; 64 << 10];
        loop {
            self.advance();
            self.input.drain(..std::mem::take(&mut self.taken));
            if matches!(self.state, State::Done) {
                self.state = State::Head;
                let mut response = std::mem::take(&mut self.response);
                response.end = End::Clean;
                return response;
            }
            if enough(&self.response) {
                return self.response.clone();
            }
            match tokio::time::timeout(PATIENT, self.stream.read(&mut buffer)).await {
                Err(_) => panic!("a hang after {:?}", self.response),
                Ok(Ok(0)) => return self.over(End::Short),
                Ok(Ok(size)) => self.input.extend_from_slice(&buffer[..size]),
                Ok(Err(error)) if error.kind() == ErrorKind::ConnectionReset => {
                    return self.over(End::Reset);
                }
                // TLS, without a goodbye.
                Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    return self.over(End::Cut);
                }
                Ok(Err(error)) => panic!("{error}"),
            }
        }
    }

    fn over(&mut self, end: End) -> Response {
        let mut response = std::mem::take(&mut self.response);
        let closed = matches!(self.state, State::UntilClose) && end == End::Short;
        response.end = if closed { End::Clean } else { end };
        response
    }

    /// Takes in what has come.
    fn advance(&mut self) {
        loop {
            match self.state {
                State::Done => return,
                State::Head => {
                    let Some(head) = self.take_until(b"\r\n\r\n") else { return };
                    self.take_head(&head);
                }
                State::Sized(0) => self.state = State::Done,
                State::Sized(left) => {
                    let Some(taken) = self.take_data(left) else { return };
                    self.state = State::Sized(left - taken);
                }
                State::ChunkSize => {
                    let Some(line) = self.take_until(b"\r\n") else { return };
                    let size = String::from_utf8(line).unwrap();
                    let size = usize::from_str_radix(&size, 16).unwrap();
                    self.state =
                        if size == 0 { State::Trailers } else { State::ChunkData(size + 2) };
                }
                State::ChunkData(2) => {
                    let Some(line) = self.take_until(b"\r\n") else { return };
                    assert!(line.is_empty(), "a chunk is longer than its size");
                    self.state = State::ChunkSize;
                }
                State::ChunkData(left) => {
                    let Some(taken) = self.take_data(left - 2) else { return };
                    self.state = State::ChunkData(left - taken);
                }
                State::Trailers => {
                    let Some(line) = self.take_until(b"\r\n") else { return };
                    if line.is_empty() {
                        self.state = State::Done;
                    }
                }
                State::UntilClose => {
                    self.response.body.extend_from_slice(&self.input[self.taken..]);
                    self.taken = self.input.len();
                    return;
                }
            }
        }
    }

    fn take_until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        let rest = &self.input[self.taken..];
        let at = memchr::memmem::find(rest, end)?;
        let taken = rest[..at].to_vec();
        self.taken += at + end.len();
        Some(taken)
    }

    fn take_data(&mut self, most: usize) -> Option<usize> {
        let rest = &self.input[self.taken..];
        let taken = most.min(rest.len());
        self.response.body.extend_from_slice(&rest[..taken]);
        self.taken += taken;
        (taken > 0).then_some(taken)
    }

    fn take_head(&mut self, head: &[u8]) {
        let head = String::from_utf8_lossy(head).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        if (100..200).contains(&status) {
            self.response.interim.push(status);
            return;
        }
        self.response.status = status;
        let headers = lines.map(|line| line.split_once(": ").unwrap_or((line, "")));
        self.response.headers = headers.map(|(name, value)| (name.into(), value.into())).collect();
        self.state = if let Ok(length) = self.response.header("content-length").parse() {
            State::Sized(length)
        } else if self.response.header("transfer-encoding") == "chunked" {
            State::ChunkSize
        } else {
            State::UntilClose
        };
    }
}

/// A request as it is written.
pub(crate) fn request(path: &str, headers: &[(String, String)], body: &str) -> String {
    let mut text =
        format!("POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n" + body
}

/// Asks once, and reads to the end.
pub(crate) async fn ask(to: SocketAddr, request: impl AsRef<[u8]>) -> Response {
    let mut client = Client::connect(to).await;
    client.send(request).await;
    client.finish().await
}

/// Gets a page.
pub(crate) async fn get(to: SocketAddr, path: &str, headers: &str) -> Response {
    ask(to, format!("GET {path} HTTP/1.1\r\nhost: {to}\r\n{headers}\r\n")).await
}

/// An HTTP/2 connection.
pub(crate) type Http2 = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

pub(crate) async fn connect_http2(to: SocketAddr) -> Http2 {
    let stream = TokioIo::new(TcpStream::connect(to).await.unwrap());
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// What came of a request over HTTP/2, and the error that its stream was ended with.
pub(crate) async fn ask_http2(
    sender: &mut Http2,
    to: SocketAddr,
    path: &str,
    headers: &[(String, String)],
    body: &str,
) -> (Response, Option<String>) {
    let mut request = hyper::Request::post(format!("http://{to}{path}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::from(body.to_owned())).unwrap();
    let sent = tokio::time::timeout(PATIENT, sender.send_request(request)).await.unwrap();
    let (parts, mut incoming) = sent.unwrap().into_parts();
    let text =
        |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = parts.headers.iter();
    let mut response = Response {
        status: parts.status.as_u16(),
        headers: headers.map(|(name, value)| (name.to_string(), text(value))).collect(),
        ..Response::default()
    };
    loop {
        match tokio::time::timeout(PATIENT, incoming.frame()).await.unwrap() {
            None => {
                response.end = End::Clean;
                return (response, None);
            }
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    response.body.extend_from_slice(&data);
                }
            }
            Some(Err(error)) => {
                response.end = End::Reset;
                return (response, Some(format!("{error:?}")));
            }
        }
    }
}
