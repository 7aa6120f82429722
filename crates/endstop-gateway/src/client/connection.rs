//! The client's side of a connection: slow heads, half-closed clients, resets.
//!
//! A client that has sent its request may close its sending side and go on reading, or be gone: both
//! look the same until something is sent to it. So where nothing else is to be sent, a probe is:
//! before the head an interim response, which every client must skip; between two chunks a leading
//! zero of the next chunk's size, which changes nothing. Whoever is gone answers with a reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::callers::LastKey;
use crate::config::Limits;

/// Pauses between checks of a silent, half-closed client.
const LOOKS: [Duration; 4] = [
    Duration::from_millis(2),
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_secs(1),
];

/// State of a connection, as its service reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// No request is under way.
    Idle = 0,
    /// A request is, and its response has not begun.
    Waiting = 1,
    /// Its response is sent in chunks.
    Chunked = 2,
    /// Its response is sent in another way.
    Other = 3,
}

/// State that a connection and its service share.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    phase: AtomicU8,
    epoch: AtomicU32,
    reset: AtomicBool,
    last: AtomicBool,
    waker: AtomicWaker,
    /// The last key that the connection showed.
    pub(crate) last_key: LastKey,
}

impl Peer {
    /// Tells what the connection is doing now.
    pub(crate) fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.waker.wake();
    }

    /// The connection ends with a reset rather than cleanly.
    pub(crate) fn reset(&self) {
        self.reset.store(true, Ordering::Release);
    }

    /// No request may follow the one at hand. Nothing announces it: with `connection: close` in the
    /// head, clients on Node take an aborted body for a whole one.
    pub(crate) fn close_after(&self) {
        self.last.store(true, Ordering::Release);
    }

    /// Whether no request may follow.
    pub(crate) fn was_last(&self) -> bool {
        self.last.load(Ordering::Acquire)
    }

    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) == phase as u8
    }
}

/// While this lives, a request is under way.
#[derive(Debug)]
pub(crate) struct Busy(pub Arc<Peer>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(Phase::Idle);
    }
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct ClientIo {
    stream: TcpStream,
    peer: Arc<Peer>,
    head: Head,
    head_limit: usize,
    client_read: Duration,
    keep_alive: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// When the wait for a head, or for its rest, began.
    waiting_since: Option<Instant>,
    flushed: bool,
    /// Epoch of the last bytes that were sent.
    written_in: u32,
    probe: Option<Probe>,
    /// The next request is refused, once those before it have been answered.
    refusal: Option<Wrong>,
}

/// A client has closed its sending side.
#[derive(Debug)]
struct Probe {
    sent_in: Option<u32>,
    looks: usize,
    timer: Pin<Box<Sleep>>,
}

/// Where the bytes that come belong.
#[derive(Debug, Default)]
enum Head {
    /// To the next head, of which nothing has come.
    #[default]
    None,
    /// To a head, of which this has come.
    Part(Vec<u8>),
    /// To a body, of which so much is left.
    Body(u64),
    /// To the last request of the connection, or behind it.
    Last,
    /// To HTTP/2, which has no heads like these.
    Http2,
}

/// Why a request is refused before the service sees it.
type Wrong = (&'static str, &'static str);

impl ClientIo {
    /// A connection with these limits.
    #[must_use]
    pub(crate) fn new(stream: TcpStream, peer: Arc<Peer>, limits: &Limits) -> Self {
        Self {
            stream,
            peer,
            head: Head::None,
            head_limit: limits.head_bytes,
            client_read: limits.client_read,
            keep_alive: limits.keep_alive,
            timer: None,
            waiting_since: None,
            flushed: true,
            written_in: 0,
            probe: None,
            refusal: None,
        }
    }

    fn epoch(&self) -> u32 {
        self.peer.epoch.load(Ordering::Acquire)
    }

