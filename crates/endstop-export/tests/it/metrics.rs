//! The metrics under names that a client invents.

use std::collections::BTreeSet;

use endstop::{Reason, Record};
use endstop_export::Metrics;
use endstop_export::metrics::MODELS;
use endstop_turn::observation::{Observation, Subscriber as _, TerminationDetected};

use crate::record;

fn count(metrics: &Metrics, record: &Record) {
    let ended = TerminationDetected::new(record, Reason::Complete, None);
    metrics.event(&Observation::TerminationDetected(ended));
}

/// Returns the values of a label.
fn values<'t>(text: &'t str, label: &str) -> BTreeSet<&'t str> {
    let mark = format!("{label}=\"");
    text.lines().filter_map(|line| line.split(&mark).nth(1)?.split('"').next()).collect()
}

fn total(text: &str) -> u64 {
    let own = text.lines().filter(|line| line.starts_with("endstop_responses_total{"));
    own.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn labels_stay_bounded_under_ten_thousand_invented_models() {
    let metrics = Metrics::default();
    for number in 0..10_000 {
        let model = Some(format!("invented\"\n-{number}"));
        count(&metrics, &Record { model, ..record(number, "complete") });
        count(&metrics, &record(number, "complete"));
    }
    let text = metrics.text();
    assert_eq!(total(&text), 20_000);
    assert!(values(&text, "model").len() <= MODELS + 1, "{}", values(&text, "model").len());
    assert!(values(&text, "model").contains("other"));
    let size = text.len();
    for round in 1..20 {
        for number in 0..1000 {
            let model = Some(format!("invented-{round}-{number}"));
            count(&metrics, &Record { model, ..record(number, "complete") });
            count(&metrics, &record(number, "complete"));
        }
        let text = metrics.text();
        assert!(values(&text, "model").len() <= MODELS + 1);
        // The model that is used most keeps its counters throughout.
        assert!(values(&text, "model").contains("gpt-4.1"));
        assert!(text.len() < 2 * size, "{} {size}", text.len());
    }
}

#[test]
fn a_known_response_is_counted_without_a_new_series() {
    let metrics = Metrics::default();
    count(&metrics, &record(1, "complete"));
    let lines = metrics.text().lines().count();
    count(&metrics, &record(2, "complete"));
    assert_eq!(metrics.text().lines().count(), lines);
}

#[test]
fn providers_are_bounded_too() {
    let metrics = Metrics::default();
    for number in 0..2000 {
        let provider = format!("provider-{number}").into();
        count(&metrics, &Record { provider, ..record(number, "complete") });
    }
    let text = metrics.text();
    assert!(values(&text, "provider").len() <= MODELS + 101, "{}", values(&text, "provider").len());
    assert_eq!(total(&text), 2000);
}
