//! One request and its response, from admission to the one ending that is reported.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use endstop::frame::Broken;
use endstop::provider::REQUEST_ID_HEADERS;
use endstop::{Ending, Head, Reason, Record, RequestInfo, TransportEnd, Watcher, Wire};
use endstop_store::spool::{Spool, Ticket};
use endstop_turn::observation::DetectionTimes;
use endstop_turn::policy::{Action, Budget, DecisionContext, decide};
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Request, Response, StatusCode};
use tokio::time::Instant;

use crate::admit::Refused;
use crate::callers::Caller;
use crate::client::body::ClientBody;
use crate::disposition::ResponseRules;
use crate::retries::{Asked, Attempt};
use crate::route::Upstream;
use crate::settings::{Settings, Shared};
use crate::upstream::{Outgoing, Over, RequestBody, ResponseBody, Unanswered};
use crate::watch::mask::SecretsShown;
use crate::watch::recording::Recorder;
use crate::watch::{EndingReport, GuardAction, now};

/// A request under way. Exactly one ending is reported, however it goes: dropping it reports one too.
#[derive(Debug)]
pub(crate) struct Exchange {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    noted: Option<Noted>,
    began: Instant,
    record: Record,
    key_id: Option<Arc<str>>,
    wire: Arc<Wire>,
    info: RequestInfo,
    /// Secrets that the request showed.
    secrets: SecretsShown,
    /// Body of the request. It tells whether a later request repeats this one.
    body: Bytes,
    /// Head and body of the request to the upstream. They stay here, so that it can be asked again.
    outgoing: Outgoing,
    sent: Bytes,
    terms: ResponseRules,
    /// Decision about the ending, once it is made.
    decision: Option<&'static str>,
    ended: bool,
    /// Time that reading took, if this response is in the sample that is timed.
    times: Option<Box<DetectionTimes>>,
    /// The report about a plain response that its client has not taken in.
    unreported: Option<Arc<EndingReport>>,
    /// Bytes of that response that the client's connection did not take.
    undelivered: u64,
}

/// Entries of the request in the spool.
#[derive(Debug)]
struct Noted {
    spool: Arc<Spool>,
    ticket: Ticket,
    /// Whether an end has been written, although more may become known.
    end: bool,
}

/// A request before it is sent.
#[derive(Debug)]
pub(crate) struct Opening<'o> {
    /// Id of the request.
    pub(crate) id: String,
    /// Name of the upstream.
    pub(crate) upstream: &'o str,
    /// Head of the request to it.
    pub(crate) outgoing: Outgoing,
    /// Wire of the response.
    pub(crate) wire: Arc<Wire>,
    /// Facts about the request.
    pub(crate) info: RequestInfo,
    /// Body of the request, as the client sent it.
    pub(crate) body: Bytes,
    /// Body of the request, as the upstream gets it.
    pub(crate) sent: Bytes,
    /// Rules for the response.
    pub(crate) terms: ResponseRules,
    /// Caller.
    pub(crate) caller: Caller,
    /// Secrets that the request showed.
    pub(crate) secrets: SecretsShown,
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The request cannot be sent.
    Refused(Refused),
    /// No response began before the connection ended.
    Closed(TransportEnd),
}

impl Exchange {
    /// Begins an exchange. It is in the spool before anything is sent. It is boxed, because it is
    /// large and handed on a few times.
    #[must_use]
    pub(crate) fn new(
        shared: &Arc<Shared>,
        settings: &Arc<Settings>,
        opening: Opening<'_>,
    ) -> Box<Self> {
        let Opening { id, upstream, outgoing, wire, info, body, sent, terms, caller, secrets } =
            opening;
        let Caller { team_id, key_id } = caller;
        let asked = Asked { profile: &wire.profile, model: info.model.as_deref(), body: &body };
        let again = key_id.as_deref().and_then(|key| shared.retries.attempt(key, asked));
        let Attempt { turn_id, number } =
            again.unwrap_or_else(|| Attempt { turn_id: id.clone(), number: 1 });
        let mut record = Record {
            id,
            turn_id,
            attempt: number,
            created_at: now(),
            team_id,
            key_id: key_id.as_deref().map(str::to_owned),
            upstream: upstream.to_owned(),
            path: endstop::text::clean(outgoing.path(), 256),
            mode: terms.mode.word().into(),
            ..Record::default()
        };
        record.ask(&*wire, &info);
        secrets.mask_request(&mut record);
        let noted = shared.recording.as_ref().map(Recorder::spool).map(|spool| {
            let ticket = spool.start(&record);
            Noted { spool: spool.clone(), ticket, end: false }
        });
        Box::new(Self {
            shared: shared.clone(),
            settings: settings.clone(),
            noted,
            began: Instant::now(),
            record,
            key_id,
            wire,
            info,
            secrets,
            body,
            outgoing,
            sent,
            terms,
            decision: None,
            ended: false,
            times: shared.watch.samples().then(Box::default),
            unreported: None,
            undelivered: 0,
        })
    }

