//! Hand-written HTTP/1.1 server that can break the protocol on purpose.

use std::time::{Duration, Instant, SystemTime};

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use crate::ledger::ResponseEnd;
use crate::request::Request;
use crate::script::{Script, ScriptEnd, Step};
use crate::server::{Job, Shared};

const MAX_HEAD: usize = 256 << 10;
const MAX_BODY: usize = 64 << 20;

/// The peer closed the connection after this many bytes of the last write.
#[derive(Debug)]
struct Gone(usize);

/// Next step for the connection after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Next,
    Close,
    Reset,
}

struct Connection<'s> {
    stream: TcpStream,
    /// Received bytes that are not parsed yet.
    input: Vec<u8>,
    shared: &'s Shared,
}

/// Guard that marks an open response as stopped when its task is dropped.
struct Watch<'s> {
    shared: &'s Shared,
    number: u64,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.shared.ledger.change(self.number, |entry| {
            if entry.ended == ResponseEnd::Open {
                entry.ended = ResponseEnd::Stopped;
                entry.finished = Some(Instant::now());
            }
        });
    }
}

pub(crate) async fn serve(stream: TcpStream, shared: &Shared) {
    let mut connection = Connection { stream, input: Vec::new(), shared };
    loop {
        let Ok((request, keeps)) = connection.request().await else { return };
        let old = request.http == 0;
        let head = request.method == "HEAD";
        let job = shared.answer(Request { http: 1, ..request });
        let watch = Watch { shared, number: job.number };
        let played = connection.play(&job, keeps, old, head).await;
        let ended = if played.is_ok() { ResponseEnd::Itself } else { ResponseEnd::PeerClosed };
        shared.over(job.number, ended);
        drop(watch);
        match played {
            Ok(After::Next) => {}
            Ok(After::Close) => {
                let _shut = connection.stream.shutdown().await;
                return;
            }
            Ok(After::Reset) => {
                let _set = connection.stream.set_zero_linger();
                return;
            }
            Err(Gone(_)) => return,
        }
    }
}

