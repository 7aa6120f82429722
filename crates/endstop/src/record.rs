//! Records: the ending of a response, the provider's finish reason, and counts.
//!
//! A record contains no prompt, no answer and no API key. A [`Record`] is plain data that can be
//! written to a file, a database or a network stream and read by another version. Names stay text,
//! so a name that a reader does not know is preserved.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::dialect::Proof;
use crate::ending::{Closed, Confidence, Ending, Reason, Said, Shown};
use crate::fault::FaultKind;
use crate::hash::Fnv;
use crate::provider::{Profile, Taught, Wire};
use crate::registry::{Clues, Registry};
use crate::request::RequestInfo;
pub use crate::verdict::Verdict;
use crate::verdict::{self, Evidence, Habits, Meaning};
use crate::vocabulary::Vocabulary;
use crate::{event::Word, text};

/// Version of the verdict. Raise it when the rules in `verdict.rs` change.
const VERDICT: u32 = 5;

/// Returns the version of the rules for the responses of a wire.
///
/// It changes with the rules of the verdict and with the provider, the finish reasons, the end marker,
/// the quirks and the corrections of the wire, and with nothing else. Versions have no order.
///
/// ```
/// use endstop::provider::{ANTHROPIC, OPENAI};
/// use endstop::record::rules;
///
/// assert_ne!(rules(&OPENAI), rules(&ANTHROPIC));
/// ```
#[must_use]
pub fn rules(wire: impl Into<Wire>) -> u32 {
    version(&wire.into())
}

/// Returns the version of a wire's rules. Those of built-in wires are computed once, and the last one
/// of each thread is at hand.
fn version(wire: &Wire) -> u32 {
    thread_local! {
        static LAST: RefCell<Option<(Profile, u32)>> = const { RefCell::new(None) };
    }
    if wire.corrections.is_some() {
        return found_version(wire);
    }
    let profile = &wire.profile;
    let is_same = |last: &Profile| {
        std::ptr::eq(last.provider, profile.provider) && judges_alike(last, profile)
    };
    LAST.with_borrow_mut(|last| match last {
        Some((last, version)) if is_same(last) => *version,
        Some(_) | None => {
            let version = found_version(wire);
            *last = Some((*profile, version));
            version
        }
    })
}

/// Finds the version of a wire's rules among those of built-in wires, or computes it.
fn found_version(wire: &Wire) -> u32 {
    static BUILT_IN: LazyLock<BTreeMap<&str, Vec<(Profile, u32)>>> = LazyLock::new(|| {
        let mut all: BTreeMap<&str, Vec<(Profile, u32)>> = BTreeMap::new();
        for wire in Registry::default().wires() {
            let version = fingerprint(&wire);
            all.entry(wire.profile.provider).or_default().push((wire.profile, version));
        }
        all
    });
    let taught = wire.corrections.iter().any(|corrections| !corrections.words.is_empty());
    let of_provider = BUILT_IN.get(wire.provider()).filter(|_| !taught);
    let known = of_provider
        .and_then(|wires| wires.iter().find(|(profile, _)| judges_alike(profile, &wire.profile)));
    known.map_or_else(|| fingerprint(wire), |(_, version)| *version)
}

/// Reports whether two profiles give finish reasons the same meaning, by comparing their tables and not
/// the rows.
fn judges_alike(one: &Profile, other: &Profile) -> bool {
    std::ptr::eq(one.dialect, other.dialect)
        && std::ptr::eq(one.words, other.words)
        && one.proof == other.proof
        && one.quirks == other.quirks
}

/// Returns the rule versions of all wires that can judge a response: those of each provider, built in
/// or registered, and those that servers offer beside their own.
#[doc(hidden)]
#[must_use]
pub fn all_rules(registry: &Registry) -> Vec<u32> {
    let all: BTreeSet<u32> = registry.wires().map(|wire| version(&wire)).collect();
    all.into_iter().collect()
}