    /// Sends the request to its upstream and waits for the head of the response. The upstream can be
    /// asked again if the request was kept.
    ///
    /// # Errors
    /// The reason why no response began.
    pub(crate) async fn ask(
        &mut self,
        upstream: &Upstream,
    ) -> Result<Response<ResponseBody>, NoAnswer> {
        let request = self.request(upstream)?;
        let response = match self.settings.clients.ask(upstream, request, Over::Kept).await {
            Ok(response) => response,
            Err(Unanswered { closed_when_kept: true, .. }) if self.outgoing.is_kept() => {
                tracing::info!(
                    upstream = &*upstream.name,
                    "a kept connection was closed without a response: the request is sent once more"
                );
                let request = self.request(upstream)?;
                // In a box, since it happens rarely and the future is large.
                let asking = Box::pin(self.settings.clients.ask(upstream, request, Over::New));
                asking.await.map_err(|unanswered| NoAnswer::Closed(unanswered.close))?
            }
            Err(unanswered) => return Err(NoAnswer::Closed(unanswered.close)),
        };
        self.record.status = Some(response.status().as_u16());
        self.record.first_byte_us = Some(micros(self.began.elapsed()));
        self.record.upstream_request_id = request_id(response.headers());
        Ok(response)
    }

    #[inline]
    fn request(&mut self, upstream: &Upstream) -> Result<Request<RequestBody>, NoAnswer> {
        let body = RequestBody::whole(self.sent.clone());
        self.outgoing.request(upstream, body).map_err(NoAnswer::Refused)
    }

    /// Returns a reader for the response.
    pub(crate) fn watcher(&self, content_type: &str, event_bytes: usize) -> Watcher {
        let head = Head { status: self.record.status.unwrap_or(0), content_type };
        let limits = endstop::Limits { event_bytes, ..endstop::Limits::default() };
        let watcher =
            || Watcher::with_limits(Wire::clone(&self.wire), head, self.info.clone(), limits);
        // It is large, and is not moved on the way of most responses.
        if !is_recoded(content_type) {
            return watcher();
        }
        let mut watcher = watcher();
        watcher.stop(Broken::Corrupt);
        watcher
    }

    /// Reads a part of the response, and measures it if this response is in the sample.
    #[inline]
    pub(crate) fn timed<T>(&mut self, read: impl FnOnce() -> T) -> T {
        let Some(times) = &mut self.times else { return read() };
        let began = std::time::Instant::now();
        let done = read();
        times.add(began.elapsed());
        done
    }