impl Connection<'_> {
    /// Reads the next request, and whether to keep the connection alive.
    async fn request(&mut self) -> Result<(Request, bool), Gone> {
        let (head, size) = loop {
            if let Some(parsed) = parse_head(&self.input) {
                match parsed {
                    Ok(parsed) => break parsed,
                    Err(message) => return self.refuse(&message).await,
                }
            }
            if self.input.len() > MAX_HEAD {
                return self.refuse("request headers too large: the limit is 256 KiB").await;
            }
            self.more().await?;
        };
        self.input.drain(..size);
        let mut request = head.request;
        if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
        {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let chunked = request
            .header("transfer-encoding")
            .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"));
        let length = request.header("content-length").and_then(|value| value.parse().ok());
        request.body = match (chunked, length) {
            (true, _) => self.chunked_body().await?,
            (false, Some(length)) if length > MAX_BODY => {
                return self.refuse("request body too large: the limit is 64 MiB").await;
            }
            (false, Some(length)) => self.take(length).await?,
            (false, None) => Vec::new(),
        };
        let connection = request.header("connection").unwrap_or_default().to_ascii_lowercase();
        let keeps = if request.http == 0 {
            connection.contains("keep-alive")
        } else {
            !connection.contains("close")
        };
        Ok((request, keeps))
    }

    async fn refuse<T>(&mut self, message: &str) -> Result<T, Gone> {
        let body = format!("{message}\n");
        let head = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        );
        self.write(head.as_bytes()).await?;
        let _shut = self.stream.shutdown().await;
        Err(Gone(0))
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, Gone> {
        while self.input.len() < length {
            self.more().await?;
        }
        Ok(self.input.drain(..length).collect())
    }

    async fn chunked_body(&mut self) -> Result<Vec<u8>, Gone> {
        let mut body = Vec::new();
        loop {
            let (start, size) = loop {
                match httparse::parse_chunk_size(&self.input) {
                    Ok(httparse::Status::Complete(found)) => break found,
                    Ok(httparse::Status::Partial) => self.more().await?,
                    Err(_) => return self.refuse("invalid chunk size in the request body").await,
                }
            };
            self.input.drain(..start);
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if size > MAX_BODY || body.len() + size > MAX_BODY {
                return self.refuse("request body too large: the limit is 64 MiB").await;
            }
            let chunk = self.take(size + 2).await?;
            body.extend(chunk.into_iter().take(size));
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Waits for more input.
    async fn more(&mut self) -> Result<(), Gone> {
        loop {
            self.stream.readable().await.map_err(|_| Gone(0))?;
            if self.read_ready()? {
                return Ok(());
            }
        }
    }

    /// Reads the available bytes. An end of input means that the peer closed.
    fn read_ready(&mut self) -> Result<bool, Gone> {
        let mut buffer = [0; 16 << 10];
        match self.stream.try_read(&mut buffer) {
            Ok(0) => Err(Gone(0)),
            Ok(size) => {
                self.input.extend(buffer.iter().take(size));
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(Gone(0)),
        }
    }

    /// Writes all bytes; returns at once if the peer closes.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let interest = Interest::READABLE | Interest::WRITABLE;
            let ready = self.stream.ready(interest).await.map_err(|_| Gone(written))?;
            if ready.is_readable() || ready.is_read_closed() {
                self.read_ready().map_err(|_| Gone(written))?;
            }
            if ready.is_writable() || ready.is_write_closed() {
                match self.stream.try_write(rest) {
                    Ok(size) => written += size,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return Err(Gone(written)),
                }
            }
        }
        Ok(())
    }

    /// Waits; returns at once if the peer closes.
    async fn wait(&mut self, time: Duration) -> Result<(), Gone> {
        let sleep = tokio::time::sleep(time);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => return Ok(()),
                more = self.more() => more?,
            }
        }
    }

    async fn play(&mut self, job: &Job, keeps: bool, old: bool, head: bool) -> Result<After, Gone> {
        let script = &job.script;
        let keeps = keeps && script.finish == ScriptEnd::Whole && !(old && script.length.is_none());
        if script.early_hints && !old {
            self.write(b"HTTP/1.1 103 Early Hints\r\nlink: </sim>; rel=preconnect\r\n\r\n").await?;
        }
        if !script.silent {
            self.write(head_of(script, keeps, old).as_bytes()).await?;
        }
        if head {
            return Ok(if keeps { After::Next } else { After::Close });
        }
        let mut body = Body { number: job.number, chunked: script.length.is_none() && !old };
        let last = script.steps.len().saturating_sub(1);
        for (at, step) in script.steps.iter().enumerate() {
            let torn = at == last && script.finish == ScriptEnd::FinInChunk;
            self.step(&mut body, step, torn).await?;
        }
        match script.finish {
            ScriptEnd::Whole => {
                if body.chunked {
                    self.write(b"0\r\n\r\n").await?;
                }
                Ok(if keeps { After::Next } else { After::Close })
            }
            ScriptEnd::Fin | ScriptEnd::FinInChunk => Ok(After::Close),
            ScriptEnd::Reset => {
                // A reset may overtake bytes written before it: give them time to arrive.
                self.wait(Duration::from_millis(20)).await?;
                Ok(After::Reset)
            }
        }
    }

    async fn step(&mut self, body: &mut Body, step: &Step, torn: bool) -> Result<(), Gone> {
        match step {
            Step::Bytes(bytes) => self.piece(body, bytes, torn).await,
            Step::Wait(time) => self.wait(*time).await,
            Step::Stall => {
                self.shared.stalled(body.number);
                loop {
                    self.more().await?;
                }
            }
            Step::Drip(bytes) => loop {
                for byte in bytes {
                    self.piece(body, &[*byte], false).await?;
                    self.wait(self.shared.options.drip).await?;
                }
            },
            Step::Flood(byte, count) => {
                let piece = vec![*byte; 64 << 10];
                let mut left = *count;
                while left > 0 {
                    let size = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                    self.piece(body, piece.get(..size).unwrap_or_default(), false).await?;
                    left -= size as u64;
                }
                Ok(())
            }
        }
    }

    /// Writes a piece of the body, and records in the ledger the bytes that were really sent.
    async fn piece(&mut self, body: &mut Body, bytes: &[u8], torn: bool) -> Result<(), Gone> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut framed = Vec::with_capacity(bytes.len() + 16);
        if body.chunked {
            // A torn chunk announces more bytes than follow.
            let promised = if torn { bytes.len() + 64 } else { bytes.len() };
            framed.extend(format!("{promised:x}\r\n").into_bytes());
        }
        let start = framed.len();
        framed.extend_from_slice(bytes);
        if body.chunked && !torn {
            framed.extend_from_slice(b"\r\n");
        }
        let written = self.write(&framed).await;
        let left = match written {
            Ok(()) => bytes.len(),
            Err(Gone(written)) => written.saturating_sub(start).min(bytes.len()),
        };
        let sent = bytes.get(..left).unwrap_or_default();
        self.shared.ledger.wrote(body.number, sent);
        written
    }
}

struct Body {
    number: u64,
    chunked: bool,
}

struct Head {
    request: Request,
}

/// Parses the head of a request and returns it with its size, or `None` if it is incomplete.
fn parse_head(input: &[u8]) -> Option<Result<(Head, usize), String>> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(input) {
        Ok(httparse::Status::Partial) => None,
        Err(error) => Some(Err(format!("invalid HTTP/1.1 request: {error}"))),
        Ok(httparse::Status::Complete(size)) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let headers = parsed.headers.iter();
            let headers = headers.map(|header| (header.name.to_owned(), text(header.value)));
            let request = Request {
                method: parsed.method.unwrap_or_default().to_owned(),
                target: parsed.path.unwrap_or_default().to_owned(),
                headers: headers.collect(),
                body: Vec::new(),
                http: parsed.version.unwrap_or(1),
            };
            Some(Ok((Head { request }, size)))
        }
    }
}

fn head_of(script: &Script, keeps: bool, old: bool) -> String {
    let mut head = format!("HTTP/1.1 {} {}\r\n", script.status, phrase(script.status));
    head.push_str(&format!("date: {}\r\n", httpdate::fmt_http_date(SystemTime::now())));
    for (name, value) in &script.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match script.length {
        Some(length) => head.push_str(&format!("content-length: {length}\r\n")),
        None if old => {}
        None => head.push_str("transfer-encoding: chunked\r\n"),
    }
    // No `connection: close` before a fault: Node clients take an announced close for a clean end.
    head.push_str(match (keeps, &script.finish) {
        (true, _) => "connection: keep-alive\r\n",
        (false, ScriptEnd::Whole) => "connection: close\r\n",
        (false, ScriptEnd::Fin | ScriptEnd::FinInChunk | ScriptEnd::Reset) => "",
    });
    head.push_str("\r\n");
    head
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        302 => "Found",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => "Simulated",
    }
}
