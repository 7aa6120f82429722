//! Exporters against endpoints that check what they are sent.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that panics has failed, which is what it is for"
)]

mod background;
mod deploy;
mod metrics;
mod otlp;
mod stand_in;

use endstop::Record;

/// A record with this id and reason.
pub(crate) fn record(number: u32, reason: &'static str) -> Record {
    Record {
        id: format!("0192f0c1a2b37c4d8e9f0a1b{number:08x}"),
        turn_id: "0192f0c1a2b37c4d8e9f0a1b00000000".to_owned(),
        attempt: 1,
        created_at: 1_794_913_019_042 + u64::from(number),
        upstream: "main".to_owned(),
        provider: "openai".into(),
        model: Some("gpt-4.1".to_owned()),
        dialect: "openai-chat".into(),
        streamed: true,
        mode: "guard".into(),
        status: Some(200),
        reason: reason.into(),
        confidence: "high".into(),
        closed: "proven".into(),
        cause: reason.into(),
        action: "passed".into(),
        finish_reason: Some("stop".into()),
        native_finish_reason: Some("stop".to_owned()),
        tokens_in: Some(12),
        tokens_out: Some(34),
        tokens_reasoning: Some(5),
        tokens_cached: Some(3),
        cap: Some(100),
        first_byte_us: Some(20_000),
        total_us: 1_500_000,
        ..Record::default()
    }
}