    /// Returns the id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.record.id
    }

    /// Returns the settings that the request began with.
    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Returns the state that requests share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the time by which the response must have ended.
    pub(crate) fn deadline(&self) -> Instant {
        self.began + self.settings.config.limits.total
    }

    /// Hides the gateway's own secrets in a plain response.
    pub(crate) fn hide_own(&self, headers: &mut HeaderMap, body: Bytes) -> Bytes {
        self.secrets.hide_own(headers, body)
    }

    /// Returns the facts about the request.
    pub(crate) fn info(&self) -> &RequestInfo {
        &self.info
    }

    /// Returns the wire of the response.
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Returns the rules for the response.
    pub(crate) fn terms(&self) -> ResponseRules {
        self.terms
    }

    /// Notes the status that the client is sent.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.record.client_status = Some(status.as_u16());
    }

    /// Counts bytes that were handed to the client.
    pub(crate) fn delivered(&mut self, bytes: usize) {
        self.record.delivered_bytes += bytes as u64;
    }

    /// Returns what the operator's policy would do about this ending.
    pub(crate) fn decision(&mut self, ending: &Ending) -> &'static str {
        if let Some(decision) = self.decision {
            return decision;
        }
        if is_answer(ending) {
            return Action::Stop.name();
        }
        let context = DecisionContext {
            budget: Budget { cap: self.info.cap, ..Budget::default() },
            cap: self.info.cap,
            ..DecisionContext::default()
        };
        let decision = decide(ending, &context, &self.settings.config.policy).action.name();
        self.decision = Some(decision);
        decision
    }

    /// Returns the ending of an exchange without a response.
    pub(crate) fn unanswered(&self, close: TransportEnd) -> Ending {
        self.watcher("", 1 << 20).finish(close)
    }

    /// Ends an exchange at which the gateway itself failed: nothing is known about the provider's end.
    pub(crate) fn interrupted(&mut self) {
        let ending = self.watcher("", 1 << 20).finish(TransportEnd::Interrupted);
        self.end(ending, GuardAction::Failed);
    }

    /// Reports whether the end is not in the spool yet.
    #[must_use]
    pub(crate) fn is_unnoted(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| !noted.end)
    }

    /// Writes the end to the spool as far as it is known, before a client can see it.
    pub(crate) fn note(&mut self, ending: &Ending) {
        self.write_ending(ending, GuardAction::Passed);
        self.append();
        // More may become known.
        self.decision = None;
    }

    /// Ends the exchange. Only the first ending is reported.
    pub(crate) fn end(&mut self, ending: Ending, action: GuardAction) {
        if let Some(report) = self.conclude(ending, action) {
            self.shared.watch.ended(report);
        }
    }

    /// Ends the exchange with a whole response. Its ending is in the spool at once, since the client may see
    /// it, and is reported when the client's connection has taken the response, or is gone.
    #[must_use]
    pub(crate) fn answer(
        mut self: Box<Self>,
        ending: Ending,
        action: GuardAction,
        mut response: Response<ClientBody>,
    ) -> Response<ClientBody> {
        self.answered(response.status());
        let length = response.body().whole_len();
        self.delivered(length);
        self.unreported = self.conclude(ending, action);
        // A client may take long to read, and nobody needs these.
        (self.body, self.sent) = (Bytes::new(), Bytes::new());
        if length > 0 {
            response.body_mut().exchange = Some(self);
        }
        response
    }

    /// Ends a whole response, of which the connection has not taken this many bytes.
    pub(crate) fn left(mut self: Box<Self>, bytes: usize) {
        self.undelivered = bytes as u64;
    }

    /// Reports the ending of a whole response.
    fn report(&mut self) {
        let Some(mut report) = self.unreported.take() else { return };
        if self.undelivered > 0
            && let Some(EndingReport { kept, ending, .. }) = Arc::get_mut(&mut report)
        {
            kept.delivered_bytes = kept.delivered_bytes.saturating_sub(self.undelivered);
            ending.shown.client_closed_early = true;
            kept.shown = ending.shown.names().into_iter().map(Into::into).collect();
            if let Some(Noted { spool, ticket, .. }) = &mut self.noted {
                spool.amend(ticket, kept);
            }
        }
        self.shared.watch.ended(report);
    }

    /// Completes the record, and returns the report unless there was an ending before.
    fn conclude(&mut self, mut ending: Ending, action: GuardAction) -> Option<Arc<EndingReport>> {
        if std::mem::replace(&mut self.ended, true) {
            return None;
        }
        self.write_ending(&ending, action);
        self.append();
        self.remember_failure(&ending, action);
        let messages = self.settings.config.error_messages();
        self.secrets.mask_ending(&mut ending, &self.wire, messages);
        self.shared.watch.look_for_unknown_word(&self.wire, &ending);
        let kept = std::mem::take(&mut self.record);
        let dropped = self.noted.as_ref().is_some_and(|noted| !noted.ticket.is_recorded());
        if dropped {
            self.shared.watch.dropped(&kept);
        }
        let detection = self.times.take().filter(|times| times.response_ns > 0);
        Some(Arc::new(EndingReport { kept, action, ending, detection }))
    }

    /// Remembers a failed request, so that its retries are known.
    fn remember_failure(&self, ending: &Ending, action: GuardAction) {
        let failed = match action {
            GuardAction::Failed | GuardAction::Refused => true,
            GuardAction::Passed | GuardAction::Warned => ending.fault.is_some(),
        };
        if let Some(key) = self.key_id.as_ref().filter(|_| failed) {
            let turn_id = self.record.turn_id.clone();
            let attempt = Attempt { turn_id, number: self.record.attempt };
            let model = self.info.model.as_deref();
            let asked = Asked { profile: &self.wire.profile, model, body: &self.body };
            self.shared.retries.failed(key, asked, attempt);
        }
    }

    fn write_ending(&mut self, ending: &Ending, action: GuardAction) {
        self.record.end(ending);
        self.secrets.mask_record(&mut self.record, &self.wire);
        self.record.decision = Some(self.decision(ending).into());
        self.record.total_us = micros(self.began.elapsed());
        self.record.action = action.word().into();
    }

    fn append(&mut self) {
        let Some(Noted { spool, ticket, end }) = &mut self.noted else { return };
        if std::mem::replace(end, true) {
            spool.amend(ticket, &self.record);
        } else {
            spool.end(ticket, &self.record);
        }
    }

    /// Returns the ending as a comment of a stream.
    #[must_use]
    pub(crate) fn comment(&mut self, ending: &Ending, action: GuardAction) -> Bytes {
        let json = serde_json::json!({
            "id": self.record.id,
            "reason": ending.reason.name(),
            "finish_reason": ending.finish_reason(),
            "native": ending.native().map(|(_, word)| word),
            "confidence": ending.confidence.name(),
            "action": action.word(),
            "decision": self.decision(ending),
        });
        Bytes::from(format!(": endstop {json}\n\n"))
    }
}

