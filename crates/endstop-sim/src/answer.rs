//! Wire-independent model of a response. Each wire encodes it.

use serde_json::Value;

use crate::json::Json;
use crate::sim_request::{SimRequest, Tool, Way};
use crate::story;

/// Complete answer of the simulated model, about 200 tokens. A token is a word with the space
/// before it.
const ANSWER: &str = "An endstop is a small switch at the end of an axis. When the carriage of \
a machine reaches it, the switch closes and the motor is told to halt. Without it the machine \
would not know where it is, and would push against its own frame until a belt slips or a screw \
breaks. The switch says nothing about why the carriage came so far. It may have finished its \
work, it may have been sent too far by a wrong number, or somebody may have moved it by hand \
while the power was off. The controller has to put the pieces together: what it had asked for, \
how many steps were made, and whether the switch closed in time. A careful controller backs off \
a little, comes again more slowly, and compares both readings before it believes them. A careless \
one takes the first click for the truth and begins to cut. Most of the time both produce the same \
part, and nobody can tell them apart. The difference shows on the day when a wire is loose, and \
then it is as large as the difference between a part and a pile of chips.";

/// Text with many multi-byte characters, to test splits inside a character.
const FAR: &str = "Grüße aus Zürich – naïve façades, 日本語の文章、 한국어 문장, Ελληνικά, \
עברית, emoji 🙂🧑‍🚀 and a e\u{301} that is two characters.";

/// Response: its choices and the usage.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) choices: Vec<Choice>,
    pub(crate) usage: Option<Usage>,
    /// Whether pieces that a wire usually sends together come one by one, so that a stream can end
    /// between them.
    pub(crate) split: bool,
    /// Whether every event has the finish reason of a normal stop, as some hosts send it.
    pub(crate) word_everywhere: bool,
    /// Whether the last text and the finish reason come in one event.
    pub(crate) merged: bool,
}

/// Content and end of one choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) reasoning: Vec<String>,
    pub(crate) text: Vec<String>,
    /// Whether the text is a refusal, in the wire's field for refusals if it has one.
    pub(crate) refuses: bool,
    /// Whether the provider ran one of its own tools.
    pub(crate) server_tool: bool,
    pub(crate) calls: Vec<Call>,
    pub(crate) end: End,
    /// Token with which the provider continues the turn.
    pub(crate) token: Option<String>,
}

/// Tool call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    /// Namespace of the tool, on the Responses wire.
    pub(crate) namespace: Option<String>,
    /// Arguments, in the pieces in which they are streamed.
    pub(crate) pieces: Vec<String>,
    /// Whether the arguments are complete.
    pub(crate) whole: bool,
}

impl Call {
    pub(crate) fn arguments(&self) -> String {
        self.pieces.concat()
    }
}

/// Reason for the end of a choice. Each wire uses its own or its nearest finish reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum End {
    /// Normal stop.
    #[default]
    Stop,
    /// Stop sequence.
    StopSequence(String),
    /// Token limit.
    Length,
    /// Tool calls to run.
    ToolCall,
    /// Content filter.
    Filter,
    /// Refusal by the model.
    Refusal,
    /// Full context window.
    Context,
    /// Failure.
    Failed,
    /// This value as the finish reason.
    Said(Json),
    /// No finish reason.
    Nothing,
}

/// Token usage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    /// All output tokens, including reasoning.
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
}

/// Splits a text into tokens: words with the space before them.
pub(crate) fn tokens(text: &str) -> Vec<String> {
    let word =
        |(at, word): (usize, &str)| if at == 0 { word.to_owned() } else { format!(" {word}") };
    text.split(' ').enumerate().map(word).collect()
}

/// Returns a complete response to this request, within its limits.
pub(crate) fn natural(ask: &SimRequest) -> Answer {
    let said = match ask.way {
        // A prompt holds the beginning of the answer.
        Way::Exact if ask.said.is_empty() => story::begun(ANSWER, &ask.asked).unwrap_or_default(),
        Way::New | Way::Exact | Way::Echoed | Way::Remembered | Way::Hinted | Way::At(_) => {
            &ask.said
        }
    };
    let choice = limited(ask, Choice { text: rest_of_answer(said), ..Choice::default() });
    let mut answer = Answer {
        choices: vec![choice; usize::try_from(ask.choices.clamp(1, 16)).unwrap_or(1)],
        usage: None,
        split: false,
        word_everywhere: false,
        merged: false,
    };
    answer.count(ask);
    answer
}

