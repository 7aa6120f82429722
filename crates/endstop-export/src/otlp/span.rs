//! Spans: one for each response. The spans of one turn share a trace.

use endstop::vocabulary::Vocabulary;
use endstop::{Reason, Record, provider};

use super::message::{
    CLIENT, KeyValue, Span, Status, StatusCode, Value, attribute, int, text, texts,
};
use super::names::{self, Generation, Term};
use crate::exporter::Noted;

/// Makes the span of a response.
pub(crate) fn span(noted: &Noted<'_>, generation: Generation) -> Span {
    let record = noted.record;
    let model = record.model.as_deref().unwrap_or_default();
    let start = record.created_at.saturating_mul(1_000_000);
    let error = error_type(record);
    let status =
        error.map(|_| Status { message: record.sentence(), code: StatusCode::Error.into() });
    Span {
        trace_id: id::<16>(&record.turn_id).to_vec(),
        span_id: id::<8>(&record.id).to_vec(),
        name: format!("{OPERATION} {model}").trim_end().to_owned(),
        kind: CLIENT,
        start_time_unix_nano: start,
        end_time_unix_nano: start.saturating_add(record.total_us.saturating_mul(1000)),
        attributes: attributes(noted, generation),
        status,
    }
}

/// The operation of all requests: records do not tell them apart.
pub(crate) const OPERATION: &str = "chat";

/// Returns the attributes that spans and metrics share: the operation, the provider and the model.
pub(crate) fn common(provider: &str, model: &str, generation: Generation) -> Vec<KeyValue> {
    let provider = provider_name(provider);
    let model = (!model.is_empty()).then(|| text(model));
    let all = [
        (&names::OPERATION, Some(text(OPERATION))),
        (&names::SYSTEM, Some(text(provider))),
        (&names::PROVIDER, Some(text(provider))),
        (&names::REQUEST_MODEL, model.clone()),
        (&names::RESPONSE_MODEL, model),
    ];
    named(all, generation).collect()
}