/// Returns a hash of everything that gives a wire's finish reasons their meaning. It fits a signed
/// 32-bit integer column.
fn fingerprint(wire: &Wire) -> u32 {
    let profile = &wire.profile;
    let (proof, marker) = profile.proof.parts();
    let head = [&VERDICT.to_string(), wire.provider(), profile.dialect.id, proof, marker];
    let mut hash = ListHash::default().list(head).list(profile.quirks.names());
    for table in profile.tables() {
        let numbers = table.numbers.iter().map(|(number, word)| format!("{number} {word}"));
        hash = hash
            .list([table.field])
            .list(table.rows.iter().flat_map(|(word, reason)| [*word, reason.name()]))
            .list(table.vague.iter().copied())
            .list(table.empty.iter().copied())
            .list(table.pending.iter().copied())
            .list(numbers);
    }
    let taught = wire.corrections.iter().flat_map(|corrections| &corrections.words);
    for Taught { field, word, meaning } in taught {
        let kind = match meaning {
            Meaning::Nothing => "nothing",
            Meaning::Unknown => "unknown",
            Meaning::Known(_) => "known",
            Meaning::Vague(_) => "vague",
        };
        let field = field.as_deref().unwrap_or_default();
        hash = hash.list([field, word, kind, meaning.reason().name()]);
    }
    u32::try_from(hash.0.value() >> 33).unwrap_or_default()
}

/// Hash of lists of texts. The bytes that end a text and a list occur in no text.
#[derive(Default)]
struct ListHash(Fnv);

impl ListHash {
    fn list<T: AsRef<str>>(self, texts: impl IntoIterator<Item = T>) -> Self {
        let add = |hash: Fnv, text: T| hash.mix_bytes(text.as_ref().as_bytes()).mix(0xfe);
        Self(texts.into_iter().fold(self.0, add).mix(0xff))
    }
}

/// Maximum length of a text in a record, in bytes.
const MOST_TEXT: usize = 256;

/// Name that is almost always one of Endstop's own, and then not copied.
#[doc(hidden)]
pub type Name = Cow<'static, str>;

/// Record of one response from an upstream.
///
/// ```
/// use endstop::{Head, Record, RequestInfo, TransportEnd, Watcher, provider};
///
/// let mut record = Record { id: "1".to_owned(), ..Record::default() };
/// record.ask(&provider::OPENAI, &RequestInfo::default());
/// assert_eq!(record.closed, "interrupted");
///
/// let mut watcher = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
/// watcher.watch(br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}"#);
/// record.end(&watcher.finish(TransportEnd::Eof));
/// assert_eq!((&*record.reason, &*record.closed), ("output_limit", "proven"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Id of the record: a version 7 UUID in 32 hexadecimal digits. Ids sort by time and cannot be
    /// guessed.
    pub id: String,
    /// Id of the turn, which is the id of its first response.
    pub turn_id: String,
    /// Number of the response in its turn, starting at 1.
    pub attempt: u32,
    /// Time of the request, in milliseconds since 1970.
    pub created_at: u64,
    /// Team that sent the request.
    pub team_id: Option<String>,
    /// Keyed hash of the API key, from which the key cannot be recovered.
    pub key_id: Option<String>,
    /// Name of the upstream.
    pub upstream: String,
    /// Path of the request at the provider.
    pub path: String,
    /// Id of the provider.
    pub provider: Cow<'static, str>,
    /// Model that the response names, or else the model of the request.
    pub model: Option<String>,
    /// Id of the dialect.
    pub dialect: Cow<'static, str>,
    /// Whether the request asked for a stream.
    pub streamed: bool,
    /// Mode of the gateway: `observe` or `guard`.
    pub mode: Cow<'static, str>,
    /// HTTP status of the upstream; `None` if it never answered.
    pub status: Option<u16>,
    /// HTTP status that the client was sent; `None` if it left before.
    pub client_status: Option<u16>,
    /// The provider's finish reason.
    pub native_finish_reason: Option<String>,
    /// Field that held the provider's finish reason.
    pub native_field: Option<Cow<'static, str>>,
    /// Normalized finish reason for analytics: `stop`, `length`, `tool_calls`, …; `None` if the
    /// response has no finish reason.
    pub finish_reason: Option<Cow<'static, str>>,
    /// Our reason, such as `output_limit`.
    pub reason: Cow<'static, str>,
    /// Confidence in the reason: `high`, `medium` or `low`.
    pub confidence: Cow<'static, str>,
    /// The way the bytes ended, such as `proven`.
    pub closed: Cow<'static, str>,
    /// Cause for operators; see [`Ending::cause`].
    pub cause: Cow<'static, str>,
    /// Findings about the content: the names of [`Shown::names`].
    pub shown: Vec<Cow<'static, str>>,
    /// Decision of a policy, such as `continue`.
    pub decision: Option<Cow<'static, str>>,
    /// Action of the gateway, such as `passed` or `failed`.
    pub action: Cow<'static, str>,
    /// Input tokens.
    pub tokens_in: Option<u64>,
    /// Output tokens.
    pub tokens_out: Option<u64>,
    /// Tokens spent on reasoning.
    pub tokens_reasoning: Option<u64>,
    /// Input tokens read from a cache.
    pub tokens_cached: Option<u64>,
    /// Limit on output tokens in the request.
    pub cap: Option<u64>,
    /// Time until the response headers, in microseconds.
    pub first_byte_us: Option<u64>,
    /// Time until the end, in microseconds.
    pub total_us: u64,
    /// Number of bytes read from the upstream.
    pub bytes: u64,
    /// Number of bytes of the body sent to the client, without those that were withheld.
    pub delivered_bytes: u64,
    /// Number of events read.
    pub events: u64,
    /// Cause of the provider's error, if it sent one.
    pub error_type: Option<String>,
    /// The provider's id for the request.
    pub upstream_request_id: Option<String>,
    /// Version of the rules that gave the reason, see [`rules()`]; 0 if no rules did.
    pub rules: u32,
}