/// Returns the provider's id of a request, from the first of the headers that hold one.
fn request_id(headers: &HeaderMap) -> Option<String> {
    /// Lengths of the names, one bit each: most headers have another one.
    static LENGTHS: LazyLock<u64> = LazyLock::new(|| {
        let bit = |name: &&str| 1_u64.checked_shl(u32::try_from(name.len()).unwrap_or(64));
        REQUEST_ID_HEADERS.iter().filter_map(bit).fold(0, |all, bit| all | bit)
    });
    let lengths = *LENGTHS;
    let rank = |name: &HeaderName| {
        let name = name.as_str();
        if name.len() >= 64 || lengths >> name.len() & 1 == 0 {
            return None;
        }
        REQUEST_ID_HEADERS.iter().position(|known| *known == name)
    };
    let ids = headers.iter().filter_map(|(name, value)| Some((rank(name)?, value.to_str().ok()?)));
    ids.min_by_key(|(rank, _)| *rank).map(|(_, id)| endstop::text::clean(id, 128))
}

/// Reports whether a response is a complete answer without tool calls. Every policy stops there: it
/// may name no other action for such an ending.
fn is_answer(ending: &Ending) -> bool {
    let ended = matches!(ending.reason, Reason::Complete | Reason::StopSequence);
    let shown = &ending.shown;
    let calls = ending.choices.iter().any(|choice| choice.shown.tool_calls > 0);
    ending.over && ended && !calls && !shown.is_empty() && !shown.is_reasoning_only()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.report();
        if !self.ended && std::thread::panicking() {
            // The client gets an error of the gateway.
            self.record.client_status = Some(500);
            self.interrupted();
        } else if !self.ended {
            let ending = self.watcher("", 1 << 20).finish(TransportEnd::ClientGone);
            self.end(ending, GuardAction::Refused);
        }
    }
}

