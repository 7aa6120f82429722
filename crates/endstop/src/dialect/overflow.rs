//! Recognises messages that say that the input does not fit the context window.
//!
//! Every server words this error in its own way, so the rule is a small grammar and not a list of
//! messages. A sentence says so if it speaks of tokens or of the window and says that something
//! exceeds something, or if it states the size of the window. A sentence about the output alone does
//! not, nor does a message about a rate, a quota or a deadline.

use crate::fault::FaultKind;

/// Words of messages about something else, which speak of tokens or of a context too.
const ELSEWHERE: &[&str] = &[
    " per minute",
    " per min ",
    " per second",
    " per hour",
    " per day",
    " per month",
    " tpm ",
    " tpd ",
    " rpm ",
    " rate limit",
    " quota",
    " credit",
    " afford",
    " billing",
    " balance",
    " daily ",
    " monthly ",
    " deadline",
    " please wait",
    " before trying again",
    " retry after",
    " stop sequence",
    " audio input",
];

/// Names of the context window.
const WINDOW: &[&str] = &[
    " context length",
    " context window",
    " context size",
    " context limit",
    " context len ",
    " max context",
    " maximum context",
    " model context",
    " sequence length",
    " model length",
    " prompt length",
    " input length",
    " input limit",
    " model max length",
    " session max length",
    " max_seq_len",
    "\u{4e0a}\u{4e0b}\u{6587}",
    "\u{8f93}\u{5165}\u{957f}\u{5ea6}",
];

/// Names of what fills the window, counted.
const TOKENS: &[&str] = &[
    " tokens ",
    " prompt_tokens ",
    " token limit",
    " token count",
    " token length",
    " token size",
    " token number",
];

/// Names of the input.
const INPUT: &[&str] =
    &[" input", " prompt", " message", " conversation", " history", " query ", " text "];

/// Fields of requests that limit the output.
const OUTPUT_LIMIT: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxoutputtokens",
    "max_new_tokens",
    "maxtokens",
    // Bedrock: "The maximum tokens you requested exceeds the model limit of 2048."
    "maximum tokens you requested",
];

/// Names of the output.
const OUTPUT: &[&str] = &[" output", " completion", " response "];

/// Words that say that something is larger than something else.
const EXCEEDS: &[&str] = &[
    " exceed",
    " too long",
    " too large",
    " too many",
    " too big",
    " longer than",
    " greater than",
    " larger than",
    " bigger than",
    " more than",
    " above ",
    " beyond ",
    " over the ",
    " surpass",
    " overflow",
    " > ",
    " <= ",
    " less than",
    " fewer than",
    " not fit",
    " cannot fit",
    " doesnt fit",
    " only supports",
    " supports up to",
    " supports at most",
    " limited to ",
    "\u{8d85}\u{8fc7}",
    "\u{8d85}\u{51fa}",
    "\u{8d85}\u{957f}",
    "\u{8fc7}\u{957f}",
];

/// Names of the input of which it is said that they are too long.
const TOO_LONG: &[&str] =
    &[" prompt", " input", " inputs", " conversation", " context", " history", " tokens"];

/// Words beside the size of the window.
const BOUND: &[&str] = &[
    " max",
    " limit",
    " only ",
    " just ",
    " allowed",
    " up to ",
    " at most ",
    " configured",
    " supported",
    " requested",
    " range of ",
];

/// Messages that the grammar does not cover, in lower case.
const LITERALS: &[&str] = &[
    "total length of all messages is too long",
    "prompt exceeds max length",
    "reduce the length of the messages",
    "context_length_exceeded",
    "contextwindowexceedederror",
    // GitHub Models: "Request body too large for gpt-4o model. Max size: 8000 tokens."
    " model. max size: ",
    // NovelAI: "has 2048 tokens maximum, 2584 tokens context requested".
    "tokens maximum,",
    // llama.cpp.
    "n_keep:",
    // Cerebras: "Current length is 42328 while limit is 40000".
    "while limit is",
    // vLLM 0.4: the input leaves no room, and the limit that is left is negative (vllm#4667).
    "max_tokens must be at least 1, got -",
];

/// Returns the kind of error that a message in lower case describes, if it is about the context
/// window or about the request's output limit.
pub(super) fn kind_of(message: &str) -> Option<FaultKind> {
    if mentions(&normal(message), ELSEWHERE) {
        return None;
    }
    for sentence in message.split(['\n', '!']).flat_map(|line| line.split(". ")) {
        match Sentence::read(&normal(sentence)) {
            Sentence::Overflow => return Some(FaultKind::ContextWindow),
            // The rest of the message explains this limit.
            Sentence::LimitTooLarge => return Some(FaultKind::InvalidRequest),
            Sentence::OutputTooLarge => return None,
            Sentence::Other => {}
        }
    }
    let is_literal = LITERALS.iter().any(|literal| message.contains(literal));
    is_literal.then_some(FaultKind::ContextWindow)
}

/// Meaning of a sentence.
enum Sentence {
    /// The input, perhaps together with the output, does not fit the window.
    Overflow,
    /// The request allows more output than the model can write.
    LimitTooLarge,
    /// The output is too large.
    OutputTooLarge,
    Other,
}

impl Sentence {
    fn read(words: &str) -> Self {
        let (window, exceeds) = (mentions(words, WINDOW), mentions(words, EXCEEDS));
        let is_limit = mentions(words, OUTPUT_LIMIT);
        if !mentions(words, INPUT) && (is_limit || mentions(words, OUTPUT)) {
            return match exceeds {
                true if is_limit => Self::LimitTooLarge,
                true => Self::OutputTooLarge,
                false => Self::Other,
            };
        }
        let is_about = window || mentions(words, TOKENS) || is_too_long(words);
        let states_window = window
            && mentions(words, BOUND)
            && words.contains(|letter: char| letter.is_ascii_digit());
        if is_about && exceeds || states_window { Self::Overflow } else { Self::Other }
    }
}

/// Returns the words of a text, with a space before and after each. Apostrophes and quotes are
/// dropped, and so is all punctuation that is not part of a name or a comparison.
fn normal(text: &str) -> String {
    let mut words = String::from(" ");
    for letter in text.chars() {
        match letter {
            '\'' | '\u{2019}' | '`' | '"' => {}
            '_' | '<' | '>' | '=' => words.push(letter),
            _ if letter.is_alphanumeric() => words.push(letter),
            _ if words.ends_with(' ') => {}
            _ => words.push(' '),
        }
    }
    words.push(' ');
    words
}

fn mentions(words: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| words.contains(phrase))
}

/// Reports whether words say that the input is too long, without a unit.
fn is_too_long(words: &str) -> bool {
    words.match_indices(" too ").any(|(at, too)| {
        let (before, after) = (words.get(..at), words.get(at + too.len()..));
        let before = before.map_or("", |before| before.strip_suffix(" is").unwrap_or(before));
        let is_long = ["long ", "large ", "big "]
            .iter()
            .any(|size| after.is_some_and(|after| after.starts_with(size)));
        let other = [" image input", " audio input", " video input", " file input"];
        let is_input = TOO_LONG.iter().any(|name| before.ends_with(name));
        is_long && is_input && !other.iter().any(|name| before.ends_with(name))
    })
}
