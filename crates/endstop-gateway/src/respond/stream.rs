//! The body of a streamed response on its way to the client.
//!
//! It reads what the upstream has ready, passes on what its guard lets go, never waits for more, and
//! ends in exactly one way. It reads nothing that the client has no room for.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use endstop::frame::Broken;
use endstop::{Timer, TransportEnd};
use hyper::body::{Body, Frame};
use hyper::header::{self, HeaderMap};
use tokio::time::{Instant, Sleep};

use super::Rendering;
use super::decode::{Decoded, Decoder};
use super::guard::{Guard, GuardEnd, Next};
use crate::client::body::Pieces;
use crate::client::connection::Peer;
use crate::client::headers::{encodings, text};
use crate::config::{Config, Mode};
use crate::disposition::Disposition;
use crate::exchange::Exchange;
use crate::memory::Reserved;
use crate::upstream::{Part, ResponseBody};
use crate::watch::GuardAction;

/// The most that is passed on in one piece.
const PIECE: usize = 64 << 10;
/// The most slices that are decoded before other tasks run.
const SLICES: u32 = 4;
/// Size from which an event is read aside: the time for it grows with its size.
const LARGE: usize = 256 << 10;
/// Pieces that follow each other faster than this are a burst.
const NEAR: Duration = Duration::from_micros(100);
/// Gathered bytes leave after this time, however much more is near.
const HOLD: Duration = Duration::from_micros(500);
/// Time for a client to read an error frame and leave. After an abort, some drop what they have not read,
/// and take the response for a broken connection that is worth asking again.
pub(crate) const LEAVE: Duration = Duration::from_millis(500);

/// The connection is aborted on purpose, so that the client sees that the response is incomplete.
#[derive(Debug, thiserror::Error)]
#[error("the response was aborted, because it is incomplete")]
pub struct Abort;

/// Time limits of a stream.
#[derive(Clone, Copy, Debug)]
struct Timers {
    /// Between two bytes of the upstream.
    idle: Duration,
    /// For an end marker after the finish reason.
    proof: Duration,
    /// For held frames, until something is sent to keep the client waiting.
    keep_waiting: Duration,
    /// For silence, until a comment is sent.
    heartbeat: Option<Duration>,
}

impl Timers {
    fn new(config: &Config, guards: bool) -> Self {
        let limits = &config.limits;
        Self {
            idle: limits.idle,
            proof: limits.proof,
            keep_waiting: limits.keep_waiting,
            heartbeat: config.heartbeat.filter(|_| guards),
        }
    }

    /// Returns the time until the first look at the clock.
    fn shortest(&self) -> Duration {
        self.heartbeat.map_or(self.idle, |heartbeat| self.idle.min(heartbeat))
    }
}

/// A streamed response, shared by its body and by those who must be able to end it.
#[derive(Debug)]
pub struct Stream(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    upstream: Option<ResponseBody>,
    guard: Option<Guard>,
    decoding: Decoding,
    /// Bytes that were read before, to find the form.
    first: Bytes,
    exchange: Box<Exchange>,
    timers: Timers,
    /// Time by which the response must have ended.
    deadline: Instant,
    last_byte: Instant,
    last_sent: Instant,
    /// Time between the last two pieces.
    last_gap: Duration,
    /// Bytes that may leave, while more are near.
    gathered: Pieces,
    gathering_since: Option<Instant>,
    /// Start of the wait for an end marker.
    waits_since: Option<Instant>,
    /// Start of the time in which frames are held, or the last keep-alive.
    held_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    state: State,
    /// Counts the bytes that the guard holds.
    memory: Reserved,
    tell: bool,
    reset: Option<Arc<Peer>>,
    waker: Option<Waker>,
    /// Time at which the client was given something; `None` while the upstream has to send.
    client_since: Option<Instant>,
    closing: bool,
    trailers: Option<HeaderMap>,
}

/// Whether the bytes must be decoded to be read.
#[derive(Debug)]
enum Decoding {
    /// The first bytes have not come; the head names this encoding.
    Unknown(String),
    /// No.
    Plain,
    /// Yes.
    Coded(Box<Coded>),
    /// They cannot be decoded any further.
    Stopped,
}