/// Returns a short response, as after a tool result.
pub(crate) fn short(ask: &SimRequest) -> Answer {
    let mut answer = natural(ask);
    let text = tokens("Done: the tool has run, and its result was read.");
    answer.choices = vec![limited(ask, Choice { text, ..Choice::default() })];
    answer.count(ask);
    answer
}

/// Returns the rest of the answer if the history holds a beginning of it, else all of it.
fn rest_of_answer(said: &str) -> Vec<String> {
    let said = said.trim();
    match ANSWER.strip_prefix(said) {
        Some(rest) if !said.is_empty() && !rest.is_empty() => {
            let mut rest = tokens(rest.trim_start());
            if let Some(first) = rest.first_mut().filter(|_| !said.ends_with(' ')) {
                first.insert(0, ' ');
            }
            rest
        }
        Some(_) | None => tokens(ANSWER),
    }
}

/// Ends the choice at a stop sequence or at the token limit, whichever comes first.
pub(crate) fn limited(ask: &SimRequest, mut choice: Choice) -> Choice {
    if let Some((text, sequence)) = stopped(&choice.text, &ask.stop) {
        choice.text = text;
        choice.end = End::StopSequence(sequence);
    }
    if let Some(cap) = ask.cap.and_then(|cap| usize::try_from(cap).ok())
        && cap < choice.text.len()
    {
        choice.text.truncate(cap);
        choice.end = End::Length;
    }
    choice
}

fn stopped(text: &[String], stop: &[String]) -> Option<(Vec<String>, String)> {
    let whole = text.concat();
    let found = stop.iter().filter(|sequence| !sequence.is_empty());
    let found = found.filter_map(|sequence| Some((whole.find(sequence.as_str())?, sequence)));
    let (at, sequence) = found.min_by_key(|(at, _)| *at)?;
    let kept = whole.get(..at).unwrap_or_default();
    let kept = if kept.is_empty() { Vec::new() } else { tokens(kept) };
    Some((kept, sequence.clone()))
}

impl Answer {
    /// Sets the usage to the tokens that the response holds.
    pub(crate) fn count(&mut self, ask: &SimRequest) {
        let pieces =
            |choice: &Choice| choice.calls.iter().map(|call| call.pieces.len()).sum::<usize>();
        let visible = |choice: &Choice| (choice.text.len() + pieces(choice)) as u64;
        let reasoning = self.choices.iter().map(|choice| choice.reasoning.len() as u64).sum();
        let output = self.choices.iter().map(visible).sum::<u64>() + reasoning;
        self.usage = Some(Usage { input: ask.input.max(1), output, reasoning });
    }

    /// Reports whether a choice has tool calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.choices.iter().any(|choice| !choice.calls.is_empty())
    }

    /// Returns the first choice; wires without choices have only one.
    pub(crate) fn first_choice(&self) -> Choice {
        self.choices.first().cloned().unwrap_or_default()
    }

    /// Applies a change to every choice.
    pub(crate) fn each(&mut self, change: impl Fn(&mut Choice)) {
        self.choices.iter_mut().for_each(change);
    }
}

/// Returns the first `count` tokens of the answer.
pub(crate) fn some(count: usize) -> Vec<String> {
    tokens(ANSWER).into_iter().take(count).collect()
}

/// Returns text with many multi-byte characters.
pub(crate) fn far() -> Vec<String> {
    tokens(FAR)
}

/// Returns some reasoning.
pub(crate) fn thoughts() -> Vec<String> {
    tokens(
        "The user wants an explanation. Let me think about what a switch at the end of an axis is for",
    )
}

/// Returns a call of this tool, with arguments made from its schema, in pieces. Parameters that take
/// a shell command get this one.
pub(crate) fn call(tool: &Tool, command: Option<&str>) -> Call {
    let command = command.unwrap_or("echo alpha beta gamma delta");
    let arguments = match (Filler { command }).fill("", &tool.schema, 0) {
        Json::Object(pairs) => Json::Object(pairs).to_string(),
        Json::Null
        | Json::Bool(_)
        | Json::Number(_)
        | Json::Float(_)
        | Json::Text(_)
        | Json::List(_)
        | Json::Raw(_) => "{}".to_owned(),
    };
    Call { pieces: pieces(&arguments, 8), ..call_with(tool, "") }
}

