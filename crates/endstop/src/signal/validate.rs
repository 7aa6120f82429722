//! Validation of signals from other programs.

use std::fmt;

use serde_json::{Map, Value};

use super::{Metadata, TerminationSignal};
use crate::ending::{Confidence, Reason};
use crate::text::{WORD_CAP, clean};
use crate::vocabulary::{NormalizedStopReason, VOCABULARIES, Vocabulary};

/// One problem of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Field, such as `provider_specific.original_value`; empty for the whole signal.
    pub field: String,
    /// Description of the invalid value.
    pub wrong: String,
    /// Description of the allowed values.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() { "signal" } else { &self.field };
        write!(out, "invalid `{field}`: {}; expected {}", self.wrong, self.allowed)
    }
}

impl std::error::Error for Problem {}

/// Reads a signal from the JSON of another program.
///
/// ```
/// use endstop::signal::{TerminationSignal, validate};
/// use endstop::{Confidence, Reason};
///
/// let signal = TerminationSignal::new(Reason::Complete, Confidence::High);
/// let mut json = serde_json::to_value(&signal)?;
/// assert_eq!(validate(&json), Ok(signal));
/// json["confidence"] = "sure".into();
/// let problems = validate(&json).unwrap_err();
/// assert_eq!(
///     problems[0].to_string(),
///     "invalid `confidence`: `sure` is unknown; expected low, medium or high"
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// Returns every problem: missing fields, wrong types, values that are not allowed, and fields that
/// contradict each other.
pub fn validate(signal: &Value) -> Result<TerminationSignal, Vec<Problem>> {
    let Some(fields) = signal.as_object() else {
        return Err(vec![problem("", kind(signal), "an object")]);
    };
    let mut check = Check { fields, problems: Vec::new() };
    check.run();
    if !check.problems.is_empty() {
        return Err(check.problems);
    }
    // The checks above cover everything that can fail.
    serde_json::from_value(signal.clone())
        .map_err(|error| vec![problem("", error.to_string(), "a termination signal")])
}

/// Reads a signal from JSON text of another program.
///
/// # Errors
/// Returns the problems of [`validate`], or that the text is not JSON.
pub fn validate_text(text: &str) -> Result<TerminationSignal, Vec<Problem>> {
    let value = serde_json::from_str::<Value>(text)
        .map_err(|error| vec![problem("", format!("not JSON ({error})"), "a JSON object")])?;
    validate(&value)
}

fn problem(field: &str, wrong: impl Into<String>, allowed: impl Into<String>) -> Problem {
    Problem { field: field.to_owned(), wrong: wrong.into(), allowed: allowed.into() }
}

/// Returns the kind of a value, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "it is null",
        Value::Bool(_) => "it is a boolean",
        Value::Number(_) => "it is a number",
        Value::String(_) => "it is a string",
        Value::Array(_) => "it is an array",
        Value::Object(_) => "it is an object",
    }
}

struct Check<'a> {
    fields: &'a Map<String, Value>,
    problems: Vec<Problem>,
}

impl<'a> Check<'a> {
    fn run(&mut self) {
        let over = self.flag("should_terminate");
        let ending = self.word("ending", &REASONS.map(Reason::name), Reason::from_name);
        let confidences = ["low", "medium", "high"];
        self.word("confidence", &confidences, |word| {
            [Confidence::Low, Confidence::Medium, Confidence::High]
                .into_iter()
                .find(|known| known.name() == word)
        });
        let reason = self.text(self.fields, "", "reason");
        if self.text(self.fields, "", "message").is_some_and(str::is_empty) {
            self.add("message", "it is empty", "a sentence");
        }
        self.provider_specific();
        let vocabularies = self.object(self.fields, "", "vocabularies");
        if let Some(ending) = ending {
            self.reason(reason, ending);
            self.vocabularies(vocabularies, ending);
            if over == Some(false) && ending != Reason::Unknown {
                let wrong = format!("`{}` for a response that is not over", ending.name());
                self.add("ending", wrong, "`unknown` where `should_terminate` is false");
            }
        }
    }

    fn reason(&mut self, reason: Option<&str>, ending: Reason) {
        let want = Vocabulary::Termination.spell(ending);
        if let Some(reason) = reason.filter(|reason| *reason != want) {
            let wrong = format!("`{}` is not the word for this ending", clean(reason, WORD_CAP));
            self.add("reason", wrong, format!("`{want}` for the ending `{}`", ending.name()));
        }
    }

    fn provider_specific(&mut self) {
        const PLACE: &str = "provider_specific";
        let Some(specific) = self.object(self.fields, "", PLACE) else { return };
        let field = self.text(specific, PLACE, "original_field");
        let value = self.text(specific, PLACE, "original_value");
        if let Some(value) = value.filter(|value| value.len() > WORD_CAP) {
            let wrong = format!("it has {} bytes", value.len());
            let allowed = format!("at most {WORD_CAP} bytes");
            self.add("provider_specific.original_value", wrong, allowed);
        }
        if let (Some(""), Some(value)) = (field, value)
            && !value.is_empty()
        {
            let wrong = "it is empty, but `original_value` is set";
            self.add("provider_specific.original_field", wrong, "the field of the original value");
        }
        if let Some(metadata) = specific.get("metadata") {
            self.metadata(metadata);
        }
    }