impl Record {
    /// Fills in the facts of the request. Until [`Record::end`] is called, this is the record of an
    /// interrupted response.
    pub fn ask(&mut self, wire: impl Into<Wire>, request: &RequestInfo) {
        let wire = wire.into();
        self.provider = match wire.provider() {
            name if name == wire.profile.provider => wire.profile.provider.into(),
            name => short(name).into(),
        };
        self.dialect = wire.profile.dialect.id.into();
        self.model = request.model.as_deref().map(short);
        self.streamed = request.streamed.unwrap_or(false);
        self.cap = request.cap;
        self.attempt = self.attempt.max(1);
        self.rules = version(&wire);
        self.interrupt();
    }

    /// Marks the response as interrupted: the process ended before the response did.
    pub fn interrupt(&mut self) {
        self.reason = Reason::Cancelled.name().into();
        self.finish_reason = Some(Vocabulary::FinishReason.spell(Reason::Cancelled).into());
        self.confidence = Confidence::High.name().into();
        self.closed = Closed::Interrupted.word().into();
        self.cause = "interrupted".into();
        self.action = "none".into();
    }

    /// Fills in the ending. The rules are those of the wire that [`Record::ask`] got.
    pub fn end(&mut self, ending: &Ending) {
        let native = ending.native();
        if self.provider != ending.provider {
            self.provider = short(&ending.provider).into();
        }
        self.dialect = ending.dialect.clone();
        self.model = ending.model.as_deref().map(short).or_else(|| self.model.take());
        let field = ending.said.as_ref().map(|said| said.field.clone());
        self.native_field = field.or_else(|| native.map(|(field, _)| field.to_owned().into()));
        self.native_finish_reason = native.map(|(_, word)| short(word));
        self.finish_reason = ending.finish_reason().map(Cow::Borrowed);
        self.reason = ending.reason.name().into();
        self.confidence = ending.confidence.name().into();
        self.closed = ending.closed.word().into();
        self.cause = ending.cause().into();
        self.shown = ending.shown.names().into_iter().map(Cow::Borrowed).collect();
        self.tokens_in = ending.usage.input;
        self.tokens_out = ending.usage.output;
        self.tokens_reasoning = ending.usage.reasoning;
        self.tokens_cached = ending.usage.cache_read;
        self.bytes = ending.bytes;
        self.events = ending.events;
        self.error_type = ending.fault.as_ref().map(|fault| fault.cause().to_owned());
        if self.rules == 0 {
            self.rules = self.current_rules(&Registry::default());
        }
    }

    /// Returns an explanation for people, in one sentence.
    ///
    /// It is made from the record alone, so that the log, the memory of a gateway and a store say the
    /// same. It quotes the provider's finish reason and the type or code of its error, and never the
    /// message of an error.
    ///
    /// ```
    /// use endstop::{Record, RequestInfo, provider};
    ///
    /// let mut record = Record::default();
    /// record.ask(&provider::OPENAI, &RequestInfo::default());
    /// let sentence = "the Endstop process ended before the response was complete";
    /// assert_eq!(record.sentence(), sentence);
    /// ```
    #[must_use]
    pub fn sentence(&self) -> String {
        if let Some(error) = &self.error_type {
            return self.error_in_words(error);
        }
        let judged = self.judge_alone();
        if let Some(verdict) = judged.filter(|verdict| verdict.reason.name() == self.reason) {
            return verdict.sentence;
        }
        match (&self.native_finish_reason, Closed::from_word(&self.closed)) {
            (Some(word), _) => format!("the provider said `{word}`"),
            (None, Some(closed)) => format!("the connection was {}", closed.description()),
            (None, None) => format!("the response ended as `{}`", self.reason),
        }
    }

