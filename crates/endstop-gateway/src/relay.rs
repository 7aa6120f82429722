//! The body of a streamed response on its way to the client.
//!
//! It reads what the upstream has ready, passes on what its guard lets go in one piece, never waits
//! for more, and ends in exactly one way. Nothing is read that the client has not room for.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use endstop::dialect::Framing;
use endstop::{Timer, TransportEnd};
use hyper::body::{Body, Frame, Incoming};
use tokio::time::{Instant, Sleep};

use crate::config::Mode;
use crate::connect::close_of;
use crate::decode::Decoder;
use crate::ending_log::GuardAction;
use crate::exchange::Exchange;
use crate::failure::is_doubtful;
use crate::guard::{Guard, GuardEnd, Next};
use crate::peer::Peer;

/// The most that is passed on in one piece.
const PIECE: usize = 64 << 10;
/// Pieces that follow each other faster than this are a burst.
const NEAR: Duration = Duration::from_micros(100);
/// What is gathered leaves after this, however much more is near.
const HOLD: Duration = Duration::from_micros(500);
/// The error's frame has left by then; aborting at once would drop it.
pub(crate) const LEAVE: Duration = Duration::from_millis(10);

/// The connection is given up on purpose, so that the client sees that the response is not whole.
#[derive(Debug, thiserror::Error)]
#[error("the response was aborted, because it is not whole")]
pub struct Abort;

/// Time limits of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    /// Between two bytes.
    pub idle: Duration,
    /// For all of it.
    pub total: Duration,
    /// For what waits for its proof.
    pub proof: Duration,
    /// A comment after so much silence.
    pub heartbeat: Option<Duration>,
}

impl Timers {
    /// When to look at the clock first.
    fn shortest(&self) -> Duration {
        let limit = self.idle.min(self.total);
        self.heartbeat.map_or(limit, |heartbeat| limit.min(heartbeat))
    }
}

/// A streamed response, shared by its body and by whoever must be able to end it.
#[derive(Debug)]
pub struct Stream(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    upstream: Option<Incoming>,
    guard: Option<Guard>,
    decoding: Decoding,
    /// What was read before, to find out what it is.
    first: Bytes,
    turn: Exchange,
    timers: Timers,
    began: Instant,
    last_byte: Instant,
    last_sent: Instant,
    /// Between the last two pieces.
    last_gap: Duration,
    /// What may leave, while more is near.
    gathered: Gathered,
    gathering_since: Option<Instant>,
    /// When what waits began to wait.
    waits_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    state: State,
    tell_in_stream: bool,
    /// To be reset where HTTP has no other way to say that a response is not whole.
    reset: Option<Arc<Peer>>,
    waker: Option<Waker>,
    /// Whose turn it is: the upstream's to send, or the client's to take.
    client_since: Option<Instant>,
    closing: bool,
    trailers: Option<hyper::HeaderMap>,
}

/// Whether what comes must be decoded to be read.
#[derive(Debug)]
enum Decoding {
    /// The first bytes have not come, and this is what the head says.
    Unknown(String),
    /// It need not.
    Plain,
    /// It must.
    Coded(Decoder),
}

#[derive(Debug)]
enum State {
    Flowing,
    /// This is left to say; then a clean end, or none.
    Last {
        bytes: Bytes,
        clean: bool,
    },
    /// The error is on its way out, and the clock runs or not yet.
    Leaving {
        timed: bool,
    },
    Ended,
    Aborted,
}

impl Stream {
    /// A stream from this upstream's body.
    #[must_use]
    pub fn new(upstream: Incoming, guard: Guard, turn: Exchange, timers: Timers) -> Self {
        let now = Instant::now();
        Self(Mutex::new(Inner {
            upstream: Some(upstream),
            guard: Some(guard),
            decoding: Decoding::Unknown(String::new()),
            first: Bytes::new(),
            turn,
            timers,
            began: now,
            last_byte: now,
            last_sent: now,
            last_gap: Duration::MAX,
            gathered: Gathered::default(),
            gathering_since: None,
            waits_since: None,
            timer: Box::pin(tokio::time::sleep(timers.shortest())),
            state: State::Flowing,
            tell_in_stream: false,
            reset: None,
            waker: None,
            client_since: None,
            closing: false,
            trailers: None,
        }))
    }

    /// This has been read already; the rest is encoded like this.
    #[must_use]
    pub fn starting(self, first: Bytes, encoding: String) -> Self {
        let mut inner = self.lock();
        inner.first = first;
        inner.decoding = Decoding::Unknown(encoding);
        drop(inner);
        self
    }

    /// The ending is told in the stream, as a comment before its end.
    #[must_use]
    pub fn telling(self, tell: bool) -> Self {
        self.lock().tell_in_stream = tell;
        self
    }

