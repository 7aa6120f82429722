//! A report as programs read it: the sums, and what is made of them.

use endstop::Reason;
use serde_json::{Map, Value, json};

use crate::query::{Buckets, Dimension, Group, Query, Report, Sums};

/// Shares of all responses that people ask for, and the reasons that each counts.
pub const SHARES: [(&str, &[Reason]); 9] = [
    ("truncated", &[Reason::OutputLimit, Reason::ContextLimit]),
    ("cut", &[Reason::Cut]),
    ("filtered", &[Reason::Filtered, Reason::Safety, Reason::Recitation]),
    ("refused", &[Reason::Refused]),
    ("paused", &[Reason::Paused]),
    ("unknown", &[Reason::Unknown]),
    ("failed", &[Reason::Failed, Reason::MalformedToolCall]),
    ("timed_out", &[Reason::TimedOut]),
    ("cancelled", &[Reason::Cancelled]),
];

/// A report and its question, in JSON.
#[must_use]
pub fn json(query: &Query, report: &Report) -> Value {
    let names: Vec<&str> = query.by.iter().map(|dimension| dimension.name()).collect();
    let groups: Vec<Value> =
        report.groups.iter().map(|group| of_group(&query.by, group, report)).collect();
    json!({
        "by": names,
        "period": query.period,
        "compared_with": query.before,
        "filter": query.filter,
        "total": of_group(&[], &report.total, report),
        "groups": groups,
        "left_out": report.left_out,
    })
}

fn of_group(by: &[Dimension], group: &Group, report: &Report) -> Value {
    let mut all = Map::new();
    for (dimension, value) in by.iter().zip(&group.key) {
        all.insert(dimension.name().to_owned(), json!(value));
    }
    all.insert("share".to_owned(), json!(ratio(group.now.count, report.total.now.count)));
    for (name, value) in of_sums(&group.now) {
        all.insert(name.to_owned(), value);
    }
    if let Some(before) = &group.before {
        let before: Map<String, Value> =
            of_sums(before).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        all.insert("before".to_owned(), Value::Object(before));
    }
    Value::Object(all)
}

fn of_sums(sums: &Sums) -> Vec<(&'static str, Value)> {
    let shares: Map<String, Value> = SHARES
        .iter()
        .map(|(name, reasons)| ((*name).to_owned(), json!(sums.share(reasons))))
        .collect();
    vec![
        ("count", json!(sums.count)),
        ("reasons", json!(sums.reasons)),
        ("shares", Value::Object(shares)),
        ("continued", json!(sums.continued)),
        ("continued_share", json!(ratio(sums.continued, sums.count))),
        ("continued_well", json!(sums.continued_well)),
        ("continued_well_share", json!(ratio(sums.continued_well, sums.continued))),
        ("tokens_in", json!(sums.tokens_in)),
        ("tokens_out", json!(sums.tokens_out)),
        ("tokens_reasoning", json!(sums.tokens_reasoning)),
        ("tokens_cached", json!(sums.tokens_cached)),
        ("tokens_of_cut", json!(sums.tokens_of_cut)),
        ("counted", json!(sums.counted)),
        ("first_byte_us", quantiles(&sums.first_byte)),
        ("total_us", quantiles(&sums.total)),
    ]
}

fn quantiles(buckets: &Buckets) -> Value {
    json!({
        "p50": buckets.quantile(0.50),
        "p95": buckets.quantile(0.95),
        "p99": buckets.quantile(0.99),
    })
}

/// One of another; nothing of nothing is nothing.
#[must_use]
pub fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}