    fn error_in_words(&self, error: &str) -> String {
        let what = match (error, self.native_field.as_deref(), &self.native_finish_reason) {
            ("upstream_bad_payload", _, _) => FaultKind::BadPayload.description().to_owned(),
            ("blocked_redirect", _, _) => {
                "the provider sent a redirect, which is not followed".to_owned()
            }
            (_, Some("error.code"), Some(code)) => {
                format!("the provider returned an error with code `{code}`")
            }
            (_, Some("error.type"), Some(type_)) => {
                format!("the provider returned an error of type `{type_}`")
            }
            (_, _, _) => "the provider returned an error".to_owned(),
        };
        match self.status {
            Some(status) if status >= 300 => format!("{what} (HTTP {status})"),
            Some(_) | None => what,
        }
    }

    /// Judges the record without the providers and finish reasons of users. A finish reason that is not
    /// built in has the meaning that the record gives it.
    fn judge_alone(&self) -> Option<Verdict> {
        let registry = Registry::default();
        let known = if registry.knows(&self.provider) { &*self.provider } else { "" };
        let mut is_built_in = true;
        let mut verdict = self.judge_by(&registry, known, |meaning| match meaning {
            Meaning::Unknown => {
                is_built_in = false;
                Reason::from_name(&self.reason).map(Meaning::Known)
            }
            Meaning::Nothing | Meaning::Known(_) | Meaning::Vague(_) => Some(meaning),
        })?;
        if !is_built_in && verdict.reason == Reason::Unknown {
            let word = self.native_finish_reason.as_ref().map(|word| format!("`{word}`"));
            let after = word.and_then(|word| Some(verdict.sentence.find(&word)? + word.len()));
            let after = after.unwrap_or(verdict.sentence.len());
            verdict.sentence.insert_str(after, ", which is not a built-in finish reason");
        }
        Some(verdict)
    }

    /// Applies the current rules to the record, with the finish reasons of this registry.
    ///
    /// Returns `None` if the record does not hold enough information: the provider is unknown, an
    /// error decided, or a custom finish reason decided that this registry lacks.
    #[must_use]
    pub fn judge_again(&self, registry: &Registry) -> Option<Verdict> {
        if self.error_type.is_some() || !registry.knows(&self.provider) {
            return None;
        }
        let is_unknown = self.reason == Reason::Unknown.name();
        self.judge_by(registry, &self.provider, |meaning| {
            (meaning != Meaning::Unknown || is_unknown).then_some(meaning)
        })
    }

    /// Judges the record as one of this provider. `mean` may give its finish reason another meaning.
    fn judge_by(
        &self,
        registry: &Registry,
        provider: &str,
        mut mean: impl FnMut(Meaning) -> Option<Meaning>,
    ) -> Option<Verdict> {
        let wire = registry.choose(&Clues {
            provider,
            dialect: &self.dialect,
            path: &self.path,
            ..Clues::default()
        });
        let profile = &wire.profile;
        let closed = Closed::from_word(&self.closed)?;
        let said = self.native_finish_reason.as_deref().map(|word| {
            Said::new(field(profile, self.native_field.as_deref().unwrap_or_default()), word)
        });
        let meaning = match &said {
            None => Meaning::Nothing,
            Some(said) => mean(wire.meaning(&said.field, &read(&said.word)))?,
        };
        // A response that was not read to its end is no success, whatever it said.
        let unread = matches!(closed, Closed::Oversize | Closed::BrokenFrame)
            && meaning.reason().is_success();
        let success = meaning.reason().is_success();
        let suffices = word_suffices(profile.proof, closed, success, &self.shown) && !unread;
        let habits = Habits::of(profile, suffices);
        let shown = shown(&self.shown);
        let said = said.as_ref();
        let evidence = Evidence {
            said,
            meaning,
            closed,
            shown: &shown,
            fault: None,
            choices: 1,
            habits,
            partial: false,
        };
        Some(verdict::judge(&evidence))
    }

