//! The same scenario reads the same on every wire that can say it; what a wire cannot say is a table.

use endstop::dialect::{self, Dialect};
use endstop::provider::{self, Profile};
use endstop::vocabulary::Vocabulary;
use endstop::{Asked, Close, Confidence, Ending, Head, Reader, Reason};
use serde_json::json;

use crate::agree::{Answer, Content};

/// What happened, the reason that says it, and what every wire must make of it.
const SCENARIOS: &[(&str, Reason, Content, &str, &str)] = &[
    ("natural end", Reason::Complete, Content::Text, "natural_completion", "EndTurn"),
    ("tool call", Reason::ToolCall, Content::Call, "natural_completion", "ToolCall"),
    ("limit", Reason::OutputLimit, Content::Text, "token_limit_reached", "MaxTokens"),
    (
        "full window",
        Reason::ContextLimit,
        Content::Text,
        "token_limit_reached",
        "ContextWindowExceeded",
    ),
    ("filter", Reason::Filtered, Content::Text, "content_filtered", "SafetyBlocked"),
    ("refusal", Reason::Refused, Content::Text, "content_filtered", "SafetyBlocked"),
    ("pause", Reason::Paused, Content::Text, "unknown", "Unknown"),
    ("error", Reason::Failed, Content::Text, "error_termination", "Unknown"),
];

/// What the words of a wire cannot say. A tool call is said by a natural stop where there is no word
/// for it, so that only wires without tools are listed for it.
const CANNOT: &[(&str, &[&str])] = &[
    ("openai-chat", &["full window", "refusal", "pause", "error"]),
    ("openai-completions", &["tool call", "full window", "refusal", "pause", "error"]),
    ("openai-responses", &["full window", "refusal", "pause"]),
    ("anthropic-messages", &["filter", "error"]),
    ("gemini-generate", &["full window", "refusal"]),
    ("bedrock-converse", &["refusal", "pause"]),
    ("cohere-v2", &["full window", "filter", "refusal", "pause"]),
    ("ollama-chat", &["full window", "filter", "refusal", "pause", "error"]),
    (
        "anthropic-complete",
        &["natural end", "tool call", "full window", "filter", "refusal", "pause", "error"],
    ),
    ("gemini-interactions", &["full window", "filter", "refusal"]),
    ("bedrock-nova", &["refusal", "pause"]),
    ("bedrock-titan", &["tool call", "full window", "refusal", "pause"]),
    ("bedrock-llama", &["tool call", "full window", "filter", "refusal", "pause", "error"]),
    ("bedrock-mistral", &["full window", "filter", "refusal", "pause", "error"]),
    ("bedrock-cohere", &["tool call", "full window", "refusal", "pause"]),
    ("cohere-v1", &["refusal", "pause"]),
    ("watsonx", &["tool call", "filter", "refusal", "pause"]),
    ("dashscope", &["full window", "filter", "refusal", "pause", "error"]),
    ("hf-tgi", &["tool call", "full window", "filter", "refusal", "pause", "error"]),
    ("llamacpp-completion", &["tool call", "full window", "filter", "refusal", "pause", "error"]),
    (
        "cloudflare-run",
        &[
            "natural end",
            "tool call",
            "limit",
            "full window",
            "filter",
            "refusal",
            "pause",
            "error",
        ],
    ),
];

/// Wires whose streams and bodies are not alike, so that no builder makes both; their cases in
/// `corpus/` hold them.
const UNBUILT: &[&str] = &["openai-assistants", "bedrock-ai21", "replicate"];

/// The word by which a wire says a reason, plainly.
fn word(dialect: &'static Dialect, reason: Reason) -> Option<(&'static str, &'static str)> {
    let wanted = |known: &Reason| {
        *known == reason || reason == Reason::ToolCall && *known == Reason::Complete
    };
    // A word for tool calls before a natural stop that stands for them.
    let mut found: Vec<_> = dialect
        .words
        .iter()
        .flat_map(|words| words.rows.iter().map(move |(word, known)| (words, *word, *known)))
        .filter(|(words, word, known)| wanted(known) && !words.vague.contains(word))
        .collect();
    found.sort_by_key(|(_, _, known)| *known != reason);
    found.first().map(|(words, word, _)| (words.field, *word))
}

fn read(profile: &Profile, bytes: &[u8], close: Close) -> Ending {
    let mut reader = Reader::new(profile, Head { status: 200, content_type: "" }, Asked::default());
    reader.watch(bytes);
    reader.finish(close)
}

#[test]
fn the_same_scenario_reads_the_same_on_every_wire() {
    let mut wrong = Vec::new();
    for dialect in dialect::ALL.iter().filter(|dialect| !UNBUILT.contains(&dialect.id)) {
        let profile = provider::ALL.iter().find_map(|known| known.wire_of(dialect.id)).unwrap();
        let cannot =
            CANNOT.iter().find(|(id, _)| *id == dialect.id).map_or(&[][..], |(_, cannot)| cannot);
        for (name, reason, content, termination, stop) in SCENARIOS {
            let answer = word(dialect, *reason)
                .map(|(field, word)| Answer {
                    dialect,
                    field,
                    word: json!(word),
                    content: *content,
                })
                .filter(Answer::exists);
            if answer.is_none() != cannot.contains(name) {
                wrong.push(format!(
                    "{} and {name}: the table of what it cannot say is wrong",
                    dialect.id
                ));
            }
            let Some(answer) = answer else { continue };
            for bytes in [answer.stream(), answer.body().to_string().into_bytes()] {
                let ending = read(profile, &bytes, Close::Eof);
                let stop_word = ending.stop_reason().to_string();
                let same = Vocabulary::Termination.spell(ending.reason) == *termination
                    && (stop_word == *stop || stop_word.starts_with(&format!("{stop}(")))
                    && ending.confidence == Confidence::High;
                if !same {
                    wrong.push(format!(
                        "{} and {name}: {:?} {:?}: {}",
                        dialect.id, ending.reason, ending.confidence, ending.sentence
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A cut and a broken connection can happen on every wire, and read the same on each.
#[test]
fn a_cut_reads_the_same_on_every_wire() {
    for dialect in dialect::ALL {
        let profile = provider::ALL.iter().find_map(|known| known.wire_of(dialect.id)).unwrap();
        let Some((field, word)) = word(dialect, Reason::Complete) else { continue };
        let answer = Answer { dialect, field, word: json!(word), content: Content::Text };
        if !answer.exists() {
            continue;
        }
        let bytes = answer.stream();
        let half = &bytes[..bytes.len() / 3];
        for close in [Close::Eof, Close::Reset] {
            let ending = read(profile, half, close);
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