/// Compressed bytes, and how far they are decoded.
#[derive(Debug)]
struct Coded {
    decoder: Decoder,
    /// The piece at hand; empty if there is none.
    piece: Bytes,
    /// The part of it that is left to decode.
    rest: Bytes,
}

#[derive(Debug)]
enum State {
    Flowing,
    /// These bytes are left to send, and then a clean end or an abort.
    Last {
        bytes: Bytes,
        clean: bool,
    },
    /// The error is on its way out. The clock runs or not yet.
    Leaving {
        timed: bool,
    },
    Ended,
    Aborted,
}

impl Stream {
    /// Creates the stream of a response, and returns the headers that go with it.
    #[must_use]
    pub(super) fn new(
        exchange: Box<Exchange>,
        mut headers: HeaderMap,
        upstream: ResponseBody,
        first: Bytes,
        rendering: Rendering,
    ) -> (HeaderMap, Self) {
        let Rendering { tell, is_extra, reset } = rendering;
        let settings = exchange.settings().clone();
        let watcher = exchange
            .watcher(text(&headers, &header::CONTENT_TYPE), settings.config.limits.event_bytes);
        let guard = Guard::new(watcher, exchange.wire().profile, exchange.terms())
            .capped(exchange.info().cap.is_some())
            .without(is_extra);
        let guards = exchange.terms().mode == Mode::Guard;
        let encoding = encodings(&headers);
        if guards {
            // An error may be added, and keep-alives.
            headers.remove(header::CONTENT_LENGTH);
        }
        let timers = Timers::new(&settings.config, guards);
        let memory = exchange.shared().memory.begin();
        let now = Instant::now();
        let first_look = (now + timers.shortest()).min(exchange.deadline());
        let timer = Box::pin(tokio::time::sleep_until(first_look));
        let stream = Self(Mutex::new(Inner {
            upstream: Some(upstream),
            guard: Some(guard),
            decoding: Decoding::Unknown(encoding),
            first,
            deadline: exchange.deadline(),
            exchange,
            timers,
            last_byte: now,
            last_sent: now,
            last_gap: Duration::MAX,
            gathered: Pieces::default(),
            gathering_since: None,
            waits_since: None,
            held_since: None,
            timer,
            state: State::Flowing,
            memory,
            tell: tell && guards,
            reset,
            waker: None,
            client_since: None,
            closing: false,
            trailers: None,
        }));
        (headers, stream)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the stream if its client has not read anything for this time.
    pub(crate) fn check_client(&self, limit: Duration) {
        // A stream that is being read has a client that wants more.
        let mut inner = match self.0.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if inner.client_since.is_some_and(|since| since.elapsed() >= limit) {
            inner.give_up(TransportEnd::TimedOut(Timer::ClientWrite));
        }
    }

    /// Ends the stream, because the gateway stops.
    pub(crate) fn shut_down(&self) {
        let mut inner = self.lock();
        inner.closing = true;
        if let Some(waker) = inner.waker.take() {
            waker.wake();
        }
    }
}

/// The body that hyper sends.
#[derive(Debug)]
pub(crate) struct StreamBody(Arc<Stream>);

impl StreamBody {
    /// Returns the body of a stream, and a handle with which the stream can be ended.
    #[must_use]
    pub(crate) fn new(stream: Stream) -> (Self, Weak<Stream>) {
        let stream = Arc::new(stream);
        let handle = Arc::downgrade(&stream);
        (Self(stream), handle)
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        // The deadline of the socket may come before that of the stream: the client stalled all the same.
        let limit = inner.exchange.settings().config.limits.client_write;
        let stalled = inner.client_since.is_some_and(|since| since.elapsed() >= limit);
        let timed_out = TransportEnd::TimedOut(Timer::ClientWrite);
        inner.give_up(if stalled { timed_out } else { TransportEnd::ClientGone });
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Abort;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Abort>>> {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        // A panic must not become a hang: it ends this response and no other.
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| inner.poll(cx)));
        let polled = polled.unwrap_or_else(|_| {
            inner.interrupt();
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
                    let before = out.len();
                    self.read(cx, &mut out);
                    if out.len() > before && self.more_is_near(&out) {
                        self.gathered = out;
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    if out.len() == 0 && matches!(self.state, State::Flowing) {
                        self.keep_waker(cx);
                        std::task::ready!(self.timer.as_mut().poll(cx));
                        self.look_at_clock(&mut out);
                    }
                    if out.len() > 0 {
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
                    // hyper sends what it has when it is told to wait, however late it is by now.
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

    /// Reports whether to let the upstream's connection run once more before the gathered bytes
    /// leave: it hands over one piece at a time, and in a burst the next one is there already.
    /// Gathered bytes never wait for anything else.
    fn more_is_near(&mut self, out: &Pieces) -> bool {
        let since = *self.gathering_since.get_or_insert(self.last_byte);
        let near = self.last_gap < NEAR
            && out.len() < PIECE
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
        // An end that a client sees is in the record, even if the process ends now.
        if self.exchange.is_unnoted()
            && let Some(ending) = self.guard.as_ref().and_then(Guard::so_far)
        {
            self.exchange.note(&ending);
        }
        self.exchange.delivered(bytes.len());
        self.gathering_since = None;
        if self.timers.heartbeat.is_some() {
            self.last_sent = Instant::now();
        }
        Frame::data(bytes)
    }

    /// Reads what is ready.
    fn read(&mut self, cx: &mut Context<'_>, out: &mut Pieces) {
        let mut slices = 0;
        while out.len() < PIECE && matches!(self.state, State::Flowing) {
            if self.closing {
                self.end(TransportEnd::ShutDown, out);
                return;
            }
            if matches!(self.decoding, Decoding::Coded(_)) {
                if slices == SLICES {
                    // A little that is compressed can be a lot to read: others come first.
                    cx.waker().wake_by_ref();
                    return;
                }
                slices += 1;
            }
            if self.is_decoding() {
                self.decode(out);
                continue;
            }
            if !self.first.is_empty() {
                let first = std::mem::take(&mut self.first);
                self.push(&first, out);
                continue;
            }
            let Some(upstream) = &mut self.upstream else { return };
            match upstream.poll_part(cx) {
                Poll::Pending => return,
                Poll::Ready(Part::End(close)) => self.end(close, out),
                Poll::Ready(Part::Data(bytes)) => self.push(&bytes, out),
                Poll::Ready(Part::Trailers(trailers)) => self.trailers = Some(trailers),
            }
        }
    }

    fn push(&mut self, bytes: &Bytes, out: &mut Pieces) {
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
                    let (piece, rest) = (Bytes::new(), Bytes::new());
                    Decoding::Coded(Box::new(Coded { decoder, piece, rest }))
                }
            };
        }
        match &mut self.decoding {
            Decoding::Plain | Decoding::Unknown(_) | Decoding::Stopped => self.hand_on(bytes, out),
            Decoding::Coded(coded) => {
                (coded.piece, coded.rest) = (bytes.clone(), bytes.clone());
                self.decode(out);
            }
        }
    }

    /// Gives a piece to the guard.
    fn hand_on(&mut self, bytes: &Bytes, out: &mut Pieces) {
        let Some(guard) = &mut self.guard else { return };
        let size = guard.unfinished_bytes() + bytes.len();
        let read = || aside(size, || guard.push(bytes, &mut |bytes| out.push(bytes)));
        let mut next = self.exchange.timed(read);
        let decoder = match &self.decoding {
            Decoding::Coded(coded) => coded.decoder.memory(),
            Decoding::Unknown(_) | Decoding::Plain | Decoding::Stopped => 0,
        };
        let used = guard.held_bytes() + guard.unfinished_bytes() + decoder;
        if self.memory.is_behind(used) && next != Next::Fail {
            let limit = self.exchange.settings().config.limits.request_memory;
            let full = self.memory.follow(used, limit).is_err();
            if full && self.exchange.terms().mode == Mode::Observe {
                // It passes unread.
                guard.stop_reading(Broken::Oversize);
                self.decoding = Decoding::Stopped;
                self.memory.clear();
            } else if full {
                guard.set_out_of_memory();
                next = Next::Fail;
            }
        }
        self.follow(next, out);
    }

    fn is_decoding(&self) -> bool {
        matches!(&self.decoding, Decoding::Coded(coded) if !coded.piece.is_empty())
    }

    /// Decodes a slice of the piece at hand, and hands the piece on when all of it is read.
    fn decode(&mut self, out: &mut Pieces) {
        let (Decoding::Coded(coded), Some(guard)) = (&mut self.decoding, &mut self.guard) else {
            return;
        };
        let takes_long = coded.decoder.takes_long();
        let size = if takes_long { usize::MAX } else { guard.unfinished_bytes() };
        let decoded =
            aside(size, || coded.decoder.decode(&mut coded.rest, |copy| guard.read_copy(copy)));
        match decoded {
            Decoded::Part if !guard.is_broken() => return,
            Decoded::Part | Decoded::All => {}
            Decoded::Corrupt => guard.stop_reading(Broken::Corrupt),
            Decoded::TooMuch => guard.stop_reading(Broken::Oversize),
        }
        let piece = std::mem::take(&mut coded.piece);
        if guard.is_broken() {
            self.decoding = Decoding::Stopped;
        }
        self.hand_on(&piece, out);
    }

    fn follow(&mut self, next: Next, out: &mut Pieces) {
        let holds = self.guard.as_ref().is_some_and(Guard::is_holding);
        self.held_since = self.held_since.or(Some(self.last_byte)).filter(|_| holds);
        if let Some(since) = self.held_since {
            self.wake_by(since + self.timers.keep_waiting);
        }
        match next {
            Next::Go => self.waits_since = None,
            Next::Wait => {
                let since = *self.waits_since.get_or_insert_with(Instant::now);
                self.wake_by(since + self.timers.proof);
            }
            // Nothing that could follow makes it a good end.
            Next::Fail => {
                if let Some(guard) = self.guard.take() {
                    self.close(guard.fail(), out);
                }
            }
        }
    }

    fn wake_by(&mut self, due: Instant) {
        if self.timer.deadline() > due {
            self.timer.as_mut().reset(due);
        }
    }

    /// Finds out what a time was for, and sets the next.
    fn look_at_clock(&mut self, out: &mut Pieces) {
        let now = Instant::now();
        if now >= self.deadline {
            return self.end(TransportEnd::TimedOut(Timer::Total), out);
        }
        if now >= self.last_byte + self.timers.idle {
            return self.end(TransportEnd::TimedOut(Timer::Idle), out);
        }
        if self.waits_since.is_some_and(|since| now >= since + self.timers.proof) {
            self.waits_since = None;
            let guard = self.guard.as_mut();
            let waited = guard.map(|guard| guard.waited(&mut |bytes| out.push(bytes)));
            self.follow(waited.unwrap_or(Next::Go), out);
        }
        if self.held_since.is_some_and(|since| now >= since + self.timers.keep_waiting) {
            self.held_since = Some(now);
            out.push(self.guard.as_mut().and_then(Guard::keep_alive).unwrap_or_default());
        }
        let quiet = self.guard.as_ref().is_some_and(Guard::takes_comment_now);
        if quiet && self.heartbeat_at().is_some_and(|due| now >= due) {
            out.push(Bytes::from_static(b": endstop\n\n"));
        }
        let next = self.next_look(now);
        self.timer.as_mut().reset(next);
    }

    fn next_look(&self, now: Instant) -> Instant {
        let mut next = self.deadline.min(self.last_byte + self.timers.idle);
        if let Some(since) = self.waits_since {
            next = next.min(since + self.timers.proof);
        }
        if let Some(since) = self.held_since {
            next = next.min(since + self.timers.keep_waiting);
        }
        // Also if none can be sent now: the next frame may make room for one.
        if let Some(heartbeat) = self.timers.heartbeat {
            let due = self.heartbeat_at().filter(|due| *due > now);
            next = next.min(due.unwrap_or(now + heartbeat));
        }
        next
    }

    fn heartbeat_at(&self) -> Option<Instant> {
        self.timers.heartbeat.map(|pause| self.last_sent.max(self.last_byte) + pause)
    }

    fn end(&mut self, close: TransportEnd, out: &mut Pieces) {
        if let Some(guard) = self.guard.take() {
            let end = aside(guard.unread_bytes(), || guard.finish(close));
            self.close(end, out);
        }
    }

    fn close(&mut self, end: GuardEnd, out: &mut Pieces) {
        self.upstream = None;
        let GuardEnd { rest, ending, disposition, frame, clean, takes_comments } = end;
        out.push(rest);
        let action = match disposition {
            Disposition::Pass => GuardAction::Passed,
            Disposition::Warn => GuardAction::Warned,
            Disposition::Status(_) | Disposition::Fail(_) => GuardAction::Failed,
        };
        let tells = clean && frame.is_none() && self.tell && takes_comments;
        let comment = tells.then(|| self.exchange.comment(&ending, action));
        let bytes = frame.map(Bytes::from).or(comment).unwrap_or_default();
        // The ending is reported now, and the bytes that are about to leave belong to it.
        self.exchange.delivered(out.len() + bytes.len());
        self.exchange.end(ending, action);
        self.state = State::Last { bytes, clean };
    }

    /// Ends a stream at which the gateway itself failed. Its guard may be in any state, and is not asked.
    fn interrupt(&mut self) {
        self.upstream = None;
        self.guard = None;
        self.state = State::Aborted;
        self.exchange.interrupted();
    }

    /// Ends the stream without a client.
    fn give_up(&mut self, close: TransportEnd) {
        self.upstream = None;
        self.state = State::Aborted;
        if let Some(guard) = self.guard.take() {
            let ending = guard.finish(close).ending;
            self.exchange.end(ending, GuardAction::Passed);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Does work on bytes. If they are many, other tasks of the worker go on elsewhere meanwhile.
#[inline]
fn aside<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes > LARGE && has_other_tasks() { tokio::task::block_in_place(work) } else { work() }
}

#[cold]
fn has_other_tasks() -> bool {
    use tokio::runtime::{Handle, RuntimeFlavor};
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    matches!(flavor, Ok(RuntimeFlavor::MultiThread))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use endstop::provider::{self, Provider};
    use endstop::{RequestInfo, Wire};

    use super::*;
    use crate::callers::Caller;
    use crate::config::ToolCalls;
    use crate::disposition::ResponseRules;
    use crate::exchange::Opening;
    use crate::settings::{Settings, Shared};
    use crate::upstream::script::Script;
    use crate::watch::mask::SecretsShown;

    const SECOND: Duration = Duration::from_secs(1);

    /// A response to play.
    struct Played {
        wire: Wire,
        mode: Mode,
        encoding: &'static str,
        is_extra: Option<crate::respond::IsExtra>,
    }

    /// Plays a response through a guarded stream in virtual time, and returns what leaves and when, in
    /// seconds, and whether the end is clean.
    async fn play(wire: Wire, script: Vec<(Duration, String)>) -> (Vec<(u64, String)>, bool) {
        let played = Played { wire, mode: Mode::Guard, encoding: "", is_extra: None };
        let (out, clean, _) = played.play(script).await;
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        (out.into_iter().map(|(at, bytes)| (at, text(bytes))).collect(), clean)
    }

    /// Opens an exchange.
    fn opened(wire: Wire, mode: Mode) -> (Arc<Shared>, Box<Exchange>) {
        let mut config = Config::default();
        config.store = Some("off".to_owned());
        config.log = crate::config::Log::Off;
        let settings = Settings::new(config.clone()).unwrap();
        let shared = Arc::new(Shared::new(Settings::new(config).unwrap()).unwrap());
        let terms =
            ResponseRules { mode, tool_calls: ToolCalls::Gate, proves: true, background: false };
        let opening = Opening {
            id: "id".to_owned(),
            upstream: "test",
            outgoing: crate::upstream::Outgoing::default(),
            wire: Arc::new(wire),
            info: RequestInfo {
                streamed: Some(true),
                tools: Some(Vec::new()),
                ..RequestInfo::default()
            },
            body: Bytes::new(),
            sent: Bytes::new(),
            terms,
            caller: Caller::default(),
            secrets: SecretsShown::default(),
        };
        let exchange = Exchange::new(&shared, &Arc::new(settings), opening);
        (shared, exchange)
    }

    impl Played {
        /// Begins to play.
        fn begin(
            self,
            script: impl IntoIterator<Item = (Duration, impl Into<Bytes>)>,
        ) -> (Arc<Shared>, StreamBody) {
            let (shared, exchange) = opened(self.wire, self.mode);
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, "text/event-stream".parse().unwrap());
            headers.insert(header::CONTENT_ENCODING, self.encoding.parse().unwrap());
            let rendering = Rendering { tell: false, is_extra: self.is_extra, reset: None };
            let upstream = ResponseBody::Scripted(Script::new(script));
            let (_, stream) = Stream::new(exchange, headers, upstream, Bytes::new(), rendering);
            (shared, StreamBody::new(stream).0)
        }

        async fn play(
            self,
            script: impl IntoIterator<Item = (Duration, impl Into<Bytes>)>,
        ) -> (Vec<(u64, Bytes)>, bool, Arc<crate::watch::EndingReport>) {
            let (shared, mut body) = self.begin(script);
            let began = Instant::now();
            let mut out = Vec::new();
            let clean = loop {
                match next(&mut body).await {
                    None => break true,
                    Some(Err(Abort)) => break false,
                    Some(Ok(frame)) => {
                        out.push((began.elapsed().as_secs(), frame.into_data().unwrap()));
                    }
                }
            };
            drop(body);
            let told = shared.watch.get("id").unwrap();
            (out, clean, told)
        }
    }

    async fn next(body: &mut StreamBody) -> Option<Result<Frame<Bytes>, Abort>> {
        std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    }

    /// Other tasks of a worker run while it reads a large event.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_large_event_is_read_aside() {
        /// Called within the reading of each event: waits for another task of the worker.
        fn wait(event: &[u8]) -> bool {
            let (tell, told) = std::sync::mpsc::channel();
            if event.len() > LARGE {
                tokio::spawn(async move { tell.send(()) });
                assert!(told.recv_timeout(30 * SECOND).is_ok(), "no other task ran meanwhile");
            }
            false
        }
        let text = "x".repeat(2 * LARGE);
        // The hook is called for events with a finish reason.
        let large = event(&format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":"stop"}}]}}"#
        ));
        let halves = large.split_at(large.len() - 2);
        let script = [halves.0, halves.1, "data: [DONE]\n\n"];
        let script = script.map(|text| (Duration::ZERO, text.to_owned()));
        let reading = tokio::spawn(async move {
            let wire = of(&provider::OPENAI, "openai-chat");
            let played = Played { wire, mode: Mode::Guard, encoding: "", is_extra: Some(wait) };
            played.play(script).await
        });
        let (out, clean, _) = reading.await.unwrap();
        let left: usize = out.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!((left, clean), (large.len() + "data: [DONE]\n\n".len(), true));
    }

