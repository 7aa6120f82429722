//! What is kept of a response: how it ended, in the provider's words and in ours, and counts.
//!
//! No prompt, no answer, no key. A [`Record`] is plain data, so that it can be written to a file, to a
//! database, or to a wire, and read back by another version: what it says in words stays text, and a
//! word that a reader does not know is kept as it is.

use serde::{Deserialize, Serialize};

use crate::dialect::Proof;
use crate::ending::{Closed, Confidence, Ending, Reason, Said, Shown, Timer, Unreachable};
use crate::provider::Profile;
use crate::registry::{Clues, Registry};
use crate::request::RequestInfo;
use crate::verdict::{self, Evidence, Habits, Meaning, Verdict};
use crate::vocabulary::Vocabulary;
use crate::{event::Word, text};

/// The version of the rules and word tables that a verdict was made by: raised whenever one of them
/// changes, so that records made before can be found and judged again.
pub const RULES: u32 = 2;

/// The most of any text that is kept, in bytes.
pub const MOST_TEXT: usize = 256;

/// What is kept of one response of an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Sorts by time and cannot be guessed: a UUID of version 7, in 32 hexadecimal digits.
    pub id: String,
    /// The turn that it belongs to: the id of the turn's first response.
    pub turn_id: String,
    /// Which response of its turn it is, from 1.
    pub attempt: u32,
    /// When the request came, in milliseconds since 1970.
    pub created_at: u64,
    /// Whose request it was.
    pub team_id: Option<String>,
    /// Which key asked; a keyed hash, from which the key cannot be found.
    pub key_id: Option<String>,
    /// The upstream's name.
    pub upstream: String,
    /// The provider's own path.
    pub path: String,
    /// Who served it.
    pub provider: String,
    /// The model that the response names, else the one that was asked.
    pub model: Option<String>,
    /// The wire language it came in.
    pub dialect: String,
    /// A stream was asked for.
    pub streamed: bool,
    /// How it was passed on: `observe`, `guard`.
    pub mode: String,
    /// The upstream's status; none where it never answered.
    pub status: Option<u16>,
    /// The provider's own word for the end.
    pub native_finish_reason: Option<String>,
    /// The field that it stood in.
    pub native_field: Option<String>,
    /// Our word for analytics: `stop`, `length`, `tool_calls`, …; none where nothing was said.
    pub finish_reason: Option<String>,
    /// Our reason, such as `output_limit`.
    pub reason: String,
    /// How sure that is: `high`, `medium`, `low`.
    pub confidence: String,
    /// How the bytes ended, such as `proven`.
    pub closed: String,
    /// What it is to be told apart by: see [`Ending::cause`].
    pub cause: String,
    /// What stands out in the content: the words of [`Shown::words`].
    pub shown: Vec<String>,
    /// What a policy decided about it, such as `continue`.
    pub decision: Option<String>,
    /// What was done about it, such as `passed` or `failed`.
    pub action: String,
    /// Input tokens.
    pub tokens_in: Option<u64>,
    /// Output tokens.
    pub tokens_out: Option<u64>,
    /// Tokens spent on reasoning.
    pub tokens_reasoning: Option<u64>,
    /// Input tokens read from a cache.
    pub tokens_cached: Option<u64>,
    /// The cap on output tokens that was asked for.
    pub cap: Option<u64>,
    /// Until the head of the response came, in microseconds.
    pub first_byte_us: Option<u64>,
    /// Until the end, in microseconds.
    pub total_us: u64,
    /// Bytes read from the upstream.
    pub bytes: u64,
    /// Bytes handed to the client.
    pub delivered_bytes: u64,
    /// Events read.
    pub events: u64,
    /// What kind of error the provider sent.
    pub error_type: Option<String>,
    /// The provider's id for the request.
    pub upstream_request_id: Option<String>,
    /// The version of the rules that judged it: [`RULES`].
    pub rules: u32,
}