/// Returns a call of this tool with this text as its arguments, in one piece or in none.
pub(crate) fn call_with(tool: &Tool, arguments: &str) -> Call {
    let pieces = if arguments.is_empty() { Vec::new() } else { vec![arguments.to_owned()] };
    Call { name: tool.name.clone(), namespace: tool.namespace.clone(), pieces, whole: true }
}

/// Splits a text into pieces of `size` characters.
fn pieces(text: &str, size: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(size).map(|piece| piece.iter().collect()).collect()
}

/// Fills in the arguments of a call.
struct Filler<'a> {
    /// Value of parameters that take a shell command.
    command: &'a str,
}

impl<'a> Filler<'a> {
    /// Returns a value that matches the schema.
    fn fill(&self, name: &str, schema: &Value, depth: usize) -> Json {
        if depth > 8 {
            return Json::Null;
        }
        if let Some(first) =
            schema.get("enum").and_then(Value::as_array).and_then(|all| all.first())
        {
            return Json::Raw(first.to_string());
        }
        if let Some(constant) = schema.get("const") {
            return Json::Raw(constant.to_string());
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            if let Some(first) =
                schema.get(key).and_then(Value::as_array).and_then(|all| all.first())
            {
                return self.fill(name, first, depth + 1);
            }
        }
        match kind(schema).as_str() {
            "object" => self.filled_object(schema, depth),
            "array" => {
                let item = schema.get("items").cloned().unwrap_or(Value::Null);
                Json::List(vec![self.fill(name, &item, depth + 1)])
            }
            "integer" => Json::Number(42),
            "number" => Json::Float(4.5),
            "boolean" => Json::Bool(true),
            "null" => Json::Null,
            _ => Json::from(self.text_for(name)),
        }
    }

    fn filled_object(&self, schema: &Value, depth: usize) -> Json {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Json::Object(Vec::new());
        };
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let wanted = |name: &str| required.is_empty() || required.contains(&name);
        // The `required` list keeps the order that people wrote; the parsed `properties` may not.
        let mut names: Vec<&str> =
            required.iter().copied().filter(|name| properties.contains_key(*name)).collect();
        let others: Vec<&str> = properties
            .keys()
            .map(String::as_str)
            .filter(|name| wanted(name) && !names.contains(name))
            .collect();
        names.extend(others);
        let pair = |name: &str| {
            let schema = properties.get(name).unwrap_or(&Value::Null);
            (name.to_owned(), self.fill(name, schema, depth + 1))
        };
        Json::Object(names.into_iter().map(pair).collect())
    }

    fn text_for(&self, name: &str) -> &'a str {
        match name {
            "path" | "file" | "file_path" | "filename" => "note.txt",
            "content" | "contents" | "text" | "body" => {
                "The carriage reached the switch, and the motor was told to halt."
            }
            "city" | "location" => "Zurich",
            "command" | "cmd" => self.command,
            "url" => "https://example.com/alpha",
            _ => "alpha beta gamma delta",
        }
    }
}

/// Returns the type of a schema, in lower case. Gemini writes it in capitals, others give a list.
fn kind(schema: &Value) -> String {
    let named = match schema.get("type") {
        Some(Value::String(name)) => name.to_lowercase(),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("").into()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            String::new()
        }
    };
    if named.is_empty() && schema.get("properties").is_some() { "object".to_owned() } else { named }
}

/// Truncates the arguments of a call so that they no longer parse.
pub(crate) fn halved(call: &mut Call) {
    let half = (call.pieces.len() / 2).max(1);
    if call.pieces.len() < 2 {
        let text = call.arguments();
        let kept: String = text.chars().take(text.chars().count() / 2).collect();
        call.pieces = vec![if kept.is_empty() { "{".to_owned() } else { kept }];
    } else {
        call.pieces.truncate(half);
    }
    call.whole = false;
}

/// Returns the arguments as a JSON value; an empty object if they are missing or incomplete.
pub(crate) fn value(call: &Call) -> Json {
    let is_value = call.whole && !call.pieces.is_empty();
    Json::Raw(if is_value { call.arguments() } else { "{}".to_owned() })
}