    /// Checks each field of the metadata by itself, so that all problems are found.
    fn metadata(&mut self, metadata: &Value) {
        const PLACE: &str = "provider_specific.metadata";
        let Some(fields) = metadata.as_object() else {
            self.add(PLACE, kind(metadata), "an object");
            return;
        };
        for (name, value) in fields {
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            if let Err(error) = serde_json::from_value::<Metadata>(Value::Object(alone)) {
                let field = format!("{PLACE}.{}", clean(name, WORD_CAP));
                let wrong = clean(&error.to_string(), WORD_CAP);
                self.add(&field, wrong, "the value of a signal");
            }
        }
    }

    fn vocabularies(&mut self, words: Option<&Map<String, Value>>, ending: Reason) {
        for known in VOCABULARIES {
            let field = format!("vocabularies.{}", known.name());
            let want = known.spell(ending);
            let wrong = match words.and_then(|words| words.get(known.name())) {
                None => continue,
                Some(Value::Null) if known == Vocabulary::FinishReason => {
                    // Only a missing finish reason is null.
                    if ending == Reason::Unknown {
                        continue;
                    }
                    "it is null".to_owned()
                }
                Some(Value::String(word)) if known == Vocabulary::StopReason => {
                    if word.parse().is_ok_and(|stop| is_spelled(&stop, want)) {
                        continue;
                    }
                    format!("`{}` is not the word for this ending", clean(word, WORD_CAP))
                }
                Some(Value::String(word)) if word == want => continue,
                Some(Value::String(word)) => {
                    format!("`{}` is not the word for this ending", clean(word, WORD_CAP))
                }
                Some(other) => kind(other).to_owned(),
            };
            self.add(&field, wrong, format!("`{want}` for the ending `{}`", ending.name()));
        }
    }

    fn flag(&mut self, name: &str) -> Option<bool> {
        let value = self.get(self.fields, "", name, "true or false")?;
        if value.is_boolean() {
            return value.as_bool();
        }
        self.add(name, kind(value), "true or false");
        None
    }

    /// Checks a field that holds one of a few names.
    fn word<T>(&mut self, name: &str, all: &[&str], read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let word = self.text(self.fields, "", name)?;
        let found = read(word);
        if found.is_none() {
            let wrong = format!("`{}` is unknown", clean(word, WORD_CAP));
            self.add(name, wrong, one_of(all));
        }
        found
    }

    fn text(&mut self, from: &'a Map<String, Value>, place: &str, name: &str) -> Option<&'a str> {
        let value = self.get(from, place, name, "a string")?;
        if value.as_str().is_none() {
            self.add(&join(place, name), kind(value), "a string");
        }
        value.as_str()
    }

    fn object(
        &mut self,
        from: &'a Map<String, Value>,
        place: &str,
        name: &str,
    ) -> Option<&'a Map<String, Value>> {
        let value = self.get(from, place, name, "an object")?;
        if value.as_object().is_none() {
            self.add(&join(place, name), kind(value), "an object");
        }
        value.as_object()
    }

    fn get(
        &mut self,
        from: &'a Map<String, Value>,
        place: &str,
        name: &str,
        allowed: &str,
    ) -> Option<&'a Value> {
        let value = from.get(name);
        if value.is_none() {
            self.add(&join(place, name), "it is missing", allowed);
        }
        value
    }

    fn add(&mut self, field: &str, wrong: impl Into<String>, allowed: impl Into<String>) {
        self.problems.push(problem(field, wrong, allowed));
    }
}

const REASONS: [Reason; 16] = Reason::ALL;

fn is_spelled(stop: &NormalizedStopReason, want: &str) -> bool {
    match stop {
        NormalizedStopReason::Unknown(_) => want == "Unknown",
        NormalizedStopReason::EndTurn
        | NormalizedStopReason::ToolCall
        | NormalizedStopReason::MaxTokens
        | NormalizedStopReason::ContextWindowExceeded
        | NormalizedStopReason::SafetyBlocked
        | NormalizedStopReason::Cancelled => stop.to_string() == want,
    }
}