    /// If the deadline of the socket comes before that of the stream, the body is dropped.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_is_dropped_because_it_read_nothing_stalled() {
        let limit = Config::default().limits.client_write;
        for (waited, cause) in [(limit - SECOND, "client_cancelled"), (limit, "client_stalled")] {
            let (wire, mode) = (messages(), Mode::Observe);
            let start = event(r#"{"type":"message_start","message":{"content":[]}}"#);
            let script = [(SECOND, start), (10 * limit, String::new())];
            let (shared, mut body) =
                Played { wire, mode, encoding: "", is_extra: None }.begin(script);
            assert!(next(&mut body).await.unwrap().is_ok());
            tokio::time::advance(waited).await;
            drop(body);
            assert_eq!(shared.watch.get("id").unwrap().kept.cause, cause, "{waited:?}");
        }
    }

    /// A bomb ends as too large, in both modes, and is never a success.
    #[tokio::test(start_paused = true)]
    async fn bombs_end_as_too_large() {
        let said =
            event(r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}"#);
        for first in ["data: ", "{\"x\":\"", said.as_str()] {
            let bomb = Bytes::from(crate::respond::bomb::bomb(first.as_bytes()));
            for mode in [Mode::Guard, Mode::Observe] {
                let wire = of(&provider::OPENAI, "openai-chat");
                let played = Played { wire, mode, encoding: "br", is_extra: None };
                let (out, clean, told) = played.play([(SECOND, bomb.clone())]).await;
                assert_eq!(told.ending.closed, endstop::Closed::Oversize, "{first} {told:?}");
                assert_eq!(told.ending.reason, endstop::Reason::Cut, "{first}");
                assert_eq!(clean, mode == Mode::Observe, "{first}");
                let left: usize = out.iter().map(|(_, bytes)| bytes.len()).sum();
                assert_eq!(told.kept.delivered_bytes, left as u64);
                if mode == Mode::Observe {
                    assert_eq!(left, bomb.len());
                }
            }
        }
    }