    /// Returns the version of the rules by which [`Record::judge_again`] judges this record.
    #[must_use]
    pub fn current_rules(&self, registry: &Registry) -> u32 {
        version(&self.wire(registry))
    }

    fn wire(&self, registry: &Registry) -> Wire {
        registry.choose(&Clues {
            provider: &self.provider,
            dialect: &self.dialect,
            path: &self.path,
            ..Clues::default()
        })
    }
}

/// Reports whether the finish reason made up for a missing end marker. This is approximate, because
/// a record does not store the order of events.
fn word_suffices(proof: Proof, closed: Closed, success: bool, shown: &[Name]) -> bool {
    let shows = |word: &str| shown.iter().any(|shown| shown == word);
    match proof {
        Proof::Event => false,
        Proof::Marker(_) | Proof::Silent => {
            !(success && shows("tool_calls")) || closed.settles_calls()
        }
        // The marker was found missing only where the finish reason made up for it.
        Proof::Word => shows("missing_marker"),
    }
}

fn short(text: &str) -> String {
    text::clean(text, MOST_TEXT)
}

fn read(word: &str) -> Word<'_> {
    word.parse().map_or_else(|_| Word::Text(word.into()), Word::Number)
}

/// Returns the profile's spelling of a field name.
fn field(profile: &Profile, name: &str) -> &'static str {
    let tables = profile.words.iter().chain(profile.dialect.words);
    tables.map(|table| table.field).find(|field| *field == name).unwrap_or(profile.main_field())
}

