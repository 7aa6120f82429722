//! Endings and reports as programs read them.

use endstop::{Reason, Record};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::query::{Buckets, Dimension, Group, Query, Report, Sums};
use crate::sink::Stored;

/// One ending as programs read it: the same JSON in a log, on a stream of endings, from the memory of a
/// gateway and from a store.
///
/// ```
/// use endstop::Record;
/// use endstop_store::Stored;
/// use endstop_store::view::EndingView;
///
/// let record = Record { id: "0192".into(), ..Record::default() };
/// let stored = Stored { record: record.clone(), sequence: 1, ..Stored::default() };
/// let json = |view: EndingView<'_>| serde_json::to_value(view).unwrap();
/// assert_eq!(json(EndingView::from(&record)), json(EndingView::from(&stored)));
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct EndingView<'a> {
    #[serde(flatten)]
    record: &'a Record,
    /// Explanation for people.
    sentence: String,
    /// The reason before newer rules judged it again.
    previous_reason: Option<&'a str>,
    /// The finish reason by then.
    previous_finish_reason: Option<&'a str>,
    /// The version of the rules by then.
    previous_rules: Option<u32>,
}

impl<'a> From<&'a Record> for EndingView<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            record,
            sentence: record.sentence(),
            previous_reason: None,
            previous_finish_reason: None,
            previous_rules: None,
        }
    }
}

impl<'a> From<&'a Stored> for EndingView<'a> {
    fn from(stored: &'a Stored) -> Self {
        Self {
            previous_reason: stored.previous_reason.as_deref(),
            previous_finish_reason: stored.previous_finish_reason.as_deref(),
            previous_rules: stored.previous_rules,
            ..Self::from(&stored.record)
        }
    }
}

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
        ("turns", json!(sums.turns())),
        ("repeated", json!(sums.repeated)),
        ("repeated_share", json!(ratio(sums.repeated, sums.count))),
        ("repeated_well", json!(sums.repeated_well)),
        ("repeated_well_share", json!(ratio(sums.repeated_well, sums.repeated))),
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