/// Reports whether the text is in a character set in which other bytes could be JSON. Some clients decode it
/// (`google-genai` 3.1.0).
fn is_recoded(content_type: &str) -> bool {
    let Some((_, parameters)) = content_type.split_once(';') else { return false };
    let parameters = parameters.to_ascii_lowercase();
    let Some((_, charset)) = parameters.split_once("charset") else { return false };
    let name = charset.trim_start_matches(|character: char| !character.is_ascii_alphanumeric());
    let alike =
        ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-", "iso8859-", "latin1", "windows-125"];
    !name.is_empty() && !alike.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use endstop::{Closed, Confidence, Shown};
    use endstop_turn::policy::{Policy, Rule};

    use super::*;
    use crate::config::{Config, Log, Mode, ToolCalls};

    #[test]
    fn a_fault_of_ours_is_not_the_providers_nor_the_clients() {
        let config = Config { store: None, log: Log::Off, ..Config::default() };
        let settings = Arc::new(Settings::new(config.clone()).unwrap());
        let shared = Arc::new(Shared::new(Settings::new(config).unwrap()).unwrap());
        let begin = |id: &str| {
            let (mode, tool_calls) = (Mode::Guard, ToolCalls::Gate);
            let opening = Opening {
                id: id.to_owned(),
                upstream: "test",
                outgoing: Outgoing::default(),
                wire: Arc::new(Wire::from(endstop::provider::GENERIC)),
                info: RequestInfo::default(),
                body: Bytes::new(),
                sent: Bytes::new(),
                terms: ResponseRules { mode, tool_calls, proves: true, background: false },
                caller: Caller::default(),
                secrets: SecretsShown::default(),
            };
            Exchange::new(&shared, &settings, opening)
        };
        let cause = |id: &str| {
            let kept = shared.watch.get(id).unwrap().kept.clone();
            (kept.reason.into_owned(), kept.cause.into_owned())
        };
        drop(begin("left"));
        assert_eq!(cause("left"), ("cancelled".to_owned(), "client_cancelled".to_owned()));
        let crash = std::panic::AssertUnwindSafe(|| {
            let _exchange = begin("crashed");
            panic!("a fault of ours");
        });
        std::panic::catch_unwind(crash).unwrap_err();
        assert_eq!(cause("crashed"), ("cancelled".to_owned(), "interrupted".to_owned()));
    }

    /// A later request of the same exchange is the same: its head and body stay.
    #[tokio::test]
    async fn an_upstream_can_be_asked_again() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let text = format!(
            "store = 'off'\nlog = 'off'\n[upstreams.near]\nlike = 'openai'\nbase_url = 'http://{address}/v1'"
        );
        let config = Config::from_toml("t", &text).unwrap();
        let settings = Arc::new(Settings::new(config.clone()).unwrap());
        let shared = Arc::new(Shared::new(Settings::new(config).unwrap()).unwrap());
        let routed = settings.routes.find(&"/near/v1/chat/completions".parse().unwrap()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-own", hyper::header::HeaderValue::from_static("1"));
        let (mode, tool_calls) = (Mode::Guard, ToolCalls::Gate);
        let opening = Opening {
            id: "id".to_owned(),
            upstream: "near",
            outgoing: Outgoing::new(routed, None, hyper::Method::POST, headers).kept(true),
            wire: Arc::new(Wire::from(endstop::provider::GENERIC)),
            info: RequestInfo::default(),
            body: Bytes::from_static(b"{}"),
            sent: Bytes::from_static(b"{\"a\":1}"),
            terms: ResponseRules { mode, tool_calls, proves: true, background: false },
            caller: Caller::default(),
            secrets: SecretsShown::default(),
        };
        let mut exchange = Exchange::new(&shared, &settings, opening);
        let server = tokio::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..2 {
                let mut stream = listener.accept().await.unwrap().0;
                let mut request = vec![0; 4096];
                let mut length = 0;
                while !request[..length].ends_with(b"{\"a\":1}") {
                    length += stream.read(&mut request[length..]).await.unwrap();
                }
                request.truncate(length);
                seen.push(String::from_utf8(request).unwrap());
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
            seen
        });
        for _ in 0..2 {
            let upstream = settings.routes.upstream("near").unwrap();
            assert_eq!(exchange.ask(upstream).await.unwrap().status(), StatusCode::OK);
        }
        let seen = server.await.unwrap();
        assert!(seen[0].contains("x-own: 1") && seen[0] == seen[1], "{seen:?}");
    }

    #[test]
    fn every_policy_stops_at_an_answer() {
        for reason in Reason::ALL {
            let mut ending = Ending::new(reason, Confidence::High, Closed::Proven);
            ending.shown.text = true;
            if is_answer(&ending) {
                assert_eq!(Rule::permitted(reason), [Action::Stop], "{reason:?}");
                for preset in Policy::PRESETS {
                    let policy = Policy::preset(preset).unwrap();
                    let decision = decide(&ending, &DecisionContext::default(), &policy);
                    assert_eq!(decision.action, Action::Stop, "{preset}");
                }
            }
            ending.shown = Shown::default();
            assert!(!is_answer(&ending), "{reason:?}");
        }
    }
}
