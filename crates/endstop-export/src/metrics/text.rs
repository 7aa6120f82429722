//! Metrics in the text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;

use super::histogram::{Counts, Scale};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only rises.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Values in buckets.
    Histogram,
}

impl Kind {
    /// Returns the name that Prometheus has for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric that is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricInfo {
    /// Name.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Labels.
    pub labels: &'static [&'static str],
    /// Explanation for people.
    pub help: &'static str,
}

/// The text of metrics, one family after the other.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Adds a metric. `fill` adds its samples; without any, the metric is left out.
    pub fn family(&mut self, metric: &'static MetricInfo, fill: impl FnOnce(&mut Samples<'_>)) {
        let MetricInfo { name, kind, help, .. } = metric;
        let start = self.0.len();
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        let empty = self.0.len();
        fill(&mut Samples { metric, text: &mut self.0 });
        if self.0.len() == empty {
            self.0.truncate(start);
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

/// The samples of one metric.
#[derive(Debug)]
pub struct Samples<'t> {
    metric: &'static MetricInfo,
    text: &'t mut String,
}

impl Samples<'_> {
    /// Adds a number, with the values of the labels of the metric.
    pub fn number(&mut self, labels: &[&str], value: u64) {
        let metric = self.metric;
        self.sample("", labels, None, value as f64);
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
    }

    /// Adds a histogram, with the values of the labels of the metric.
    pub fn histogram(&mut self, labels: &[&str], scale: &Scale, counts: &Counts) {
        let mut below = 0;
        let bounds = scale.bounds.iter().map(|bound| (*bound as f64 / scale.per_unit).to_string());
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&counts.buckets) {
            below += count;
            self.sample("_bucket", labels, Some(&bound), below as f64);
        }
        self.sample("_sum", labels, None, counts.sum as f64 / scale.per_unit);
        self.sample("_count", labels, None, below as f64);
    }

    fn sample(&mut self, ending: &str, labels: &[&str], bound: Option<&str>, value: f64) {
        self.text.push_str(self.metric.name);
        self.text.push_str(ending);
        let named = self.metric.labels.iter().copied().zip(labels.iter().copied());
        let mut mark = '{';
        for (name, label) in named.chain(bound.map(|bound| ("le", bound))) {
            self.text.push(mark);
            mark = ',';
            self.text.push_str(name);
            self.text.push_str("=\"");
            push_escaped(self.text, label);
            self.text.push('"');
        }
        if mark == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn push_escaped(text: &mut String, label: &str) {
    for character in label.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::histogram::{ATTEMPTS, Histogram};

    static ODD: MetricInfo =
        MetricInfo { name: "odd_total", kind: Kind::Counter, labels: &["a", "b"], help: "Odd." };
    static TRIES: MetricInfo =
        MetricInfo { name: "tries", kind: Kind::Histogram, labels: &[], help: "Tries." };

    #[test]
    fn labels_are_escaped_and_empty_metrics_left_out() {
        let mut text = Text::default();
        text.family(&ODD, |samples| samples.number(&["x\"y\\z\n", ""], 7));
        text.family(&ODD, |_| {});
        let want = "# HELP odd_total Odd.\n# TYPE odd_total counter\n\
                    odd_total{a=\"x\\\"y\\\\z\\n\",b=\"\"} 7\n";
        assert_eq!(text.finish(), want);
    }

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::new(&ATTEMPTS);
        [1, 2, 99].into_iter().for_each(|value| histogram.add(value));
        let mut text = Text::default();
        text.family(&TRIES, |samples| samples.histogram(&[], &ATTEMPTS, &histogram.counts()));
        let text = text.finish();
        assert!(text.contains("tries_bucket{le=\"1\"} 1\ntries_bucket{le=\"2\"} 2\n"), "{text}");
        assert!(text.ends_with("tries_bucket{le=\"+Inf\"} 3\ntries_sum 102\ntries_count 3\n"));
    }
}
