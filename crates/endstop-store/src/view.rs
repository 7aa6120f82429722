//! Endings and reports as programs read them.

use endstop::{Reason, Record};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::query::{Buckets, Dimension, Group, Query, Report, Sums};
use crate::sink::Stored;
use crate::sums::COUNTERS;

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

/// Classes of endings that people ask for, and the reasons that each counts. None has the name of a reason.
pub const CLASSES: [(&str, &[Reason]); 6] = [
    ("truncated", &[Reason::OutputLimit, Reason::ContextLimit]),
    ("broken", &[Reason::Cut, Reason::TimedOut]),
    ("blocked", &[Reason::Filtered, Reason::Safety, Reason::Recitation, Reason::Refused]),
    ("errors", &[Reason::Failed, Reason::MalformedToolCall]),
    ("unclear", &[Reason::Unknown]),
    ("abandoned", &[Reason::Cancelled]),
];

/// Returns whether a response that ended like this was of no use to who asked for it, or of less.
#[must_use]
pub fn is_bad(reason: Reason) -> bool {
    CLASSES.iter().any(|(name, reasons)| *name != "abandoned" && reasons.contains(&reason))
}

/// Returns the share of bad endings, from 0 to 1.
#[must_use]
pub fn bad(sums: &Sums) -> f64 {
    let bad: Vec<Reason> = Reason::ALL.into_iter().filter(|reason| is_bad(*reason)).collect();
    sums.share(&bad)
}

/// A report and its question, in JSON.
#[must_use]
pub fn json(query: &Query, report: &Report) -> Value {
    let names: Vec<&str> = query.by.iter().map(|dimension| dimension.name()).collect();
    let groups: Vec<Value> =
        report.groups.iter().map(|group| of_group(&query.by, group, report)).collect();
    json!({
        "by": names,
        "period": report.period,
        "compared_with": report.before,
        "zone": query.zone.as_deref().unwrap_or("UTC"),
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
    let classes: Map<String, Value> = CLASSES
        .iter()
        .map(|(name, reasons)| ((*name).to_owned(), json!(sums.share(reasons))))
        .collect();
    let mut all: Vec<(&'static str, Value)> =
        COUNTERS.iter().map(|counter| (counter.name, json!((counter.get)(sums)))).collect();
    all.extend([
        ("reasons", json!(sums.reasons)),
        ("shares", Value::Object(classes)),
        ("bad_share", json!(bad(sums))),
        ("turns", json!(sums.turns())),
        ("repeated_share", json!(ratio(sums.repeated, sums.count))),
        ("repeated_well_share", json!(ratio(sums.repeated_well, sums.repeated))),
        ("first_byte_us", quantiles(&sums.first_byte)),
        ("total_us", quantiles(&sums.total)),
    ]);
    all
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