impl Record {
    /// Writes what is known before an answer comes. Should nothing follow, this is the record of a
    /// response that was interrupted.
    pub fn ask(&mut self, profile: &Profile, asked: &RequestInfo) {
        profile.provider.clone_into(&mut self.provider);
        profile.dialect.id.clone_into(&mut self.dialect);
        self.model = asked.model.as_deref().map(short);
        self.streamed = asked.streamed.unwrap_or(false);
        self.cap = asked.cap;
        self.attempt = self.attempt.max(1);
        self.rules = RULES;
        self.interrupt();
    }

    /// Says that nobody saw the end: the process that passed it on ended first.
    pub fn interrupt(&mut self) {
        Reason::Cancelled.name().clone_into(&mut self.reason);
        self.finish_reason = Some(Vocabulary::FinishReason.spell(Reason::Cancelled).to_owned());
        Confidence::High.name().clone_into(&mut self.confidence);
        Closed::Interrupted.word().clone_into(&mut self.closed);
        "interrupted".clone_into(&mut self.cause);
        "none".clone_into(&mut self.action);
    }

    /// Writes how it ended.
    pub fn end(&mut self, ending: &Ending) {
        let native = ending.native();
        self.provider = short(&ending.provider);
        ending.dialect.clone_into(&mut self.dialect);
        self.model = ending.model.as_deref().map(short).or_else(|| self.model.take());
        self.native_field = native.map(|(field, _)| field.to_owned());
        self.native_finish_reason = native.map(|(_, word)| short(word));
        self.finish_reason = ending.finish_reason().map(str::to_owned);
        ending.reason.name().clone_into(&mut self.reason);
        ending.confidence.name().clone_into(&mut self.confidence);
        ending.closed.word().clone_into(&mut self.closed);
        ending.cause().clone_into(&mut self.cause);
        self.shown = ending.shown.words().into_iter().map(str::to_owned).collect();
        self.tokens_in = ending.usage.input;
        self.tokens_out = ending.usage.output;
        self.tokens_reasoning = ending.usage.reasoning;
        self.tokens_cached = ending.usage.cache_read;
        self.bytes = ending.bytes;
        self.events = ending.events;
        self.error_type = ending.fault.as_ref().map(|fault| fault.cause().to_owned());
        self.rules = RULES;
    }

    /// What the rules of today make of it, with the words of these providers; none where they would need
    /// more than was kept: the provider is not known, an error decided, or a word did that was taught
    /// and is not here.
    #[must_use]
    pub fn judge_again(&self, registry: &Registry) -> Option<Verdict> {
        if self.error_type.is_some() || !registry.knows(&self.provider) {
            return None;
        }
        let wire = registry.choose(&Clues {
            provider: &self.provider,
            dialect: &self.dialect,
            path: &self.path,
            ..Clues::default()
        });
        let profile = &wire.profile;
        let closed = closed(&self.closed)?;
        let said = self.native_finish_reason.as_deref().map(|word| Said {
            field: field(profile, self.native_field.as_deref().unwrap_or_default()),
            word: word.to_owned(),
        });
        let meaning = match &said {
            None => Meaning::Nothing,
            Some(said) => wire.meaning(said.field, &read(&said.word)),
        };
        if meaning == Meaning::Unknown && self.reason != Reason::Unknown.name() {
            return None;
        }
        let habits = Habits {
            word_suffices: word_suffices(profile.proof, closed, &self.shown),
            silent: profile.proof == Proof::Silent,
            has_tool_word: profile.has_tool_word(),
            lies_at_cap: profile.quirks.lies_at_cap,
            guessed: profile.guessed,
            ambiguous: profile.ambiguous,
        };
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
}

/// Whether the word made up for proof that did not come: as far as can be told, since the order of
/// things is not kept.
fn word_suffices(proof: Proof, closed: Closed, shown: &[String]) -> bool {
    let shows = |word: &str| shown.iter().any(|shown| shown == word);
    match proof {
        Proof::Event => false,
        Proof::Marker(_) | Proof::Silent => true,
        Proof::Word => !shows("tool_calls") || closed == Closed::Eof && !shows("cut_event"),
    }
}

fn short(text: &str) -> String {
    text::clean(text, MOST_TEXT)
}

fn read(word: &str) -> Word<'_> {
    word.parse().map_or_else(|_| Word::Text(word.into()), Word::Number)
}