    /// A failure resets this connection.
    #[must_use]
    pub fn resetting(self, peer: Option<Arc<Peer>>) -> Self {
        self.lock().reset = peer;
        self
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the stream if its client has not taken anything in for so long.
    pub fn check_client(&self, limit: Duration) {
        let mut inner = self.lock();
        if inner.client_since.is_some_and(|since| since.elapsed() >= limit) {
            inner.give_up(TransportEnd::TimedOut(Timer::ClientWrite));
        }
    }

    /// Ends the stream, because all of them must end.
    pub fn shut_down(&self) {
        let mut inner = self.lock();
        inner.closing = true;
        if let Some(waker) = inner.waker.take() {
            waker.wake();
        }
    }
}

/// The body that hyper sends.
#[derive(Debug)]
pub(crate) struct Relay(Arc<Stream>);

impl Relay {
    /// The body of a stream, and a handle to it for whoever must be able to end it.
    #[must_use]
    pub(crate) fn new(stream: Stream) -> (Self, Weak<Stream>) {
        let stream = Arc::new(stream);
        let handle = Arc::downgrade(&stream);
        (Self(stream), handle)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.lock().give_up(TransportEnd::ClientGone);
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = Abort;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        // A fault of ours must not become a hang: it ends this response and no other.
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| inner.poll(cx)));
        let polled = polled.unwrap_or_else(|_| {
            inner.give_up(TransportEnd::Interrupted);
            Poll::Ready(Some(Err(Abort)))
        });
        inner.client_since = polled.is_ready().then(Instant::now);
        polled
    }
}