/// Returns the attributes that have a value, and a name in this generation.
pub(crate) fn named(
    all: impl IntoIterator<Item = (&'static Term, Option<Value>)>,
    generation: Generation,
) -> impl Iterator<Item = KeyValue> {
    all.into_iter().filter_map(move |(term, value)| Some(attribute(term.name(generation)?, value?)))
}

fn attributes(noted: &Noted<'_>, generation: Generation) -> Vec<KeyValue> {
    let record = noted.record;
    let seconds = |us: u64| Value::Double(us as f64 / 1e6);
    let first = record.first_byte_us.filter(|_| record.streamed).map(seconds);
    let standard = [
        (&names::STREAM, Some(Value::Bool(record.streamed))),
        (&names::MAX_TOKENS, record.cap.map(int)),
        (&names::FINISH_REASONS, Some(texts([&*finish_reason(record)]))),
        (&names::FIRST_CHUNK, first),
        (&names::INPUT_TOKENS, record.tokens_in.map(int)),
        (&names::OUTPUT_TOKENS, record.tokens_out.map(int)),
        (&names::CACHED_TOKENS, record.tokens_cached.map(int)),
        (&names::REASONING_TOKENS, record.tokens_reasoning.map(int)),
        (&names::ERROR_TYPE, error_type(record).map(text)),
    ];
    let model = record.model.as_deref().unwrap_or_default();
    let mut all = common(&record.provider, model, generation);
    all.extend(named(standard, generation));
    all.extend(own(noted));
    all
}

/// Returns Endstop's own facts.
fn own(noted: &Noted<'_>) -> impl Iterator<Item = KeyValue> {
    let record = noted.record;
    let maybe = |value: Option<&str>| value.map(text);
    let shown = (!record.shown.is_empty()).then(|| texts(record.shown.iter().map(|name| &**name)));
    let all: [(&str, Option<Value>); 22] = [
        ("endstop.id", maybe(Some(&record.id))),
        ("endstop.turn_id", maybe(Some(&record.turn_id))),
        ("endstop.attempt", Some(int(record.attempt))),
        ("endstop.sequence", Some(int(noted.sequence))),
        ("endstop.provider", maybe(Some(&record.provider))),
        ("endstop.upstream", maybe(Some(&record.upstream))),
        ("endstop.dialect", maybe(Some(&record.dialect))),
        ("endstop.team_id", maybe(record.team_id.as_deref())),
        ("endstop.key_id", maybe(record.key_id.as_deref())),
        (
            "endstop.mode",
            maybe(Some(&record.mode).filter(|mode| !mode.is_empty()).map(|mode| &**mode)),
        ),
        ("endstop.reason", maybe(Some(&record.reason))),
        ("endstop.confidence", maybe(Some(&record.confidence))),
        ("endstop.closed", maybe(Some(&record.closed))),
        ("endstop.cause", maybe(Some(&record.cause))),
        ("endstop.action", maybe(Some(&record.action))),
        ("endstop.decision", maybe(record.decision.as_deref())),
        ("endstop.finish_reason", maybe(record.finish_reason.as_deref())),
        ("endstop.native_finish_reason", maybe(record.native_finish_reason.as_deref())),
        ("endstop.shown", shown),
        ("endstop.status", record.status.map(int)),
        ("endstop.bytes", Some(int(record.bytes))),
        ("endstop.rules", Some(int(record.rules))),
    ];
    all.into_iter().filter_map(|(key, value)| Some(attribute(key, value?)))
}

/// Returns the finish reason in OpenTelemetry's words. An unknown one stays as the provider spelled it, and `error`
/// stands for one that never came.
pub(crate) fn finish_reason(record: &Record) -> String {
    let reason = Reason::from_name(&record.reason);
    match (reason, &record.native_finish_reason) {
        (Some(Reason::Unknown) | None, Some(word)) => word.clone(),
        (Some(Reason::Unknown) | None, None) => "error".to_owned(),
        (Some(reason), _) => Vocabulary::OpenTelemetry.spell(reason).to_owned(),
    }
}

/// Returns the cause of an error, or `None` if the response did not end in one.
pub(crate) fn error_type(record: &Record) -> Option<&str> {
    let is_error = Reason::from_name(&record.reason).is_some_and(is_error);
    let cause = if record.cause.is_empty() { &record.reason } else { &record.cause };
    is_error.then(|| record.error_type.as_deref().unwrap_or(cause))
}

/// Reports whether a reason is an error of the operation.
pub(crate) fn is_error(reason: Reason) -> bool {
    match reason {
        Reason::MalformedToolCall
        | Reason::Cancelled
        | Reason::TimedOut
        | Reason::Failed
        | Reason::Cut => true,
        Reason::Complete
        | Reason::StopSequence
        | Reason::ToolCall
        | Reason::Paused
        | Reason::OutputLimit
        | Reason::ContextLimit
        | Reason::Refused
        | Reason::Filtered
        | Reason::Safety
        | Reason::Recitation
        | Reason::Unknown
        | _ => false,
    }
}

/// Returns OpenTelemetry's name of a provider, or the one given if it has none.
fn provider_name(id: &str) -> &str {
    let known = provider::ALL.iter().find(|provider| provider.id == id);
    known.map(|provider| provider.opentelemetry).filter(|name| !name.is_empty()).unwrap_or(id)
}

/// Makes an id of a trace or a span: the last bytes of a UUID, or else a hash. It is the same each time, and never all
/// zeros.
fn id<const N: usize>(name: &str) -> [u8; N] {
    let digits: String = name.chars().filter(|character| *character != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    let number = number.unwrap_or_else(|| hash(name)).max(1);
    let bytes = number.to_be_bytes();
    let mut id = [0; N];
    for (to, from) in id.iter_mut().rev().zip(bytes.iter().rev()) {
        *to = *from;
    }
    id
}

/// FNV-1a of 128 bits.
fn hash(text: &str) -> u128 {
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    let mix = |hash: u128, byte: u8| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b)
    };
    text.bytes().fold(start, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_record() {
        let uuid = "0192f0c1a2b37c4d8e9f0a1b2c3d4e5f";
        assert_eq!(id::<16>(uuid)[..2], [0x01, 0x92]);
        assert_eq!(id::<8>(uuid), [0x8e, 0x9f, 0x0a, 0x1b, 0x2c, 0x3d, 0x4e, 0x5f]);
        assert_eq!(id::<16>("0192f0c1-a2b3-7c4d-8e9f-0a1b2c3d4e5f"), id::<16>(uuid));
        assert_ne!(id::<16>("a turn"), id::<16>("another"));
        assert_ne!(id::<8>(""), [0; 8]);
        assert_eq!(id::<8>(&"0".repeat(32))[7], 1);
    }

    #[test]
    fn a_finish_reason_that_never_came_is_an_error() {
        let record = |reason: &'static str, native: Option<&str>| Record {
            reason: reason.into(),
            native_finish_reason: native.map(str::to_owned),
            ..Record::default()
        };
        for (reason, native, want) in [
            ("complete", Some("end_turn"), "stop"),
            ("tool_call", Some("tool_use"), "tool_call"),
            ("output_limit", Some("MAX_TOKENS"), "length"),
            ("cut", None, "error"),
            ("unknown", None, "error"),
            ("unknown", Some("frobnicated"), "frobnicated"),
            ("newer", Some("odd"), "odd"),
        ] {
            assert_eq!(finish_reason(&record(reason, native)), want, "{reason}");
        }
        assert_eq!(error_type(&record("cut", None)), Some("cut"));
        assert_eq!(error_type(&record("output_limit", None)), None);
    }
}
