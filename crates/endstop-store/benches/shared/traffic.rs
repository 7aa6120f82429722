//! Made-up rows of ordinary traffic, for benchmarks.

use endstop::Record;
use endstop_store::Entry;

/// The time of the first row.
pub(crate) const T0: u64 = 1_700_000_000_000;

/// The reasons, and in how many of 100 responses each is said.
const REASONS: [(&str, &str, u64); 8] = [
    ("complete", "stop", 70),
    ("tool_call", "tool_calls", 18),
    ("output_limit", "length", 6),
    ("cut", "error", 2),
    ("filtered", "content_filter", 1),
    ("timed_out", "timeout", 1),
    ("cancelled", "cancel", 1),
    ("failed", "error", 1),
];

/// A row of ordinary traffic, of 4 providers with 3 models each, 5 teams and 8 reasons; the first of each
/// are the most frequent.
pub(crate) fn entry(number: u64, every_ms: u64) -> Entry {
    let mix = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let skewed = |below: u64, by: u64| (mix / by % below).min(mix / by / below % below) as usize;
    let mut part = mix / 3 % 100;
    let reason = REASONS.iter().find(|(_, _, share)| {
        let found = part < *share;
        part = part.saturating_sub(*share);
        found
    });
    let (reason, finish, _) = *reason.unwrap();
    let (provider, models) = [
        ("openai", ["gpt-5.1", "gpt-5-mini", "gpt-5-nano"]),
        ("anthropic", ["claude-sonnet-5", "claude-haiku-5", "claude-opus-5"]),
        ("google", ["gemini-3-pro", "gemini-3-flash", "gemini-2.5-pro"]),
        ("mistral", ["mistral-large", "mistral-small", "codestral"]),
    ][skewed(4, 300)];
    let model = models[skewed(3, 5_000)].to_owned();
    let team = skewed(5, 70_000);
    let time = T0 + number * every_ms;
    let id = format!("{time:012x}7{:03x}8{:015x}", mix % 4096, mix % 1_000_003 + number * 7);
    let record = Record {
        turn_id: id.clone(),
        id,
        attempt: 1,
        created_at: time,
        team_id: Some(["agents", "search", "support", "billing", "lab"][team].into()),
        key_id: Some(format!("k-4f1d2a7{team}")),
        upstream: provider.into(),
        path: "/v1/chat/completions".into(),
        provider: provider.into(),
        model: Some(model),
        dialect: "openai_chat".into(),
        streamed: true,
        mode: "guard".into(),
        status: Some(200),
        client_status: Some(200),
        native_finish_reason: Some(finish.into()),
        native_field: Some("finish_reason".into()),
        finish_reason: Some(finish.into()),
        reason: reason.into(),
        confidence: "high".into(),
        closed: "proven".into(),
        cause: reason.into(),
        shown: Vec::new(),
        decision: None,
        action: "passed".into(),
        tokens_in: Some(mix % 9000),
        tokens_out: Some(mix % 2000),
        tokens_reasoning: None,
        tokens_cached: Some(0),
        cap: Some(4096),
        first_byte_us: Some(mix % 900_000),
        total_us: mix % 9_000_000,
        bytes: mix % 90_000,
        delivered_bytes: mix % 90_000,
        events: mix % 900,
        error_type: None,
        upstream_request_id: Some(format!("req_{mix:016x}")),
        rules: 1,
    };
    Entry { sequence: 0, record }
}