    /// Waits for a head, but not for ever.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let partial = matches!(self.head, Head::Part(_));
        let limit = if partial { self.client_read } else { self.keep_alive };
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        // One timer for all requests of a connection: setting one for each costs more than looking.
        let due = since + limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        while timer.deadline() < due {
            ready!(timer.as_mut().poll(cx));
            timer.as_mut().reset(due);
        }
        ready!(timer.as_mut().poll(cx));
        if partial {
            self.answer("408 Request Timeout", "the head of the request did not come in time");
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Follows the heads of requests, to refuse those that two readers could read differently; the
    /// count is of the bytes before the head that is wrong.
    fn follow(&mut self, bytes: &[u8]) -> Result<(), (usize, Wrong)> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let before = bytes.len() - rest.len();
            let taken = match std::mem::take(&mut self.head) {
                known @ (Head::Http2 | Head::Last) => {
                    self.head = known;
                    return Ok(());
                }
                Head::Body(left) => {
                    let taken = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - taken as u64;
                    self.head = if left == 0 { Head::None } else { Head::Body(left) };
                    taken
                }
                Head::None => {
                    self.waiting_since = None;
                    self.read_head(Vec::new(), rest).map_err(|wrong| (before, wrong))?
                }
                Head::Part(seen) => self.read_head(seen, rest).map_err(|wrong| (before, wrong))?,
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads on in a head; gives how many bytes belong to it.
    fn read_head(&mut self, mut seen: Vec<u8>, bytes: &[u8]) -> Result<usize, Wrong> {
        let old = seen.len();
        // The end may have begun before.
        let from = old.saturating_sub(3);
        seen.extend_from_slice(bytes);
        if seen.starts_with(b"PRI ") {
            self.head = Head::Http2;
            return Ok(bytes.len());
        }
        let new = seen.get(from..).unwrap_or_default();
        let end = memchr::memmem::find(new, b"\r\n\r\n").map(|at| from + at);
        let head = seen.get(..end.unwrap_or(seen.len())).unwrap_or_default();
        if has_bare_line_end(head, from) {
            return Err(("400 Bad Request", "a line of the head ends in a bare line feed"));
        }
        if head.len() > self.head_limit {
            return Err(("431 Request Header Fields Too Large", "the head is too large"));
        }
        let Some(end) = end else {
            self.head = Head::Part(seen);
            return Ok(bytes.len());
        };
        self.waiting_since = None;
        self.head = after(head).map_err(|wrong| ("400 Bad Request", wrong))?;
        Ok(end + 4 - old)
    }

    /// Answers in place of the service, which never sees the request.
    fn answer(&self, status: &str, message: &str) {
        let body = format!(
            "{{\"error\":{{\"message\":\"endstop: {message}\",\"type\":\"endstop_error\"}}}}"
        );
        let response = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        // If the client does not take it, there is nobody to tell.
        let _ = self.stream.try_write(response.as_bytes());
    }

    fn poll_probe(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(error) = self.stream.take_error()? {
                return Poll::Ready(Err(error));
            }
            self.send_probe()?;
            let Some(probe) = &mut self.probe else { return Poll::Ready(Ok(())) };
            ready!(probe.timer.as_mut().poll(cx));
            probe.looks += 1;
            let pause = LOOKS.get(probe.looks).or(LOOKS.last()).copied().unwrap_or_default();
            probe.timer.as_mut().reset(Instant::now() + pause);
        }
    }

    fn send_probe(&mut self) -> io::Result<()> {
        let epoch = self.epoch();
        let fresh = self.probe.as_ref().is_some_and(|probe| probe.sent_in != Some(epoch));
        if !(fresh && self.flushed) {
            return Ok(());
        }
        let bytes: &[u8] = if self.peer.is(Phase::Waiting) {
            b"HTTP/1.1 102 Processing\r\n\r\n"
        } else if self.peer.is(Phase::Chunked) && self.written_in == epoch {
            b"0"
        } else {
            return Ok(());
        };
        match self.stream.try_write(bytes) {
            Ok(_) => {
                if let Some(probe) = &mut self.probe {
                    probe.sent_in = Some(epoch);
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether a line ends without a carriage return, from here on.
fn has_bare_line_end(head: &[u8], from: usize) -> bool {
    let ends = memchr::memchr_iter(b'\n', head.get(from..).unwrap_or_default());
    let before = |at: usize| (from + at).checked_sub(1).and_then(|at| head.get(at));
    ends.into_iter().any(|at| before(at) != Some(&b'\r'))
}

/// Returns what follows this head, or why two readers could disagree about the end of the request.
fn after(head: &[u8]) -> Result<Head, &'static str> {
    let (mut lengths, mut codings, mut length) = (0, 0, Some(0));
    for line in head.split(|byte| *byte == b'\n').skip(1) {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"content-length") {
            lengths += 1;
            let value = line.get(name.len() + 1..).unwrap_or_default().trim_ascii();
            length = str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            codings += 1;
        } else if name.last().is_some_and(|last| matches!(last, b' ' | b'\t')) {
            return Err("a header's name ends in white space");
        }
    }
    match (lengths, codings, length) {
        (0 | 1, 0, Some(0)) => Ok(Head::None),
        (0 | 1, 0, Some(length)) => Ok(Head::Body(length)),
        // Its length is none, and the service says so; after a coding, the connection closes.
        (0 | 1, 0, None) | (0, 1, _) => Ok(Head::Last),
        (_, 0, _) => Err("the request has several lengths"),
        (0, _, _) => Err("the request has several transfer codings"),
        _ => Err("the request has a length and a transfer coding"),
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let idle = this.peer.is(Phase::Idle);
        if this.probe.is_some() {
            this.peer.waker.register(cx.waker());
            return if idle { Poll::Ready(Ok(())) } else { this.poll_probe(cx) };
        }
        if idle && this.peer.was_last() {
            return Poll::Ready(Ok(()));
        }
        if let Some((status, message)) = this.refusal {
            if idle {
                this.answer(status, message);
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            this.peer.waker.register(cx.waker());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        match read {
            Poll::Pending if idle && !matches!(this.head, Head::Http2) => this.poll_waiting(cx),
            Poll::Pending => {
                this.waiting_since = None;
                Poll::Pending
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) => {
                let bytes = buffer.filled().get(before..).unwrap_or_default();
                if !bytes.is_empty() {
                    let Err((good, wrong)) = this.follow(bytes) else { return Poll::Ready(Ok(())) };
                    this.refusal = Some(wrong);
                    buffer.set_filled(before + good);
                    // Nothing is no end: those before it must be answered first.
                    return if good > 0 { Poll::Ready(Ok(())) } else { self.poll_read(cx, buffer) };
                }
                if idle || buffer.remaining() == 0 {
                    return Poll::Ready(Ok(()));
                }
                this.probe = Some(Probe {
                    sent_in: None,
                    looks: 0,
                    timer: Box::pin(tokio::time::sleep(LOOKS[0])),
                });
                this.peer.waker.register(cx.waker());
                this.poll_probe(cx)
            }
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.flushed = false;
        self.written_in = self.epoch();
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.flushed = false;
        self.written_in = self.epoch();
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        if self.peer.reset.load(Ordering::Acquire) {
            // Closing then sends a reset; where that fails the connection closes all the same.
            let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_can_be_read_in_two_ways() {
        for head in [
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "POST / HTTP/1.1\r\nTransfer-Encoding : chunked",
        ] {
            assert!(after(head.as_bytes()).is_err(), "{head}");
        }
        assert!(has_bare_line_end(b"POST / HTTP/1.1\nHost: x", 0));
        assert!(!has_bare_line_end(b"POST / HTTP/1.1\r\nHost: x", 0));
        assert!(!has_bare_line_end(b"POST / HTTP/1.1\r\n", 16));
    }

    #[test]
    fn what_follows_a_head() {
        let head = "POST / HTTP/1.1\r\nContent-Length: 5\r\nX-Content-Length: 6";
        assert!(matches!(after(head.as_bytes()), Ok(Head::Body(5))));
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked";
        assert!(matches!(after(head.as_bytes()), Ok(Head::Last)));
        let head = "GET / HTTP/1.1\r\nHost: x";
        assert!(matches!(after(head.as_bytes()), Ok(Head::None)));
    }
}
