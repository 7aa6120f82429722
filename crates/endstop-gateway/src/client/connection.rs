//! The client's side of a connection, plain or TLS: slow heads, clients that do not read, half-closed
//! clients, resets.
//!
//! Every wait for a client has a limit here, whatever the protocol: for a head (`client_read`), for
//! the next request (`keep_alive`), for the client to take in what is sent (`client_write`).
//!
//! A client that has sent its request may close its sending side and go on reading, or be gone: both
//! look the same until something is sent to it. So where nothing else is to be sent, a probe is:
//! before the head an interim response, which every client must skip; between two chunks a leading
//! zero of the next chunk's size, which changes nothing. Whoever is gone answers with a reset.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hyper::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use crate::callers::LastKey;
use crate::config::NetworkLimits;
use crate::memory::Reserved;

/// Pauses between checks of a silent, half-closed client.
const LOOKS: [Duration; 4] = [
    Duration::from_millis(2),
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_secs(1),
];

/// Time for a client to read the last answer of a connection.
const LINGER: Duration = Duration::from_millis(500);

/// Bytes of a refused client that are read and thrown away, at most.
const DISCARDED: usize = 1 << 20;

/// The most bytes that the unfinished heads of a listener hold together.
const HEADS: usize = 32 << 20;

/// Unfinished heads up to this size are not counted: their number is bounded by the connections. The first
/// read of a connection takes the bytes that tell HTTP/2 from HTTP/1.1, and nothing more, so that every
/// head is unfinished at first.
const UNCOUNTED: usize = 1 << 10;

/// First bytes of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

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
    expired: AtomicBool,
    waker: AtomicWaker,
    http2: Mutex<Streams>,
    /// The last key that the connection showed.
    pub(crate) last_key: LastKey,
    /// Address of the client, if it is known.
    pub(crate) address: Option<IpAddr>,
}

/// Requests of an HTTP/2 connection that are under way.
#[derive(Debug, Default)]
struct Streams {
    /// Number of them.
    open: usize,
    /// Those whose response waits for the client to take it in.
    unsent: usize,
    /// Last time at which one of these numbers changed.
    since: Option<Instant>,
}

impl Peer {
    /// Creates the state of a connection.
    pub(crate) fn of(stream: &TcpStream) -> Self {
        let address = stream.peer_addr().ok().map(|address| address.ip().to_canonical());
        Self { address, ..Self::default() }
    }

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

    /// Reports whether the connection has had nothing to do for too long, and should be closed as
    /// its protocol closes one.
    pub(crate) fn is_expired(&self) -> bool {
        self.expired.load(Ordering::Acquire)
    }

    fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Acquire) == phase as u8
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.http2.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Streams)) {
        let mut streams = self.streams();
        change(&mut streams);
        streams.since = Some(Instant::now());
    }
}

/// While this lives, a request is under way.
#[derive(Debug)]
pub(crate) struct Busy {
    peer: Arc<Peer>,
    protocol: Protocol,
}

#[derive(Debug)]
enum Protocol {
    Http1,
    /// With the state of the response's body.
    Http2(Sending),
}

/// State of a response's body on HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// The gateway has nothing to send.
    Nothing,
    /// The client has not taken in what was sent.
    Unsent,
}

impl Busy {
    /// Begins a request.
    pub(crate) fn new(peer: Arc<Peer>, version: Version) -> Self {
        let protocol = if version <= Version::HTTP_11 {
            peer.set(Phase::Waiting);
            Protocol::Http1
        } else {
            peer.change(|streams| streams.open += 1);
            Protocol::Http2(Sending::Nothing)
        };
        Self { peer, protocol }
    }

    /// Tells how the response is sent.
    pub(crate) fn responds(&mut self, phase: Phase) {
        match self.protocol {
            Protocol::Http1 => self.peer.set(phase),
            Protocol::Http2(_) => self.handed_over(),
        }
    }

