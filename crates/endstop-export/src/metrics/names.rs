//! The metrics that are exported: their names, kinds, labels and explanations. This is the one table of them.

use super::text::{Kind, MetricInfo};

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricInfo {
    MetricInfo { name, kind: Kind::Counter, labels, help }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricInfo {
    MetricInfo { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricInfo {
    MetricInfo { name, kind: Kind::Histogram, labels, help }
}

macro_rules! metrics {
    ($($id:ident = $info:expr;)*) => {
        $(
            /// A metric; its explanation is in it.
            pub static $id: MetricInfo = $info;
        )*
        /// All metrics.
        pub static METRICS: &[&MetricInfo] = &[$(&$id),*];
    };
}

metrics! {
    RESPONSES = counter(
        "endstop_responses_total",
        &["provider", "model", "reason", "finish_reason", "closed", "action"],
        "Responses that ended.",
    );
    RESPONSE_DURATION = histogram(
        "endstop_response_duration_seconds",
        &["provider", "model"],
        "Time from the request to the end of its response.",
    );
    FIRST_BYTE = histogram(
        "endstop_first_byte_seconds",
        &["provider", "model"],
        "Time from the request to the head of its response.",
    );
    TOKENS = counter(
        "endstop_tokens_total",
        &["provider", "model", "type"],
        "Tokens that providers reported, by type: input, output, reasoning or cached.",
    );
    CONTINUATIONS = counter(
        "endstop_continuations_total",
        &["provider", "model"],
        "Continuations that were triggered.",
    );
    TRUNCATION_EXITS = counter(
        "endstop_truncation_exits_total",
        &["provider", "cause"],
        "Truncated answers that were not continued, by cause.",
    );
    TURN_ATTEMPTS = histogram(
        "endstop_turn_attempts",
        &[],
        "Requests of a turn. A gateway counts those until a complete response.",
    );
    CONTINUED_TURNS = histogram(
        "endstop_continued_turn_duration_seconds",
        &[],
        "Duration of turns that were continued, or whose failed request came again.",
    );
    RESPONSE_READ = histogram(
        "endstop_detection_response_seconds",
        &[],
        "Time that detecting the ending took for a whole response. One of 64 responses is timed.",
    );
    CHUNK_READ = histogram(
        "endstop_detection_chunk_seconds",
        &[],
        "Time that detecting the ending took for a chunk. One of 64 responses is timed.",
    );
    TOOL_REPAIRS = counter(
        "endstop_tool_repairs_total",
        &["provider", "issue", "result"],
        "Tool calls that were cut off or malformed.",
    );
    UNKNOWN_REASONS = counter(
        "endstop_unknown_reasons_total",
        &["provider"],
        "Finish reasons that Endstop does not know, each counted once per model.",
    );
    DETECTION_FAULTS = counter(
        "endstop_detection_faults_total",
        &["provider", "kind"],
        "Responses of which a part could not be read.",
    );
    RECORDS_DROPPED = counter(
        "endstop_records_dropped_total",
        &["cause"],
        "Records that were not kept.",
    );
    STREAMS = gauge("endstop_streams", &[], "Streams under way.");
    SPOOL_BYTES = gauge("endstop_spool_bytes", &[], "Size of the spool.");
    SPOOL_ENTRIES = gauge("endstop_spool_entries", &[], "Endings that wait in the spool for the store.");
    SPOOL_HELD = gauge(
        "endstop_spool_held_entries",
        &[],
        "Endings that wait in memory, since the disk does not take them.",
    );
    SPOOL_FAILING = gauge("endstop_spool_failing", &[], "1 while endings cannot be recorded.");
    SPOOL_LOST = counter(
        "endstop_spool_lost_total",
        &[],
        "Entries that neither the disk nor the memory took.",
    );
    SPOOL_UNRECORDED = counter(
        "endstop_spool_unrecorded_total",
        &[],
        "Responses that were passed on unrecorded.",
    );
    SINK_CONNECTED = gauge(
        "endstop_sink_connected",
        &["sink"],
        "1 while the sink takes endings. The store is the sink `store`.",
    );
    SINK_LAG = gauge("endstop_sink_lag_entries", &["sink"], "Endings that wait for the sink.");
    SINK_LOADED = counter("endstop_sink_loaded_total", &["sink"], "Endings that the sink took.");
    SINK_REFUSED = counter(
        "endstop_sink_refused_total",
        &["sink"],
        "Endings that the sink refused. They are kept.",
    );
    SINK_DROPPED = counter(
        "endstop_sink_dropped_total",
        &["sink"],
        "Endings that were dropped, since the sink was too slow.",
    );
    SINK_FAILURES = counter(
        "endstop_sink_failures_total",
        &["sink"],
        "Times that the sink began to fail.",
    );
    BUILD_INFO = gauge("endstop_build_info", &["version"], "1, with the version of Endstop.");
}

/// Counters of what does not happen to healthy responses.
pub(crate) static RARE: [&MetricInfo; 5] =
    [&TRUNCATION_EXITS, &TOOL_REPAIRS, &UNKNOWN_REASONS, &DETECTION_FAULTS, &RECORDS_DROPPED];
