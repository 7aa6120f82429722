//! Load client: minimal HTTP/1.1, so that its own cost does not distort the measurement.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use memchr::{memchr, memmem};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::clock;
use crate::mock::{STAMP, length};

/// Keep-alive connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// Consumer of a body: receives the bytes and the time at which they were read.
pub(crate) trait Sink {
    /// Takes a piece of the body; returns `true` if the rest of the response is not needed.
    fn take(&mut self, bytes: &[u8], now: u64) -> bool;
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 64 << 10] })
    }

    /// Connects with a small buffer, for large numbers of idle streams.
    pub(crate) async fn connect_small(address: SocketAddr) -> Result<Self> {
        let mut client = Self::connect(address).await?;
        client.buffer = vec![0; 2 << 10];
        Ok(client)
    }

    /// Sends a request and reads its response.
    pub(crate) async fn call(&mut self, request: &[u8], sink: &mut impl Sink) -> Result<Progress> {
        self.stream.write_all(request).await?;
        let mut decoder = Decoder::default();
        self.read(&mut decoder, sink).await
    }

    /// Sends a request and returns the decoder to read the response with later.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<Decoder> {
        self.stream.write_all(request).await?;
        Ok(Decoder::default())
    }

    /// Reads until the response ends or the sink needs no more.
    pub(crate) async fn read(
        &mut self,
        decoder: &mut Decoder,
        sink: &mut impl Sink,
    ) -> Result<Progress> {
        loop {
            let count = self.stream.read(&mut self.buffer).await?;
            let now = clock::now();
            let bytes = self.buffer.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                return decoder.closed();
            }
            match decoder.feed(bytes, now, sink)? {
                Progress::More => {}
                progress @ (Progress::Enough | Progress::End) => return Ok(progress),
            }
        }
    }
}

impl Client {
    /// Reads until the connection ends, without parsing the framing.
    pub(crate) async fn skim(&mut self, sink: &mut impl Sink) -> Result<()> {
        loop {
            let count = self.stream.read(&mut self.buffer).await?;
            if count == 0 {
                return Ok(());
            }
            sink.take(self.buffer.get(..count).unwrap_or_default(), clock::now());
        }
    }
}

/// Progress of a response.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Progress {
    More,
    Enough,
    End,
}

/// Decoder of HTTP/1.1 framing.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    state: State,
    head: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Head,
    /// Body that ends after this many bytes.
    Length(usize),
    /// Body that ends with its connection.
    TransportEnd,
    /// Line with the size of the next chunk.
    Size(usize),
    /// Rest of that line, after its digits.
    SizeEnd(usize),
    Chunk(usize),
    /// Line end after a chunk.
    ChunkEnd,
    /// Trailer after the last chunk, with the length of the current line so far.
    Trailer(usize),
    End,
}

impl Decoder {
    fn feed(&mut self, mut bytes: &[u8], now: u64, sink: &mut impl Sink) -> Result<Progress> {
        let mut enough = false;
        while !bytes.is_empty() {
            self.state = match self.state {
                State::Head => self.take_head(&mut bytes)?,
                State::Length(left) => {
                    let piece = split(&mut bytes, left);
                    enough |= sink.take(piece, now);
                    if piece.len() == left { State::End } else { State::Length(left - piece.len()) }
                }
                State::TransportEnd => {
                    enough |= sink.take(split(&mut bytes, usize::MAX), now);
                    State::TransportEnd
                }
                State::Size(size) => match first(&mut bytes) {
                    b'\r' | b';' => State::SizeEnd(size),
                    digit => match char::from(digit).to_digit(16) {
                        Some(digit) => State::Size(size * 16 + digit as usize),
                        None => bail!("invalid byte {digit} in a chunk size"),
                    },
                },
                State::SizeEnd(size) => match (first(&mut bytes), size) {
                    (b'\n', 0) => State::Trailer(0),
                    (b'\n', size) => State::Chunk(size),
                    _ => State::SizeEnd(size),
                },
                State::Chunk(left) => {
                    let piece = split(&mut bytes, left);
                    enough |= sink.take(piece, now);
                    match left - piece.len() {
                        0 => State::ChunkEnd,
                        left => State::Chunk(left),
                    }
                }
                State::ChunkEnd => match first(&mut bytes) {
                    b'\n' => State::Size(0),
                    _ => State::ChunkEnd,
                },
                State::Trailer(line) => match (first(&mut bytes), line) {
                    (b'\r', line) => State::Trailer(line),
                    (b'\n', 0) => State::End,
                    (b'\n', _) => State::Trailer(0),
                    (_, line) => State::Trailer(line + 1),
                },
                State::End => bail!("unexpected bytes after the end of a response"),
            };
        }
        Ok(match self.state {
            State::End => Progress::End,
            _ if enough => Progress::Enough,
            State::Head
            | State::Length(_)
            | State::TransportEnd
            | State::Size(_)
            | State::SizeEnd(_)
            | State::Chunk(_)
            | State::ChunkEnd
            | State::Trailer(_) => Progress::More,
        })
    }