    /// Reports whether the connection can have several requests under way.
    #[inline]
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.protocol, Protocol::Http2(_))
    }

    /// Tells that the client is to take in what was handed over.
    pub(crate) fn handed_over(&mut self) {
        if let Protocol::Http2(sending @ Sending::Nothing) = &mut self.protocol {
            *sending = Sending::Unsent;
            super::sending::note(true);
            self.peer.change(|streams| streams.unsent += 1);
        }
    }

    /// Tells that the protocol has taken in what was handed over, and wants more.
    pub(crate) fn asked(&mut self) {
        if let Protocol::Http2(sending @ Sending::Unsent) = &mut self.protocol {
            *sending = Sending::Nothing;
            super::sending::note(false);
            self.peer.change(|streams| streams.unsent -= 1);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.asked();
        match self.protocol {
            Protocol::Http1 => self.peer.set(Phase::Idle),
            Protocol::Http2(_) => self.peer.change(|streams| streams.open -= 1),
        }
    }
}

/// A stream of bytes over TCP.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Returns the TCP connection beneath.
    fn tcp(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Transport for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct ClientIo<S: Transport> {
    stream: S,
    peer: Arc<Peer>,
    head: Head,
    /// Whether a whole head has come.
    served: bool,
    /// Whether the last head was of HTTP/1.0.
    is_old: bool,
    /// Counts the bytes of an unfinished head.
    heads: Reserved,
    head_limit: usize,
    client_read: Duration,
    client_write: Duration,
    keep_alive: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// When the wait for a head, or for its rest, began.
    waiting_since: Option<Instant>,
    /// Ends a wait for the client to take in what was sent.
    stalled: Option<Pin<Box<Sleep>>>,
    flushed: bool,
    /// Reading goes on when everything has been sent.
    waits_for_flush: bool,
    /// Epoch of the last bytes that were sent.
    written_in: u32,
    probe: Option<Probe>,
    /// The next request is refused, once those before it have been answered.
    refusal: Option<Wrong>,
    /// The last answer was sent.
    closing: Option<Closing>,
    /// When the protocol was asked to close the connection.
    expired_at: Option<Instant>,
}

/// A client has closed its sending side.
#[derive(Debug)]
struct Probe {
    sent_in: Option<u32>,
    looks: usize,
    timer: Pin<Box<Sleep>>,
}

/// A connection with nothing left to say.
#[derive(Debug)]
struct Closing {
    timer: Pin<Box<Sleep>>,
    discarded: usize,
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

impl<S: Transport> ClientIo<S> {
    /// A connection with these limits.
    #[must_use]
    pub(crate) fn new(stream: S, peer: Arc<Peer>, limits: &NetworkLimits, heads: Reserved) -> Self {
        Self {
            stream,
            peer,
            head: Head::None,
            served: false,
            is_old: false,
            heads,
            head_limit: limits.head_bytes,
            client_read: limits.client_read,
            // A stream notices first that its client does not read, and reports it.
            client_write: limits.client_write.saturating_mul(5) / 4,
            keep_alive: limits.keep_alive,
            timer: None,
            waiting_since: None,
            stalled: None,
            flushed: true,
            waits_for_flush: false,
            written_in: 0,
            probe: None,
            refusal: None,
            closing: None,
            expired_at: None,
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
            let late = ("408 Request Timeout", "the head of the request did not come in time");
            return self.poll_refuse(cx, late);
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Waits for something to do on an HTTP/2 connection, but not for ever. The protocol is asked to
    /// close it first, so that no request is lost that is on its way.
    fn poll_http2(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let now = Instant::now();
            let due = self.http2_due(now);
            if due <= now {
                if self.expired_at.replace(now).is_some() {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                self.peer.expired.store(true, Ordering::Release);
                cx.waker().wake_by_ref();
                continue;
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if timer.deadline() > due || timer.is_elapsed() {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }

    /// Returns when the connection has waited for too long; later than now if it need not wait.
    fn http2_due(&mut self, now: Instant) -> Instant {
        let streams = self.peer.streams();
        self.served |= streams.since.is_some();
        let since = streams.since.or(self.waiting_since).unwrap_or(now);
        match (streams.open, streams.unsent) {
            (open, unsent)
                if let Some(expired_at) = self.expired_at
                    && (open == 0 || open == unsent) =>
            {
                expired_at.max(since) + self.client_read
            }
            (0, _) if self.served => since + self.keep_alive,
            (0, _) => since + self.client_read.min(self.keep_alive),
            (open, unsent) if open == unsent => since + self.client_write,
            // Some wait for the gateway: their own limits end them.
            _ => now + self.keep_alive,
        }
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
        if !self.served && seen.starts_with(PREFACE) {
            self.waiting_since.get_or_insert_with(Instant::now);
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
        let may_be_http2 = !self.served && PREFACE.starts_with(&seen);
        if seen.starts_with(b"PRI ") && !may_be_http2 {
            return Err(("400 Bad Request", "the start of HTTP/2 is not complete"));
        }
        let Some(end) = end.filter(|_| !may_be_http2) else {
            // The protocol keeps a copy of it, too.
            let counted = if seen.len() > UNCOUNTED { seen.len() } else { 0 };
            self.heads.set(counted, HEADS).map_err(|_| {
                ("503 Service Unavailable", "too many requests are under way with half a head")
            })?;
            self.head = Head::Part(seen);
            return Ok(bytes.len());
        };
        self.heads.clear();
        self.waiting_since = None;
        self.served = true;
        self.is_old = is_old(head);
        self.head = after(head).map_err(|wrong| ("400 Bad Request", wrong))?;
        Ok(end + 4 - old)
    }

    /// Answers in place of the service, which never sees the request, and closes the connection.
    fn poll_refuse(
        &mut self,
        cx: &mut Context<'_>,
        (status, message): Wrong,
    ) -> Poll<io::Result<()>> {
        let body = format!(
            "{{\"error\":{{\"message\":\"endstop: {message}\",\"type\":\"endstop_error\"}}}}"
        );
        let response = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        // If the client does not take it, there is nobody to tell.
        let _ = Pin::new(&mut self.stream).poll_write(cx, response.as_bytes());
        let _ = Pin::new(&mut self.stream).poll_flush(cx);
        self.closing = Some(Closing { timer: Box::pin(tokio::time::sleep(LINGER)), discarded: 0 });
        self.poll_closing(cx)
    }

    /// Takes in what still comes, for a moment: a connection that is closed before everything is read
    /// is reset, and the reset can overtake the last answer.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A client that is gone needs no goodbye.
        let _ = Pin::new(&mut self.stream).poll_shutdown(cx);
        let Some(closing) = &mut self.closing else { return Poll::Ready(Ok(())) };
        let mut over = closing.timer.as_mut().poll(cx).is_ready();
        while !over {
            match poll_discard(&mut self.stream, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(0) => over = true,
                Poll::Ready(taken) => {
                    closing.discarded += taken;
                    over = closing.discarded > DISCARDED;
                }
            }
        }
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }

    fn poll_probe(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(error) = self.stream.tcp().take_error()? {
                return Poll::Ready(Err(error));
            }
            self.send_probe(cx)?;
            let Some(probe) = &mut self.probe else { return Poll::Ready(Ok(())) };
            ready!(probe.timer.as_mut().poll(cx));
            probe.looks += 1;
            let pause = LOOKS.get(probe.looks).or(LOOKS.last()).copied().unwrap_or_default();
            probe.timer.as_mut().reset(Instant::now() + pause);
        }
    }

    fn send_probe(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let epoch = self.epoch();
        let fresh = self.probe.as_ref().is_some_and(|probe| probe.sent_in != Some(epoch));
        if !(fresh && self.flushed) {
            return Ok(());
        }
        let bytes: &[u8] = if self.peer.is(Phase::Waiting) && self.is_old {
            // HTTP/1.0 has no interim responses.
            return Ok(());
        } else if self.peer.is(Phase::Waiting) {
            b"HTTP/1.1 102 Processing\r\n\r\n"
        } else if self.peer.is(Phase::Chunked) && self.written_in == epoch {
            b"0"
        } else {
            return Ok(());
        };
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(written)) if written == bytes.len() => {
                if let Some(probe) = &mut self.probe {
                    probe.sent_in = Some(epoch);
                }
                match Pin::new(&mut self.stream).poll_flush(cx) {
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
                }
            }
            // The rest of it could not be told from the response.
            Poll::Ready(Ok(_)) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Passes on the result of a write, and ends the connection if the client takes in nothing.
    #[inline]
    fn poll_written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.client_write;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(stalled.as_mut().poll(cx));
        // Otherwise the kernel goes on trying to send what the client does not take in.
        self.peer.reset();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Reads bytes that nobody wants, and returns their number: 0 at the end.
fn poll_discard(stream: &mut (impl AsyncRead + Unpin), cx: &mut Context<'_>) -> Poll<usize> {
    let mut space = [0; 4096];
    let mut buffer = ReadBuf::new(&mut space);
    let read = ready!(Pin::new(stream).poll_read(cx, &mut buffer));
    Poll::Ready(read.map_or(0, |()| buffer.filled().len()))
}

/// Whether a line ends without a carriage return, from here on.
fn has_bare_line_end(head: &[u8], from: usize) -> bool {
    let ends = memchr::memchr_iter(b'\n', head.get(from..).unwrap_or_default());
    let before = |at: usize| (from + at).checked_sub(1).and_then(|at| head.get(at));
    ends.into_iter().any(|at| before(at) != Some(&b'\r'))
}

/// Returns the lines of a head.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(head);
    std::iter::from_fn(move || {
        let all = rest?;
        let end = memchr::memchr(b'\n', all);
        rest = end.and_then(|end| all.get(end + 1..));
        all.get(..end.unwrap_or(all.len()))
    })
}

/// Returns what follows this head, or why two readers could disagree about the request.
fn after(head: &[u8]) -> Result<Head, &'static str> {
    let lines = lines(head).map(without_cr).skip(1);
    let old = is_old(head);
    let (mut lengths, mut codings, mut hosts, mut length) = (0, 0, 0, Some(0));
    for line in lines {
        let end = memchr::memchr(b':', line).unwrap_or(line.len());
        let name = line.get(..end).unwrap_or_default();
        let value = || line.get(end + 1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            lengths += 1;
            length = decimal(value());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            codings += 1;
            if old || !value().eq_ignore_ascii_case(b"chunked") {
                return Err("the transfer coding of the request is not supported");
            }
        } else if name.eq_ignore_ascii_case(b"host") {
            hosts += 1;
        } else if is_framing(name) {
            return Err("a header looks like one that ends the request, but has an underscore");
        } else if name.last().is_some_and(|last| matches!(last, b' ' | b'\t')) {
            return Err("a header's name ends in white space");
        }
    }
    match (hosts, old) {
        (1, _) | (0, true) => {}
        (0, false) => return Err("the request has no Host header"),
        _ => return Err("the request has several Host headers"),
    }
    match (lengths, codings, length) {
        (0 | 1, 0, Some(0)) => Ok(Head::None),
        (0 | 1, 0, Some(length)) => Ok(Head::Body(length)),
        (1, 0, None) => Err("the length of the request is not a number"),
        // After a coding, the connection closes.
        (0, 1, _) => Ok(Head::Last),
        (_, 0, _) => Err("the request has several lengths"),
        (0, _, _) => Err("the request has several transfer codings"),
        _ => Err("the request has a length and a transfer coding"),
    }
}

/// Reports whether a head is of HTTP/1.0.
fn is_old(head: &[u8]) -> bool {
    let end = memchr::memchr(b'\n', head).unwrap_or(head.len());
    head.get(..end).is_some_and(|line| without_cr(line).ends_with(b" HTTP/1.0"))
}

/// Returns a line without the carriage return of its end.
fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns a number of digits alone: a sign, as Rust accepts, is not one.
fn decimal(text: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(text).ok().filter(|text| text.bytes().all(|c| c.is_ascii_digit()));
    digits?.parse().ok()
}

/// Reports whether servers that take underscores for hyphens read the end of a request from this
/// header.
pub(crate) fn is_framing(name: &[u8]) -> bool {
    let is = |known: &[u8]| {
        let same = |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b) || (*a == b'_' && *b == b'-');
        name.len() == known.len() && name.iter().zip(known).all(same)
    };
    is(b"content-length") || is(b"transfer-encoding")
}

impl<S: Transport> AsyncRead for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.closing.is_some() {
            return this.poll_closing(cx);
        }
        let idle = this.peer.is(Phase::Idle);
        if idle && !this.flushed && !matches!(this.head, Head::Http2) {
            // The response is with the protocol, but not with the client yet.
            this.waits_for_flush = true;
            this.waiting_since = None;
            return Poll::Pending;
        }
        if this.probe.is_some() {
            this.peer.waker.register(cx.waker());
            return if idle { Poll::Ready(Ok(())) } else { this.poll_probe(cx) };
        }
        if idle && this.peer.was_last() {
            return Poll::Ready(Ok(()));
        }
        if let Some(refusal) = this.refusal {
            // The last bytes of the response before it have left.
            if idle {
                return this.poll_refuse(cx, refusal);
            }
            this.peer.waker.register(cx.waker());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        match read {
            Poll::Pending if matches!(this.head, Head::Http2) => this.poll_http2(cx),
            Poll::Pending if idle => this.poll_waiting(cx),
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

impl<S: Transport> AsyncWrite for ClientIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.flushed = false;
        self.written_in = self.epoch();
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.poll_written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.flushed = false;
        self.written_in = self.epoch();
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.poll_written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        ready!(self.poll_written(cx, flushed))?;
        self.flushed = true;
        if std::mem::take(&mut self.waits_for_flush) {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        let shut = ready!(self.poll_written(cx, shut));
        // What has come is not read any more. Unread, it would make the close a reset.
        let mut left = DISCARDED;
        while let Poll::Ready(taken) = poll_discard(&mut self.stream, cx)
            && taken > 0
            && left > 0
        {
            left = left.saturating_sub(taken);
        }
        Poll::Ready(shut)
    }
}

impl<S: Transport> Drop for ClientIo<S> {
    fn drop(&mut self) {
        if self.peer.reset.load(Ordering::Acquire) {
            // Closing then sends a reset; where that fails the connection closes all the same.
            let _ = socket2::SockRef::from(self.stream.tcp()).set_linger(Some(Duration::ZERO));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_can_be_read_in_two_ways() {
        for headers in [
            "Host: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "Host: x\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
            "Host: x\r\nContent-Length: 5\r\nContent-Length: 5",
            "Host: x\r\nContent-Length: +5",
            "Host: x\r\nContent-Length: ",
            "Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "Host: x\r\nTransfer-Encoding: gzip, chunked",
            "Host: x\r\nTransfer-Encoding : chunked",
            "Host: x\r\ntransfer_encoding: chunked",
            "Host: x\r\nContent_Length: 5",
            "Host: x\r\nHost: x",
            "X-Host: x",
        ] {
            let head = format!("POST / HTTP/1.1\r\n{headers}");
            assert!(after(head.as_bytes()).is_err(), "{head}");
        }
        assert!(after(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked").is_err());
        assert!(after(b"POST / HTTP/1.0\r\nHost: x\r\nHost: y").is_err());
        assert!(has_bare_line_end(b"POST / HTTP/1.1\nHost: x", 0));
        assert!(!has_bare_line_end(b"POST / HTTP/1.1\r\nHost: x", 0));
        assert!(!has_bare_line_end(b"POST / HTTP/1.1\r\n", 16));
    }

    #[tokio::test]
    async fn half_heads_have_a_bound_together() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let memory = Arc::new(crate::memory::Memory::default());
        for (others, size, want) in [
            (0, 5000, ""),
            (HEADS, 5000, "HTTP/1.1 503 "),
            // Clients whose heads come in pieces are served, whatever others do.
            (HEADS, PREFACE.len(), ""),
            (HEADS, 1000, ""),
        ] {
            let half = vec![b'x'; size];
            let mut others_held = memory.begin();
            others_held.set(others, usize::MAX).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let stream = listener.accept().await.unwrap().0;
            let limits = NetworkLimits::default();
            let mut io = ClientIo::new(stream, Arc::default(), &limits, memory.begin());
            client.write_all(&half).await.unwrap();
            let mut space = vec![0; 8192];
            let reading = tokio::time::timeout(Duration::from_secs(2), async {
                while io.read(&mut space).await.is_ok_and(|read| read > 0) {}
            });
            let _ = reading.await;
            drop(io);
            let mut told = String::new();
            client.read_to_string(&mut told).await.unwrap();
            assert!(told.starts_with(want) && told.is_empty() == want.is_empty(), "{told}");
        }
        assert_eq!(memory.begin().set(1, 1), Ok(()), "everything was given back");
    }

    #[test]
    fn what_follows_a_head() {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX-Content-Length: 6";
        assert!(matches!(after(head.as_bytes()), Ok(Head::Body(5))));
        let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked";
        assert!(matches!(after(head.as_bytes()), Ok(Head::Last)));
        let head = "GET / HTTP/1.1\r\nHost: x";
        assert!(matches!(after(head.as_bytes()), Ok(Head::None)));
        assert!(matches!(after(b"GET / HTTP/1.0"), Ok(Head::None)));
    }
}