impl Inner {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        loop {
            match &mut self.state {
                State::Flowing => {
                    let mut out = std::mem::take(&mut self.gathered);
                    let before = out.length;
                    self.read(cx, &mut out);
                    if out.length > before && self.more_is_near(&out) {
                        self.gathered = out;
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    if out.length == 0 && matches!(self.state, State::Flowing) {
                        self.keep_waker(cx);
                        std::task::ready!(self.timer.as_mut().poll(cx));
                        self.look_at_clock(&mut out);
                    }
                    if out.length > 0 {
                        return Poll::Ready(Some(Ok(self.sent(out.bytes()))));
                    }
                }
                State::Last { bytes, clean } => {
                    let (bytes, clean) = (std::mem::take(bytes), *clean);
                    self.state = if clean { State::Ended } else { State::Leaving { timed: false } };
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(self.sent(bytes))));
                    }
                }
                State::Leaving { timed: false } => {
                    // Whoever is told to wait sends what it has, however late it is by now.
                    self.state = State::Leaving { timed: true };
                    self.timer.as_mut().reset(Instant::now() + LEAVE);
                    if self.timer.as_mut().poll(cx).is_ready() {
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
                State::Leaving { timed: true } => {
                    std::task::ready!(self.timer.as_mut().poll(cx));
                    self.state = State::Aborted;
                }
                State::Ended => {
                    let trailers = self.trailers.take();
                    return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
                }
                State::Aborted => {
                    if let Some(peer) = &self.reset {
                        peer.reset();
                    }
                    return Poll::Ready(Some(Err(Abort)));
                }
            }
        }
    }

    /// Whether to let the upstream's connection run once more before what is gathered leaves: it
    /// hands over one piece at a time, and in a burst the next one is there already. What is gathered
    /// never waits for anything else.
    fn more_is_near(&mut self, out: &Gathered) -> bool {
        let since = *self.gathering_since.get_or_insert(self.last_byte);
        let near = self.last_gap < NEAR
            && out.length < PIECE
            && self.last_byte - since < HOLD
            && matches!(self.state, State::Flowing);
        if !near {
            self.gathering_since = None;
        }
        near
    }

    fn keep_waker(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    fn sent(&mut self, bytes: Bytes) -> Frame<Bytes> {
        // Whoever sees the end finds it in the record, whatever becomes of us.
        if self.turn.is_unnoted()
            && let Some(ending) = self.guard.as_ref().and_then(Guard::so_far)
        {
            self.turn.note(&ending);
        }
        self.turn.delivered(bytes.len());
        self.gathering_since = None;
        if self.timers.heartbeat.is_some() {
            self.last_sent = Instant::now();
        }
        Frame::data(bytes)
    }

    /// Reads what is ready.
    fn read(&mut self, cx: &mut Context<'_>, out: &mut Gathered) {
        while out.length < PIECE && matches!(self.state, State::Flowing) {
            if self.closing {
                self.end(TransportEnd::ShutDown, out);
                return;
            }
            if !self.first.is_empty() {
                let first = std::mem::take(&mut self.first);
                self.push(&first, out);
                continue;
            }
            let Some(upstream) = &mut self.upstream else { return };
            match Pin::new(upstream).poll_frame(cx) {
                Poll::Pending => return,
                Poll::Ready(None) => self.end(TransportEnd::Eof, out),
                Poll::Ready(Some(Err(error))) => {
                    self.end(close_of(&error).unwrap_or(TransportEnd::Reset), out);
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => self.push(&bytes, out),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    fn push(&mut self, bytes: &Bytes, out: &mut Gathered) {
        let now = Instant::now();
        self.last_gap = now - self.last_byte;
        self.last_byte = now;
        let Some(guard) = &mut self.guard else { return };
        if let Decoding::Unknown(encoding) = &self.decoding
            && !bytes.is_empty()
        {
            self.decoding = match Decoder::new(encoding, bytes) {
                None => Decoding::Plain,
                Some(decoder) => {
                    guard.set_opaque();
                    Decoding::Coded(decoder)
                }
            };
        }
        let mut pass = |bytes: Bytes| out.push(bytes);
        let next = match &mut self.decoding {
            Decoding::Plain | Decoding::Unknown(_) => guard.push(bytes, None, &mut pass),
            Decoding::Coded(decoder) => {
                let mut copy = Vec::new();
                decoder.push(bytes, |decoded| copy.extend_from_slice(decoded));
                guard.push(bytes, Some(&copy), &mut pass)
            }
        };
        self.follow(next, out);
    }

    fn follow(&mut self, next: Next, out: &mut Gathered) {
        match next {
            Next::Go => self.waits_since = None,
            Next::Wait => {
                let since = *self.waits_since.get_or_insert_with(Instant::now);
                let due = since + self.timers.proof;
                if self.timer.deadline() > due {
                    self.timer.as_mut().reset(due);
                }
            }
            // Nothing that could follow makes it a good end.
            Next::Fail => {
                if let Some(guard) = self.guard.take() {
                    self.close(guard.fail(), TransportEnd::Eof, out);
                }
            }
        }
    }

    /// A time has come: for what is it?
    fn look_at_clock(&mut self, out: &mut Gathered) {
        let now = Instant::now();
        if now >= self.began + self.timers.total {
            return self.end(TransportEnd::TimedOut(Timer::Total), out);
        }
        if now >= self.last_byte + self.timers.idle {
            return self.end(TransportEnd::TimedOut(Timer::Idle), out);
        }
        if self.waits_since.is_some_and(|since| now >= since + self.timers.proof) {
            self.waits_since = None;
            let waited =
                self.guard.as_mut().map(|guard| guard.waited(&mut |bytes| out.push(bytes)));
            self.follow(waited.unwrap_or(Next::Go), out);
        }
        let quiet = self.guard.as_ref().is_some_and(Guard::is_at_boundary);
        if quiet && self.heartbeat_at().is_some_and(|due| now >= due) {
            out.push(Bytes::from_static(b": endstop\n\n"));
        }
        let mut next = (self.began + self.timers.total).min(self.last_byte + self.timers.idle);
        if let Some(since) = self.waits_since {
            next = next.min(since + self.timers.proof);
        }
        // Also where none can be sent now: the next frame may make room for one.
        if let Some(heartbeat) = self.timers.heartbeat {
            next =
                next.min(self.heartbeat_at().filter(|due| *due > now).unwrap_or(now + heartbeat));
        }
        self.timer.as_mut().reset(next);
    }

    fn heartbeat_at(&self) -> Option<Instant> {
        self.timers.heartbeat.map(|pause| self.last_sent.max(self.last_byte) + pause)
    }

    fn end(&mut self, close: TransportEnd, out: &mut Gathered) {
        if let Some(guard) = self.guard.take() {
            self.close(guard.finish(close), close, out);
        }
    }

    fn close(&mut self, finish: GuardEnd, close: TransportEnd, out: &mut Gathered) {
        self.upstream = None;
        let GuardEnd { rest, ending, failure, frame, mode, framing } = finish;
        out.push(rest);
        let action = match failure {
            Some(_) => GuardAction::Failed,
            None if is_doubtful(&ending, self.turn.strictness()) && !ending.reason.is_success() => {
                GuardAction::Warned
            }
            None => GuardAction::Passed,
        };
        // Untouched is untouched: a broken connection is passed on as one.
        let clean = failure.is_none() && (close == TransportEnd::Eof || mode == Mode::Guard);
        let error_shape =
            clean && self.tell_in_stream && mode == Mode::Guard && framing == Framing::Sse;
        let comment = error_shape.then(|| self.turn.comment(&ending, action));
        let bytes = frame.map(Bytes::from).or(comment).unwrap_or_default();
        // The record is told now, and what is about to leave belongs to it.
        self.turn.delivered(out.length + bytes.len());
        self.turn.end(ending, action);
        self.state = State::Last { bytes, clean };
    }

    /// Nobody is left to send to.
    fn give_up(&mut self, close: TransportEnd) {
        self.upstream = None;
        self.state = State::Aborted;
        if let Some(guard) = self.guard.take() {
            let ending = guard.finish(close).ending;
            self.turn.end(ending, GuardAction::Passed);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Pieces on their way out, joined only if there are several.
#[derive(Debug, Default)]
struct Gathered {
    first: Bytes,
    all: BytesMut,
    length: usize,
}

impl Gathered {
    fn push(&mut self, bytes: Bytes) {
        self.length += bytes.len();
        if self.length == bytes.len() {
            self.first = bytes;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(self.length.max(4096));
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&bytes);
    }

    fn bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}