/// The profile's own spelling of a field.
fn field(profile: &Profile, name: &str) -> &'static str {
    let tables = profile.words.iter().chain(profile.dialect.words);
    tables.map(|table| table.field).find(|field| *field == name).unwrap_or("finish_reason")
}

/// How bytes ended, from its word.
fn closed(word: &str) -> Option<Closed> {
    let all = [
        Closed::Open,
        Closed::Proven,
        Closed::Eof,
        Closed::Reset,
        Closed::Truncated,
        Closed::Unreachable(Unreachable::Refused),
        Closed::Unreachable(Unreachable::Dns),
        Closed::Unreachable(Unreachable::Blocked),
        Closed::Unreachable(Unreachable::Tls),
        Closed::Unreachable(Unreachable::Proxy),
        Closed::Unreachable(Unreachable::Other),
        Closed::TimedOut(Timer::Connect),
        Closed::TimedOut(Timer::FirstByte),
        Closed::TimedOut(Timer::Idle),
        Closed::TimedOut(Timer::Total),
        Closed::TimedOut(Timer::ClientWrite),
        Closed::ClientGone,
        Closed::Dropped,
        Closed::Error,
        Closed::Oversize,
        Closed::BrokenFrame,
        Closed::Interrupted,
        Closed::ShutDown,
    ];
    all.into_iter().find(|closed| closed.word() == word)
}

/// What content showed, from its words. How many is not kept, only whether.
fn shown(words: &[String]) -> Shown {
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
        nameless_tool_calls: count("nameless_tool_call"),
        bare_tool_calls: count("bare_tool_call"),
        approval: has("approval"),
        stop_sequence: has("stop_sequence"),
        unfinished_content: has("unfinished_content"),
        guardrail: has("guardrail"),
        breakdown: has("breakdown"),
        contradiction: has("contradiction"),
        at_cap: has("at_cap"),
        over_cap: has("over_cap"),
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
    use crate::provider;
    use crate::{Head, TransportEnd, Watcher};

    fn ended(provider: &provider::Provider, body: &str) -> (Ending, Record) {
        let mut reader = Watcher::new(provider, Head::default(), RequestInfo::default());
        reader.watch(body.as_bytes());
        let ending = reader.finish(TransportEnd::Eof);
        let mut record = Record::default();
        record.ask(&provider.main, &RequestInfo::default());
        record.end(&ending);
        (ending, record)
    }

    /// Words of users count again, and where they are not at hand nothing is judged.
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
        let asked =
            RequestInfo { model: Some("m".repeat(5000)), cap: Some(9), ..RequestInfo::default() };
        record.ask(&provider::OPENAI.main, &asked);
        assert_eq!(record.model.map(|model| model.len()), Some(MOST_TEXT));
        assert_eq!((record.reason.as_str(), record.closed.as_str()), ("cancelled", "interrupted"));
        assert_eq!(record.finish_reason.as_deref(), Some("cancel"));
    }

    /// A changed table without a raised [`RULES`] would leave records made before as they are.
    #[test]
    fn the_version_of_the_rules_is_that_of_the_tables() {
        let mut print = 0xcbf2_9ce4_8422_2325_u64;
        for profile in provider::ALL.iter().flat_map(|provider| provider.wires()) {
            for table in profile.words.iter().chain(profile.dialect.words) {
                for (word, reason) in table.rows {
                    for part in [profile.provider, table.field, word, reason.name()] {
                        for byte in part.bytes().chain([0]) {
                            print = (print ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
                        }
                    }
                }
            }
        }
        assert_eq!(
            (RULES, print),
            (2, 10_166_741_390_656_412_662),
            "the tables changed: raise RULES, and write both here"
        );
    }

    #[test]
    fn records_of_other_versions_are_read() {
        let record: Record =
            serde_json::from_str(r#"{"id":"x","new":1,"reason":"newer"}"#).unwrap();
        assert_eq!((record.id.as_str(), record.reason.as_str()), ("x", "newer"));
    }

    #[test]
    fn every_close_is_read_back() {
        for word in ["open", "proven", "timed_out_client", "unreachable", "interrupted"] {
            assert_eq!(closed(word).map(Closed::word), Some(word));
        }
        assert_eq!(closed("odd"), None);
    }
}