fn join(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

fn one_of(words: &[&str]) -> String {
    match words {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        words => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn signal() -> Value {
        let signal = TerminationSignal::new(Reason::Complete, Confidence::High);
        serde_json::to_value(signal).unwrap()
    }

    /// Returns the problems of a signal in which one field is set to this value, or left out.
    fn problems(path: &str, value: Option<Value>) -> Vec<String> {
        let mut json = signal();
        let (place, name) = path.rsplit_once('.').unwrap_or(("", path));
        let at = if place.is_empty() { Some(&mut json) } else { json.get_mut(place) };
        let fields = at.and_then(Value::as_object_mut).unwrap();
        match value {
            Some(value) => fields.insert(name.to_owned(), value),
            None => fields.remove(name),
        };
        let found = validate(&json).err().unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_problem_is_named() {
        assert!(validate(&signal()).is_ok());
        let check = |path: &str, value: Option<Value>, want: &str| {
            assert_eq!(problems(path, value), [want], "{path}");
        };
        check(
            "should_terminate",
            Some(json!("yes")),
            "invalid `should_terminate`: it is a string; expected true or false",
        );
        check(
            "should_terminate",
            None,
            "invalid `should_terminate`: it is missing; expected true or false",
        );
        check(
            "should_terminate",
            Some(json!(false)),
            "invalid `ending`: `complete` for a response that is not over; expected `unknown` where \
             `should_terminate` is false",
        );
        check(
            "confidence",
            Some(json!("sure")),
            "invalid `confidence`: `sure` is unknown; expected low, medium or high",
        );
        check(
            "reason",
            Some(json!("error_termination")),
            "invalid `reason`: `error_termination` is not the word for this ending; expected \
             `natural_completion` for the ending `complete`",
        );
        check("reason", Some(json!(7)), "invalid `reason`: it is a number; expected a string");
        check("message", Some(json!("")), "invalid `message`: it is empty; expected a sentence");
        check(
            "provider_specific",
            Some(json!([])),
            "invalid `provider_specific`: it is an array; expected an object",
        );
        check(
            "provider_specific.original_value",
            None,
            "invalid `provider_specific.original_value`: it is missing; expected a string",
        );
        check(
            "provider_specific.original_value",
            Some(json!("stop")),
            "invalid `provider_specific.original_field`: it is empty, but `original_value` is set; \
             expected the field of the original value",
        );
        check(
            "vocabularies.finish_reason",
            Some(Value::Null),
            "invalid `vocabularies.finish_reason`: it is null; expected `stop` for the ending \
             `complete`",
        );
        check(
            "vocabularies.stop_reason",
            Some(json!("Unknown(x)")),
            "invalid `vocabularies.stop_reason`: `Unknown(x)` is not the word for this ending; \
             expected `EndTurn` for the ending `complete`",
        );
        check(
            "vocabularies.mcp",
            Some(json!({})),
            "invalid `vocabularies.mcp`: it is an object; expected `endTurn` for the ending \
             `complete`",
        );
        check(
            "vocabularies.mcp",
            Some(json!("maxTokens")),
            "invalid `vocabularies.mcp`: `maxTokens` is not the word for this ending; expected \
             `endTurn` for the ending `complete`",
        );
        let unknown = problems("ending", Some(json!("done")));
        assert!(unknown[0].starts_with("invalid `ending`: `done` is unknown; expected complete, "));
        let long = problems("provider_specific.original_value", Some(json!("x".repeat(257))));
        assert!(long[0].contains("it has 257 bytes; expected at most 256 bytes"), "{long:?}");
        let odd = json!({ "cap": "many", "shown": 1, "closed": "eof", "choices": [{}] });
        let metadata = problems("provider_specific.metadata", Some(odd));
        assert_eq!(metadata.len(), 3, "{metadata:?}");
        assert!(
            metadata[0].contains("metadata.cap`: invalid type: string \"many\""),
            "{metadata:?}"
        );
        assert!(metadata[1].contains("metadata.choices`: missing field"), "{metadata:?}");
        assert!(metadata[2].contains("metadata.shown`: invalid type: integer"), "{metadata:?}");
        check(
            "provider_specific.metadata",
            Some(json!("x")),
            "invalid `provider_specific.metadata`: it is a string; expected an object",
        );
    }

    /// Only a finish reason can be null, and only if it is missing.
    #[test]
    fn a_null_word_is_a_missing_finish_reason() {
        let unknown = TerminationSignal::new(Reason::Unknown, Confidence::Low);
        let mut json = serde_json::to_value(unknown).unwrap();
        assert!(json["vocabularies"]["finish_reason"].is_null() && validate(&json).is_ok());
        json["vocabularies"]["mcp"] = Value::Null;
        assert_eq!(validate(&json).unwrap_err()[0].field, "vocabularies.mcp");
    }

    #[test]
    fn all_problems_are_told_at_once_and_other_json_is_refused() {
        let found = validate(&json!({ "reason": 1, "confidence": "x" })).unwrap_err();
        let fields: Vec<&str> = found.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "should_terminate",
                "ending",
                "confidence",
                "reason",
                "message",
                "provider_specific",
                "vocabularies"
            ]
        );
        for other in [json!(null), json!([signal()]), json!("stop")] {
            assert_eq!(validate(&other).unwrap_err()[0].allowed, "an object");
        }
        let error = validate_text("{").unwrap_err()[0].to_string();
        assert!(error.starts_with("invalid `signal`: not JSON ("), "{error}");
        assert!(validate_text(&signal().to_string()).is_ok());
        // Unknown fields are ignored, and metadata may lack fields.
        let mut more = signal();
        more["new"] = json!(1);
        more["vocabularies"]["new"] = json!("x");
        more["provider_specific"]["metadata"] = json!({ "new": {} });
        assert!(validate(&more).is_ok());
    }
}
