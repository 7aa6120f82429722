//! A scenario gives the same verdict, confidence and signal on every wire that can express it,
//! streamed and plain. A table lists what a wire cannot express.

use std::collections::BTreeMap;

use endstop::dialect::{self, Dialect};
use endstop::provider::{self, Profile};
use endstop::signal::TerminationSignal;
use endstop::{Confidence, Ending, Head, Reason, RequestInfo, TransportEnd, Watcher};
use serde_json::json;

use crate::answer::{Answer, Content, builder, one_call};

const FAILURE: &str = "The server had an error while processing your request.";
const OVERFLOW: &str =
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.";

/// A scenario, the expected verdict, and the ways in which wires express it.
struct Scenario {
    name: &'static str,
    reason: Reason,
    termination: &'static str,
    stop: &'static str,
    says: &'static [Says],
}

/// A way to express a scenario. The first one that a wire has is used.
#[derive(Clone, Copy)]
enum Says {
    /// The finish reason, with this content.
    Word(fn() -> Content),
    /// A natural stop, with content that carries the meaning.
    Stop(fn() -> Content),
    /// An error body, with this status.
    ErrorBody(u16, &'static str),
    /// An error in the middle of a stream.
    ErrorFrame(&'static str),
    /// The bytes end early.
    Cut,
}

const fn text() -> Content {
    Content::Text
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "natural end",
        reason: Reason::Complete,
        termination: "natural_completion",
        stop: "EndTurn",
        says: &[Says::Word(text)],
    },
    Scenario {
        name: "stop sequence",
        reason: Reason::StopSequence,
        termination: "stop_sequence",
        stop: "EndTurn",
        says: &[Says::Word(text), Says::Stop(|| Content::Stopped)],
    },
    Scenario {
        name: "tool call",
        reason: Reason::ToolCall,
        termination: "natural_completion",
        stop: "ToolCall",
        says: &[Says::Word(one_call), Says::Stop(one_call)],
    },
    Scenario {
        name: "limit",
        reason: Reason::OutputLimit,
        termination: "token_limit_reached",
        stop: "MaxTokens",
        says: &[Says::Word(text), Says::Word(|| Content::Nothing)],
    },
    Scenario {
        name: "context limit",
        reason: Reason::ContextLimit,
        termination: "token_limit_reached",
        stop: "ContextWindowExceeded",
        says: &[Says::Word(text), Says::Word(|| Content::Nothing)],
    },
    Scenario {
        name: "refusal",
        reason: Reason::Refused,
        termination: "content_filtered",
        stop: "SafetyBlocked",
        says: &[Says::Word(text), Says::Stop(|| Content::Refusal)],
    },
    Scenario {
        name: "filter",
        reason: Reason::Filtered,
        termination: "content_filtered",
        stop: "SafetyBlocked",
        says: &[Says::Word(text)],
    },
    Scenario {
        name: "pause",
        reason: Reason::Paused,
        termination: "unknown",
        stop: "Unknown",
        says: &[Says::Word(text)],
    },
    Scenario {
        name: "error as word",
        reason: Reason::Failed,
        termination: "error_termination",
        stop: "Unknown",
        says: &[Says::Word(text), Says::Word(|| Content::Nothing)],
    },
    Scenario {
        name: "error as body",
        reason: Reason::Failed,
        termination: "error_termination",
        stop: "Unknown",
        says: &[Says::ErrorBody(500, FAILURE)],
    },
    Scenario {
        name: "error as frame",
        reason: Reason::Failed,
        termination: "error_termination",
        stop: "Unknown",
        says: &[Says::ErrorFrame(FAILURE)],
    },
    Scenario {
        name: "context limit as body",
        reason: Reason::ContextLimit,
        termination: "token_limit_reached",
        stop: "ContextWindowExceeded",
        says: &[Says::ErrorBody(400, OVERFLOW)],
    },
    Scenario {
        name: "context limit as frame",
        reason: Reason::ContextLimit,
        termination: "token_limit_reached",
        stop: "ContextWindowExceeded",
        says: &[Says::ErrorFrame(OVERFLOW)],
    },
    Scenario {
        name: "cut",
        reason: Reason::Cut,
        termination: "error_termination",
        stop: "Unknown",
        says: &[Says::Cut],
    },
];

/// Scenarios that a wire cannot express in either form, by the source that its dialect names. Wires
/// without a finish reason for tool calls use a natural stop, so only wires without tools are
/// listed.
const CANNOT: &[(&str, &[&str])] = &[
    ("openai-chat", &["context limit", "pause"]),
    ("openai-completions", &["tool call", "context limit", "refusal", "pause"]),
    ("openai-responses", &["stop sequence", "context limit", "pause"]),
    ("anthropic-messages", &["filter", "error as word"]),
    ("gemini-generate", &["stop sequence", "context limit", "refusal"]),
    ("bedrock-converse", &["refusal", "pause"]),
    ("cohere-v2", &["context limit", "filter", "refusal", "pause"]),
    (
        "ollama-chat",
        &["stop sequence", "context limit", "filter", "refusal", "pause", "error as word"],
    ),
    ("openai-assistants", &["stop sequence", "filter", "pause"]),
    (
        "anthropic-complete",
        &[
            "natural end",
            "tool call",
            "context limit",
            "filter",
            "refusal",
            "pause",
            "error as word",
        ],
    ),
    ("gemini-interactions", &["stop sequence", "context limit", "filter", "refusal"]),
    ("bedrock-nova", &["refusal", "pause"]),
    ("bedrock-titan", &["tool call", "context limit", "refusal", "pause"]),
    (
        "bedrock-llama",
        &[
            "stop sequence",
            "tool call",
            "context limit",
            "filter",
            "refusal",
            "pause",
            "error as word",
        ],
    ),
    (
        "bedrock-mistral",
        &["stop sequence", "context limit", "filter", "refusal", "pause", "error as word"],
    ),
    ("bedrock-cohere", &["stop sequence", "tool call", "context limit", "refusal", "pause"]),
    (
        "bedrock-ai21",
        &[
            "tool call",
            "context limit",
            "filter",
            "refusal",
            "pause",
            "error as word",
            // This wire has no streams.
            "error as frame",
            "context limit as frame",
        ],
    ),
    ("cohere-v1", &["refusal", "pause"]),
    ("watsonx", &["tool call", "filter", "refusal", "pause"]),
    (
        "dashscope",
        &["stop sequence", "context limit", "filter", "refusal", "pause", "error as word"],
    ),
    (
        "replicate",
        &[
            // `succeeded` and `done` are also sent at the token limit, so both are vague.
            "natural end",
            "stop sequence",
            "tool call",
            "limit",
            "context limit",
            "filter",
            "refusal",
            "pause",
        ],
    ),
    ("hf-tgi", &["tool call", "context limit", "filter", "refusal", "pause", "error as word"]),
    (
        "llamacpp-completion",
        &["tool call", "context limit", "filter", "refusal", "pause", "error as word"],
    ),
    (
        "aleph-alpha-complete",
        &["tool call", "context limit", "filter", "refusal", "pause", "error as word"],
    ),
    ("sap-orchestration", &["context limit", "pause"]),
    (
        "cloudflare-run",
        &["stop sequence", "context limit", "filter", "refusal", "pause", "error as word"],
    ),
];

const NO_STREAM: &str = "ai21 4.3.0: the J2 models answer in one body";

/// Scenarios that one form of a wire cannot express, with the reason.
const CANNOT_IN: &[(&str, &str, &str, &str)] = &[
    ("openai-assistants", "plain", "natural end", "a polled run has no text"),
    ("openai-assistants", "plain", "refusal", "a polled run has no text"),
    ("bedrock-ai21", "streamed", "natural end", NO_STREAM),
    ("bedrock-ai21", "streamed", "stop sequence", NO_STREAM),
    ("bedrock-ai21", "streamed", "limit", NO_STREAM),
    ("bedrock-ai21", "streamed", "cut", NO_STREAM),
];

/// Returns the finish reasons of a wire that plainly mean this reason.
fn words(dialect: &'static Dialect, reason: Reason) -> Vec<(&'static str, &'static str)> {
    let tables = dialect.words.iter();
    let rows =
        tables.flat_map(|words| words.rows.iter().map(move |(word, known)| (words, *word, *known)));
    rows.filter(|(words, word, known)| *known == reason && !words.vague.contains(word))
        .map(|(words, word, _)| (words.field, word))
        .collect()
}

/// A response with the scenario.
struct Trial {
    status: u16,
    bytes: Vec<u8>,
}

/// Returns the bytes of a form of an answer with one of these finish reasons.
fn answered(
    dialect: &'static Dialect,
    form: &str,
    words: Vec<(&'static str, &'static str)>,
    content: &Content,
) -> Option<Vec<u8>> {
    words.into_iter().find_map(|(field, word)| {
        let answer =
            Answer { dialect, field, word: json!(word), content: content.clone(), piece: 3 };
        if form == "plain" { answer.body() } else { answer.stream() }
    })
}

impl Says {
    fn trial(self, dialect: &'static Dialect, form: &str, reason: Reason) -> Option<Trial> {
        let ok = |bytes| Trial { status: 200, bytes };
        let answered =
            |reason, content: &Content| answered(dialect, form, words(dialect, reason), content);
        match self {
            Self::Word(content) => answered(reason, &content()).map(ok),
            Self::Stop(content) => answered(Reason::Complete, &content()).map(ok),
            Self::ErrorBody(status, message) => (form == "plain").then(|| Trial {
                status,
                bytes: builder(dialect.id).error_body(message).to_string().into_bytes(),
            }),
            Self::ErrorFrame(message) => {
                let frame = || builder(dialect.id).error_frame(message).map(ok);
                (form == "streamed").then(frame).flatten()
            }
            Self::Cut => cut(dialect, form).map(ok),
        }
    }
}

/// Returns the first third of a stream of the wire, or the first half of a plain body.
fn cut(dialect: &'static Dialect, form: &str) -> Option<Vec<u8>> {
    let reasons = [Reason::Complete, Reason::StopSequence, Reason::OutputLimit];
    let rows =
        dialect.words.iter().flat_map(|words| words.rows.iter().map(|row| (words.field, row.0)));
    let plain: Vec<_> =
        reasons.iter().flat_map(|reason| words(dialect, *reason)).chain(rows).collect();
    let wordless =
        Answer { dialect, field: "", word: json!(null), content: Content::Text, piece: 3 };
    let unsaid = || if form == "plain" { wordless.body() } else { wordless.stream() };
    // A polled run has no text.
    let said = |content| answered(dialect, form, Vec::clone(&plain), content);
    let mut bytes = said(&Content::Text).or_else(|| said(&Content::Nothing)).or_else(unsaid)?;
    bytes.truncate(bytes.len() / if form == "plain" { 2 } else { 3 });
    Some(bytes)
}

fn read(profile: &Profile, trial: &Trial, close: TransportEnd) -> Ending {
    let head = Head { status: trial.status, content_type: "" };
    let mut reader = Watcher::new(profile, head, RequestInfo::default());
    reader.watch(&trial.bytes);
    reader.finish(close)
}

/// Returns the parts of a signal that do not depend on the provider.
fn common(ending: &Ending) -> (bool, String, Reason, Confidence, BTreeMap<String, String>) {
    let signal = TerminationSignal::from(ending);
    let vocabularies = signal.vocabularies.iter();
    // If nothing better is known, a vocabulary returns the provider's finish reason in brackets.
    let bare = |word: &Option<String>| {
        let word = word.as_deref().unwrap_or("null");
        word.split('(').next().unwrap_or_default().to_owned()
    };
    (
        signal.should_terminate,
        signal.reason.clone(),
        signal.ending,
        signal.confidence,
        vocabularies.map(|(name, word)| (name.clone(), bare(word))).collect(),
    )
}

#[test]
fn the_same_scenario_reads_the_same_on_every_wire() {
    let mut wrong = Vec::new();
    let mut read_of = BTreeMap::<&str, usize>::new();
    for scenario in SCENARIOS {
        let mut first = None;
        for (dialect, form) in wires() {
            let profile = profile(dialect);
            let mut says = scenario.says.iter();
            let Some(trial) = says.find_map(|says| says.trial(dialect, form, scenario.reason))
            else {
                continue;
            };
            *read_of.entry(scenario.name).or_default() += 1;
            let ending = read(profile, &trial, TransportEnd::Eof);
            let (stop, got) = (ending.stop_reason().to_string(), common(&ending));
            let stops = stop == scenario.stop || stop.starts_with(&format!("{}(", scenario.stop));
            let right = got.2 == scenario.reason
                && got.1 == scenario.termination
                && got.0
                && got.3 == Confidence::High
                && stops;
            if !right || *first.get_or_insert_with(|| got.clone()) != got {
                wrong.push(format!(
                    "{} {form} and {}: {got:?} {stop:?}: {}\n    {}",
                    dialect.id,
                    scenario.name,
                    ending.sentence,
                    String::from_utf8_lossy(&trial.bytes)
                ));
            }
        }
    }
    println!("{read_of:?}");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The tables list exactly what each wire cannot express.
#[test]
fn what_a_wire_cannot_say_is_listed() {
    let mut wrong = Vec::new();
    for dialect in dialect::ALL {
        assert!(!dialect.source.is_empty(), "{} has no source", dialect.id);
        let cannot = CANNOT.iter().find(|(id, _)| *id == dialect.id);
        let Some((_, cannot)) = cannot else {
            wrong.push(format!("{}: it is not listed", dialect.id));
            continue;
        };
        println!("{}: not {} ({})", dialect.id, cannot.join(", "), dialect.source);
        for scenario in SCENARIOS {
            let says = |form: &str| {
                scenario
                    .says
                    .iter()
                    .any(|says| says.trial(dialect, form, scenario.reason).is_some())
            };
            let (streamed, plain) = (says("streamed"), says("plain"));
            if (streamed || plain) == cannot.contains(&scenario.name) {
                wrong.push(format!(
                    "{} and {}: streamed {streamed}, plain {plain}",
                    dialect.id, scenario.name
                ));
            }
            let both = scenario
                .says
                .iter()
                .all(|says| matches!(says, Says::Word(_) | Says::Stop(_) | Says::Cut));
            for (form, can) in [("streamed", streamed), ("plain", plain)] {
                let named = CANNOT_IN.iter().any(|(id, known, name, _)| {
                    (*id, *known, *name) == (dialect.id, form, scenario.name)
                });
                let due = both && (streamed || plain) && !can;
                if due != named {
                    wrong.push(format!("{} {form} and {}: can {can}", dialect.id, scenario.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A truncated response and a broken connection give the same verdict on every wire.
#[test]
fn a_broken_connection_reads_the_same_on_every_wire() {
    for dialect in dialect::ALL {
        let Some(bytes) = cut(dialect, "streamed") else { continue };
        let trial = Trial { status: 200, bytes };
        for close in [TransportEnd::Eof, TransportEnd::Reset] {
            let ending = read(profile(dialect), &trial, close);
            assert_eq!(
                (ending.reason, ending.confidence),
                (Reason::Cut, Confidence::High),
                "{}: {}",
                dialect.id,
                ending.sentence
            );
        }
    }
}

fn profile(dialect: &Dialect) -> &'static Profile {
    provider::ALL.iter().find_map(|known| known.wire_of(dialect.id)).unwrap()
}

fn wires() -> impl Iterator<Item = (&'static Dialect, &'static str)> {
    dialect::ALL.iter().flat_map(|dialect| [(*dialect, "streamed"), (*dialect, "plain")])
}