/// Rebuilds the findings about the content from their names. Counts are not stored, so each is 0 or
/// 1.
fn shown(words: &[Name]) -> Shown {
    let has = |word: &str| words.iter().any(|known| known == word);
    let count = |word: &str| u32::from(has(word));
    Shown {
        text: !(has("empty") || has("reasoning_only")),
        reasoning: has("reasoning_only"),
        refusal: has("refusal"),
        other_content: false,
        tool_calls: count("tool_calls"),
        unfinished_tool_calls: count("unfinished_tool_call"),
        malformed_tool_calls: count("malformed_tool_call"),
        conflicting_tool_calls: count("conflicting_tool_call"),
        nameless_tool_calls: count("nameless_tool_call"),
        bare_tool_calls: count("bare_tool_call"),
        unclear_tool_calls: count("unclear_tool_call"),
        approval: has("approval"),
        stop_sequence: has("stop_sequence"),
        unfinished_content: has("unfinished_content"),
        guardrail: has("guardrail"),
        blocked: has("blocked"),
        breakdown: has("breakdown"),
        contradiction: has("contradiction"),
        at_cap: has("at_cap"),
        over_cap: has("over_cap"),
        context_full: has("context_full"),
        missing_marker: has("missing_marker"),
        cut_event: has("cut_event"),
        malformed_event: has("malformed_event"),
        unrecognised: has("unrecognised"),
        invalid_utf8: has("invalid_utf8"),
        late_event: has("late_event"),
        client_closed_early: has("client_closed_early"),
        excess: count("excess"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Words;
    use crate::provider::{self, Corrections, Provider};
    use crate::{Head, TransportEnd, Watcher};

    fn ended(provider: &Provider, body: &str) -> (Ending, Record) {
        let mut reader = Watcher::new(provider, Head::default(), RequestInfo::default());
        reader.watch(body.as_bytes());
        let ending = reader.finish(TransportEnd::Eof);
        let mut record = Record::default();
        record.ask(provider, &RequestInfo::default());
        record.end(&ending);
        (ending, record)
    }

    /// The sentence of a record denies no finish reason that a user taught.
    #[cfg(feature = "toml")]
    #[test]
    fn the_sentence_knows_taught_words_and_providers() {
        let mut registry = Registry::default();
        let taught = r#"
            [provider.openai.words]
            shrugged = { reason = "unknown", vague = true }
            enough = "complete"
            [provider.acme]
            like = "openai-chat"
        "#;
        registry.add_toml("x.toml", taught).unwrap();
        let sentence = |provider: &str, word: &str| {
            let wire = registry.choose(&Clues { provider, ..Clues::default() });
            let mut reader = Watcher::new(wire, Head::default(), RequestInfo::default());
            let body = format!(
                r#"{{"choices":[{{"message":{{"content":"Hi"}},"finish_reason":"{word}"}}]}}"#
            );
            reader.watch(body.as_bytes());
            let mut record = Record::default();
            record.end(&reader.finish(TransportEnd::Eof));
            assert_eq!(record.provider, provider);
            record.sentence()
        };
        let shrugged = "the provider said `shrugged`, which is not a built-in finish reason";
        assert_eq!(sentence("openai", "shrugged"), shrugged);
        let unmarked = Record {
            provider: "openai".into(),
            dialect: "openai-chat".into(),
            native_field: Some("finish_reason".into()),
            native_finish_reason: Some("shrugged".to_owned()),
            reason: "unknown".into(),
            closed: "eof".into(),
            shown: vec!["missing_marker".into()],
            ..Record::default()
        };
        let unmarked = unmarked.sentence();
        assert!(unmarked.starts_with(shrugged), "{unmarked}");
        assert_eq!(sentence("openai", "enough"), "the provider said `enough`");
        assert_eq!(sentence("acme", "length"), "the provider said `length`");
    }

    /// A record with a custom finish reason needs that finish reason to be judged again.
    #[cfg(feature = "toml")]
    #[test]
    fn what_a_taught_word_decided_is_judged_with_that_word_alone() {
        let mut registry = Registry::default();
        registry
            .add_toml("x.toml", "[provider.openai.words]\nfrobnicated = \"output_limit\"\n")
            .unwrap();
        let body = br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"frobnicated"}]}"#;
        let wire = registry.choose(&Clues { provider: "openai", ..Clues::default() });
        let mut reader = Watcher::new(wire, Head::default(), RequestInfo::default());
        reader.watch(body);
        let mut record = Record::default();
        record.end(&reader.finish(TransportEnd::Eof));
        assert_eq!(record.reason, "output_limit");
        let again = record.judge_again(&registry).unwrap();
        assert_eq!(again.reason, Reason::OutputLimit);
        assert_eq!(record.judge_again(&Registry::default()), None);
    }

    #[test]
    fn a_record_says_both_words_and_is_judged_alike_again() {
        let chat = |word: &str| {
            format!(r#"{{"choices":[{{"message":{{"content":"Hi"}},"finish_reason":{word}}}]}}"#)
        };
        let cases = [
            ("\"stop\"", Some("stop"), Some("stop")),
            ("\"length\"", Some("length"), Some("length")),
            ("\"frobnicated\"", Some("frobnicated"), Some("other")),
            ("null", None, None),
        ];
        for (word, native, finish_reason) in cases {
            let (ending, record) = ended(&provider::OPENAI, &chat(word));
            assert_eq!(record.native_finish_reason.as_deref(), native);
            assert_eq!(record.finish_reason.as_deref(), finish_reason);
            let again = record.judge_again(&Registry::default()).unwrap();
            assert_eq!(
                (again.reason, again.confidence),
                (ending.reason, ending.confidence),
                "{word}"
            );
        }
    }

    #[test]
    fn what_is_asked_and_never_answered_was_interrupted() {
        let mut record = Record::default();
        let request =
            RequestInfo { model: Some("m".repeat(5000)), cap: Some(9), ..RequestInfo::default() };
        record.ask(&provider::OPENAI, &request);
        assert_eq!(record.model.map(|model| model.len()), Some(MOST_TEXT));
        assert_eq!((&*record.reason, &*record.closed), ("cancelled", "interrupted"));
        assert_eq!(record.finish_reason.as_deref(), Some("cancel"));
    }

    /// A finish reason before an oversize event is no success, also when it is judged again.
    #[test]
    fn what_was_not_read_to_its_end_is_no_success() {
        let mut watcher = Watcher::new(&provider::OPENAI, Head::default(), RequestInfo::default());
        watcher.watch(
            b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n",
        );
        watcher.stop(crate::frame::Broken::Oversize);
        let ending = watcher.finish(TransportEnd::Eof);
        assert_eq!((ending.reason, ending.closed), (Reason::Cut, Closed::Oversize));
        let mut record = Record::default();
        record.ask(&provider::OPENAI, &RequestInfo::default());
        record.end(&ending);
        assert_eq!(record.judge_again(&Registry::default()).unwrap().reason, Reason::Cut);
    }

    #[test]
    fn rules_are_those_of_the_wire_that_judged() {
        let all = all_rules(&Registry::default());
        assert!(all.iter().all(|rules| *rules > 0 && i32::try_from(*rules).is_ok()));
        // New finish reasons and another proof change the version.
        let base = rules(&provider::XAI);
        let with = |change: fn(&mut Profile)| {
            let mut changed = provider::XAI.main;
            change(&mut changed);
            rules(changed)
        };
        static WORDS: &[Words] = &[Words::plain("finish_reason", "x", &[("new", Reason::Cut)])];
        assert_ne!(with(|profile| profile.words = WORDS), base);
        assert_ne!(with(|profile| profile.proof = Proof::Silent), base);
        assert_ne!(with(|profile| profile.quirks.runs_custom_tools = true), base);
        assert_eq!(with(|profile| profile.notes = &["a note"]), base);
        // What is computed once equals what is computed anew.
        for wire in Registry::default().wires() {
            assert_eq!(rules(&wire), fingerprint(&wire), "{}", wire.provider());
        }
        assert_eq!(with(|profile| profile.quirks.runs_custom_tools = false), base);
        let taught = |meaning| {
            let taught = Taught { field: None, word: "new".to_owned(), meaning };
            let words = vec![taught];
            rules(Wire::from(&provider::XAI).corrected(Corrections { provider: None, words }))
        };
        let (known, vague) = (Meaning::Known(Reason::Cut), Meaning::Vague(Reason::Cut));
        assert_eq!(BTreeSet::from([taught(known), taught(vague), base]).len(), 3);
    }

    /// A word that moves from one list to another changes its meaning, and so the version.
    #[test]
    fn a_word_in_another_list_is_another_rule() {
        const PLAIN: Words = Words::plain("finish_reason", "x", &[("odd", Reason::Failed)]);
        static VAGUE: &[Words] = &[Words { vague: &["odd"], ..PLAIN }];
        static EMPTY: &[Words] = &[Words { empty: &["odd"], ..PLAIN }];
        static PENDING: &[Words] = &[Words { pending: &["odd"], ..PLAIN }];
        let rules = |words| rules(Profile { words, ..provider::XAI.main });
        assert_eq!(BTreeSet::from([rules(VAGUE), rules(EMPTY), rules(PENDING)]).len(), 3);
    }

    /// A registered provider has the rules of the wire that it is like, and so has a wire that a server
    /// offers beside its own.
    #[cfg(feature = "toml")]
    #[test]
    fn rules_of_registered_providers_and_foreign_wires_are_their_own() {
        let toml = |text: &str| {
            let mut registry = Registry::default();
            registry.add_toml("x.toml", text).unwrap();
            registry
        };
        let asked = |registry: &Registry, provider: &str, path: &str| {
            let wire = registry.serving(&Clues { provider, path, ..Clues::default() }).unwrap();
            let mut record = Record { path: path.to_owned(), ..Record::default() };
            record.ask(wire, &RequestInfo::default());
            assert_eq!(record.provider, provider);
            assert_eq!(record.rules, record.current_rules(registry), "{provider} {path}");
            assert!(all_rules(registry).contains(&record.rules), "{provider} {path}");
            record.rules
        };
        let (chat, messages) = ("/v1/chat/completions", "/v1/messages");
        let like_openai = toml("[provider.acme]\nlike = \"openai\"\n");
        let like_anthropic = toml("[provider.acme]\nlike = \"anthropic\"\n");
        let taught =
            toml("[provider.acme]\nlike = \"openai\"\n[provider.acme.words]\nodd = \"failed\"\n");
        let versions = BTreeSet::from([
            asked(&like_openai, "acme", chat),
            asked(&like_anthropic, "acme", messages),
            asked(&taught, "acme", chat),
            asked(&taught, "acme", messages),
            asked(&taught, "ollama", "/api/chat"),
            asked(&taught, "ollama", messages),
            asked(&taught, "anthropic", messages),
        ]);
        assert_eq!(versions.len(), 7);
    }

    /// Versions are stored with records: they change with the rules, and with nothing else.
    #[test]
    fn rules_keep_their_version() {
        assert_eq!(
            (rules(&provider::OPENAI), rules(&provider::PERPLEXITY)),
            (1_641_400_991, 1_377_914_706)
        );
    }

    #[test]
    fn records_of_other_versions_are_read() {
        let record: Record =
            serde_json::from_str(r#"{"id":"x","new":1,"reason":"newer"}"#).unwrap();
        assert_eq!((record.id.as_str(), &*record.reason), ("x", "newer"));
    }
}