    /// Compressed streams are read to their end, whatever their chunks, in both modes.
    #[tokio::test(start_paused = true)]
    async fn compressed_streams_are_read() {
        use std::io::Write as _;
        let gzip = |text: &str| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let text = event(r#"{"choices":[{"index":0,"delta":{"content":"x"}}]}"#).repeat(5000);
        let stop = event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#);
        let members = [gzip(&text), gzip(&stop), gzip("data: [DONE]\n\n")].concat();
        for encoding in ["gzip", "gzip, identity", ""] {
            for cut in [1, 100, members.len()] {
                for mode in [Mode::Guard, Mode::Observe] {
                    let wire = of(&provider::OPENAI, "openai-chat");
                    let played = Played { wire, mode, encoding, is_extra: None };
                    let script = members.chunks(cut).map(|chunk| (Duration::ZERO, chunk.to_vec()));
                    let (out, clean, told) = played.play(script).await;
                    assert_eq!(told.ending.reason, endstop::Reason::Complete, "{encoding}, {cut}");
                    assert!(clean);
                    let out: Vec<u8> = out.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
                    assert_eq!(out, members);
                }
            }
        }
    }

    /// A panic before the head has left.
    #[test]
    fn an_exchange_that_a_panic_drops_is_interrupted() {
        let (shared, exchange) = opened(messages(), Mode::Guard);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _held = exchange;
            panic!("a test of panics")
        }));
        assert!(panicked.is_err());
        let told = shared.watch.get("id").unwrap();
        assert_eq!(told.ending.closed, endstop::Closed::Interrupted);
        assert_eq!(told.kept.client_status, Some(500));
        drop(opened(messages(), Mode::Guard));
    }

    /// A panic of ours ends one response, and is not the provider's cut.
    #[tokio::test(start_paused = true)]
    async fn a_panic_is_ours() {
        fn panics(_: &[u8]) -> bool {
            panic!("a test of panics")
        }
        let stop = event(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#);
        let wire = of(&provider::OPENAI, "openai-chat");
        let played = Played { wire, mode: Mode::Guard, encoding: "", is_extra: Some(panics) };
        let (_, clean, told) = played.play([(SECOND, stop)]).await;
        assert!(!clean);
        assert_eq!(told.ending.closed, endstop::Closed::Interrupted);
        assert_eq!(told.ending.reason, endstop::Reason::Cancelled);
        assert_eq!(&*told.kept.cause, "interrupted");
    }

    fn event(json: &str) -> String {
        format!("data: {json}\n\n")
    }

    fn messages() -> Wire {
        (&provider::ANTHROPIC).into()
    }

    fn of(provider: &'static Provider, dialect: &str) -> Wire {
        provider.wire_of(dialect).unwrap().into()
    }

    /// Two calls, the second of 150 seconds: the first pieces leave at once, and something leaves at
    /// least every 15 seconds until the end is proven.
    #[tokio::test(start_paused = true)]
    async fn a_long_second_call_keeps_the_client_waiting() {
        let block = |index: u32, kind: &str| {
            event(&format!(
                r#"{{"type":"content_block_start","index":{index},"content_block":{kind}}}"#
            ))
        };
        let piece = |index: u32, json: &str| {
            event(&format!(
                r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{json}"}}}}"#
            ))
        };
        let stop =
            |index: u32| event(&format!(r#"{{"type":"content_block_stop","index":{index}}}"#));
        let call =
            |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#);
        let mut script = vec![
            (SECOND, block(0, &call("a"))),
            (SECOND, piece(0, r#"{\"a\":"#)),
            (SECOND, piece(0, "1}")),
            (SECOND, stop(0)),
            (SECOND, block(1, &call("b"))),
            (SECOND, piece(1, r#"{\"b\":\""#)),
        ];
        script.extend((0..150).map(|_| (SECOND, piece(1, "x"))));
        script.push((SECOND, piece(1, r#"\"}"#)));
        script.push((SECOND, stop(1)));
        script.push((
            SECOND,
            event(r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#),
        ));
        script.push((SECOND, event(r#"{"type":"message_stop"}"#)));
        let all: String = script.iter().map(|(_, text)| text.as_str()).collect();
        let (out, clean) = play(messages(), script.clone()).await;
        assert!(clean);
        assert_eq!(out[0], (1, script[0].1.clone()));
        assert_eq!(out[1], (2, script[1].1.clone()));
        let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
        let times: Vec<u64> = out.iter().map(|(at, _)| *at).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= 16), "{times:?}");
        let pings = out.iter().filter(|(_, text)| text == ping).count();
        assert_eq!(pings, 10, "{times:?}");
        let kept: String =
            out.iter().filter(|(_, text)| text != ping).map(|(_, text)| text.as_str()).collect();
        assert_eq!(kept, all);
    }

    /// On a wire whose clients skip nothing, single bytes of the held frame leave, and a later failure
    /// is an abort.
    #[tokio::test(start_paused = true)]
    async fn held_bytes_trickle_where_nothing_else_can_be_sent() {
        let call = event(
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}}}]}}]}"#,
        );
        let last = event(r#"{"candidates":[{"finishReason":"STOP"}]}"#);
        let gemini = || of(&provider::GOOGLE, "gemini-generate");
        let whole = vec![(SECOND, call.clone()), (100 * SECOND, last.clone())];
        let (out, clean) = play(gemini(), whole).await;
        let text: String = out.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!((text, clean), (format!("{call}{last}"), true));
        let bytes = out.iter().take_while(|(_, text)| text.len() == 1).count();
        assert_eq!(bytes, 6, "{out:?}");
        let (out, clean) =
            play(gemini(), vec![(SECOND, call.clone()), (100 * SECOND, String::new())]).await;
        let text: String = out.iter().map(|(_, text)| text.as_str()).collect();
        assert!(!clean && text.len() == 6 && call.starts_with(&text), "{text}");
    }

    /// Searches and code that the provider runs never wait, and neither does the text around them.
    #[tokio::test(start_paused = true)]
    async fn server_tools_delay_nothing() {
        let scripts: [(Wire, Vec<String>); 4] = [
            (
                messages(),
                [
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}"#,
                    r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}}"#,
                    r#"{"type":"content_block_stop","index":0}"#,
                    r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[]}}"#,
                    r#"{"type":"content_block_stop","index":1}"#,
                    r#"{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"x"}}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                    r#"{"type":"message_stop"}"#,
                ]
                .map(event)
                .into(),
            ),
            (
                of(&provider::OPENAI, "openai-responses"),
                [
                    r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"web_search_call","id":"w","status":"in_progress"}}"#,
                    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"web_search_call","id":"w","status":"completed"}}"#,
                    r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"code_interpreter_call","id":"c","status":"completed","code":"1"}}"#,
                    r#"{"type":"response.output_text.delta","output_index":2,"delta":"x"}"#,
                    r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
                ]
                .map(event)
                .into(),
            ),
            (
                of(&provider::GOOGLE, "gemini-generate"),
                [
                    r#"{"candidates":[{"content":{"parts":[{"executableCode":{"language":"PYTHON","code":"1"}}]}}]}"#,
                    r#"{"candidates":[{"content":{"parts":[{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}}]}}]}"#,
                    r#"{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}"#,
                ]
                .map(event)
                .into(),
            ),
            (
                of(&provider::XAI, "openai-responses"),
                [
                    r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"custom_tool_call","call_id":"x","name":"x_search","input":"{}","status":"completed"}}"#,
                    r#"{"type":"response.output_text.delta","output_index":1,"delta":"x"}"#,
                    r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
                ]
                .map(event)
                .into(),
            ),
        ];
        for (wire, events) in scripts {
            let name = wire.profile.provider;
            let script = events.iter().map(|event| (SECOND, event.clone())).collect();
            let (out, clean) = play(wire, script).await;
            let want: Vec<(u64, String)> = (1..).zip(events).collect();
            assert_eq!((out, clean), (want, true), "{name}");
        }
    }
}