    fn take_head(&mut self, bytes: &mut &[u8]) -> Result<State> {
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let Some(end) = memmem::find(&self.head, b"\r\n\r\n") else {
            *bytes = &[];
            return Ok(State::Head);
        };
        *bytes = bytes.get(end + 4 - before..).unwrap_or_default();
        if self.head.get(9..12) != Some(b"200") {
            bail!("expected status 200, got: {}", String::from_utf8_lossy(&self.head));
        }
        self.head.truncate(end);
        self.head.make_ascii_lowercase();
        Ok(match length(&self.head) {
            Some(0) => State::End,
            Some(length) => State::Length(length),
            None if memmem::find(&self.head, b"chunked").is_some() => State::Size(0),
            None => State::TransportEnd,
        })
    }

    fn closed(&self) -> Result<Progress> {
        if matches!(self.state, State::TransportEnd | State::End) {
            return Ok(Progress::End);
        }
        bail!("the connection closed in the middle of a response")
    }
}

fn split<'a>(bytes: &mut &'a [u8], at: usize) -> &'a [u8] {
    let (piece, rest) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
    *bytes = rest;
    piece
}

fn first(bytes: &mut &[u8]) -> u8 {
    split(bytes, 1).first().copied().unwrap_or(0)
}

/// Sink that counts the bytes and keeps the last ones.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) bytes: usize,
    tail: Vec<u8>,
}

impl Sink for Count {
    fn take(&mut self, bytes: &[u8], _: u64) -> bool {
        self.bytes += bytes.len();
        let from = bytes.len().saturating_sub(32);
        self.tail.extend_from_slice(bytes.get(from..).unwrap_or_default());
        if self.tail.len() > 512 {
            self.tail.drain(..self.tail.len() - 32);
        }
        false
    }
}

impl Count {
    /// Reports whether the stream had its end marker.
    pub(crate) fn is_done(&self) -> bool {
        memmem::find(&self.tail, b"data: [DONE]").is_some()
    }
}

/// Sink that keeps the body.
#[derive(Default)]
pub(crate) struct Keep(pub(crate) Vec<u8>);

impl Sink for Keep {
    fn take(&mut self, bytes: &[u8], _: u64) -> bool {
        self.0.extend_from_slice(bytes);
        false
    }
}

/// Sink that measures the delay of each event, from the mock's write until its last byte is read.
#[derive(Default)]
pub(crate) struct Delays {
    /// Delays of events with a time, in nanoseconds.
    pub(crate) events: Vec<u64>,
    /// Delays of finish reasons, in nanoseconds.
    pub(crate) ends: Vec<u64>,
    /// Whether the stream had its end marker.
    pub(crate) done: bool,
    line: Vec<u8>,
}

impl Sink for Delays {
    fn take(&mut self, mut bytes: &[u8], now: u64) -> bool {
        while let Some(end) = memchr(b'\n', bytes) {
            let piece = split(&mut bytes, end + 1);
            if self.line.is_empty() {
                self.note(piece, now);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(piece);
                self.note(&line, now);
                line.clear();
                self.line = line;
            }
        }
        self.line.extend_from_slice(bytes);
        false
    }
}

impl Delays {
    fn note(&mut self, line: &[u8], now: u64) {
        self.done |= line.starts_with(b"data: [DONE]");
        let Some(time) = stamp(line) else { return };
        let delay = now.saturating_sub(time);
        match memmem::find(line, b"\"finish_reason\":\"") {
            Some(_) => self.ends.push(delay),
            None => self.events.push(delay),
        }
    }
}

/// Returns the time in an event.
fn stamp(line: &[u8]) -> Option<u64> {
    let at = memmem::find(line, STAMP.as_bytes())? + STAMP.len();
    std::str::from_utf8(line.get(at..at + 18)?).ok()?.parse().ok()
}

/// Sink that waits for the first event.
#[derive(Default)]
pub(crate) struct First {
    /// Time at which it was read.
    pub(crate) at: Option<u64>,
}

impl Sink for First {
    fn take(&mut self, bytes: &[u8], now: u64) -> bool {
        if self.at.is_none() && memmem::find(bytes, b"data:").is_some() {
            self.at = Some(now);
        }
        self.at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nhello\r\na;x=y\r\n, world!!!\r\n0\r\nfoo: bar\r\n\r\n";

    fn decode(bytes: &[u8], size: usize) -> (Progress, Vec<u8>) {
        let (mut decoder, mut body) = (Decoder::default(), Keep::default());
        let mut progress = Progress::More;
        for piece in bytes.chunks(size) {
            progress = decoder.feed(piece, 0, &mut body).unwrap();
        }
        (progress, body.0)
    }

    #[test]
    fn chunks_are_joined_however_they_are_cut() {
        for size in 1..=CHUNKED.len() {
            assert_eq!(decode(CHUNKED, size), (Progress::End, b"hello, world!!!".to_vec()));
        }
    }

    #[test]
    fn a_length_ends_a_body() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for size in 1..=bytes.len() {
            assert_eq!(decode(bytes, size), (Progress::End, b"ok".to_vec()));
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        let (mut decoder, mut body) = (Decoder::default(), Keep::default());
        assert!(decoder.feed(b"HTTP/1.1 502 Bad Gateway\r\n\r\n", 0, &mut body).is_err());
    }

    #[test]
    fn an_event_counts_when_its_last_byte_is_there() {
        let mut delays = Delays::default();
        let line = format!("data: {STAMP}{:018} \n\ndata: [DONE]\n\n", 40);
        delays.take(&line.as_bytes()[..20], 50);
        assert_eq!(delays.events, []);
        delays.take(&line.as_bytes()[20..], 60);
        assert_eq!(delays.events, [20]);
        assert!(delays.done);
    }
}
