//! Metrics: the counters of [`Metrics`] under OpenTelemetry's names, as sums since the start.

use std::time::{SystemTime, UNIX_EPOCH};

use endstop::Reason;

use super::message::{
    CUMULATIVE, Data, HistogramData, HistogramPoint, KeyValue, Metric, NumberPoint, Sum, attribute,
    text,
};
use super::names::{self, Generation, Term};
use super::span::{common, is_error, named};
use crate::Metrics;
use crate::metrics::histogram::{Counts, SECONDS, Scale, TOKENS};
use crate::metrics::{Ends, ModelCounts};

/// Makes all metrics.
pub(crate) fn metrics(counted: &Metrics, generation: Generation) -> Vec<Metric> {
    let points =
        Points { start: nanos(counted.started()), now: nanos(SystemTime::now()), generation };
    let models = counted.models();
    let mut all = vec![responses(&points, &models)];
    all.extend(points.histogram(
        &names::DURATION,
        &SECONDS,
        models.iter().flat_map(|model| durations(&points, model)),
    ));
    all.extend(points.histogram(
        &names::TOKEN_USAGE,
        &TOKENS,
        models.iter().flat_map(|model| usage(&points, model)),
    ));
    let sizes: [(&'static Term, OfCounts); 2] =
        [(&names::INPUT_SIZE, |model| &model.input), (&names::OUTPUT_SIZE, |model| &model.output)];
    for (term, of) in sizes {
        let each = models.iter().map(|model| (points.common(model), of(model).clone()));
        all.extend(points.histogram(term, &TOKENS, each));
    }
    let sums: [(&'static Term, Of<u64>); 4] = [
        (&names::USAGE_INPUT, |model| model.input.sum),
        (&names::USAGE_OUTPUT, |model| model.output.sum),
        (&names::USAGE_CACHED, |model| model.cached),
        (&names::USAGE_REASONING, |model| model.reasoning),
    ];
    for (term, of) in sums {
        let modality = || named([(&names::TOKEN_MODALITY, Some(text("unknown")))], generation);
        let each = models.iter().map(|model| {
            let attributes = points.common(model).into_iter().chain(modality()).collect();
            (attributes, of(model))
        });
        if let Some(name) = term.name(generation) {
            all.push(points.sum(name, term.meaning, term.form, each));
        }
    }
    all
}

/// A part of the counters of a model.
type Of<T> = fn(&ModelCounts) -> T;
type OfCounts = fn(&ModelCounts) -> &Counts;

/// The times of all points, and the names that they have.
struct Points {
    start: u64,
    now: u64,
    generation: Generation,
}

impl Points {
    fn common(&self, model: &ModelCounts) -> Vec<KeyValue> {
        common(&model.provider, &model.model, self.generation)
    }

    fn histogram(
        &self,
        term: &'static Term,
        scale: &Scale,
        each: impl Iterator<Item = (Vec<KeyValue>, Counts)>,
    ) -> Option<Metric> {
        let name = term.name(self.generation)?;
        let bounds: Vec<f64> =
            scale.bounds.iter().map(|bound| *bound as f64 / scale.per_unit).collect();
        let filled = each.filter(|(_, counts)| counts.count() > 0);
        let point = |(attributes, counts): (Vec<KeyValue>, Counts)| HistogramPoint {
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            count: counts.count(),
            sum: Some(counts.sum as f64 / scale.per_unit),
            bucket_counts: counts.buckets,
            explicit_bounds: bounds.clone(),
            attributes,
        };
        let data_points = filled.map(point).collect();
        let data = HistogramData { data_points, aggregation_temporality: CUMULATIVE };
        Some(Metric {
            name: name.to_owned(),
            description: term.meaning.to_owned(),
            unit: term.form.to_owned(),
            data: Some(Data::Histogram(data)),
        })
    }

    fn sum(
        &self,
        name: &str,
        description: &str,
        unit: &str,
        each: impl Iterator<Item = (Vec<KeyValue>, u64)>,
    ) -> Metric {
        let point = |(attributes, number): (Vec<KeyValue>, u64)| NumberPoint {
            start_time_unix_nano: self.start,
            time_unix_nano: self.now,
            as_int: i64::try_from(number).unwrap_or(i64::MAX),
            attributes,
        };
        let data_points = each.map(point).collect();
        let data = Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true };
        Metric {
            name: name.to_owned(),
            description: description.to_owned(),
            unit: unit.to_owned(),
            data: Some(Data::Sum(data)),
        }
    }
}

/// Responses by their endings: Endstop's own metric.
fn responses(points: &Points, models: &[ModelCounts]) -> Metric {
    let each = models.iter().flat_map(|model| {
        model.durations.iter().map(|(ends, counts)| {
            let Ends { reason, finish_reason, closed, action } = ends;
            let own = [
                ("endstop.reason", reason.name()),
                ("endstop.finish_reason", finish_reason),
                ("endstop.closed", closed),
                ("endstop.action", action),
            ];
            let own = own.into_iter().map(|(key, value)| attribute(key, text(value)));
            (points.common(model).into_iter().chain(own).collect(), counts.count())
        })
    });
    points.sum("endstop.responses", "responses that ended", "{response}", each)
}

/// Durations of a model, apart for each kind of error.
fn durations(points: &Points, model: &ModelCounts) -> Vec<(Vec<KeyValue>, Counts)> {
    let mut all: Vec<(Option<Reason>, Counts)> = Vec::new();
    for (ends, counts) in &model.durations {
        let error = Some(ends.reason).filter(|reason| is_error(*reason));
        match all.iter_mut().find(|(known, _)| *known == error) {
            Some((_, sum)) => sum.add(counts),
            None => all.push((error, counts.clone())),
        }
    }
    let with_error = |(error, counts): (Option<Reason>, Counts)| {
        let error = named(
            [(&names::ERROR_TYPE, error.map(|reason| text(reason.name())))],
            points.generation,
        );
        (points.common(model).into_iter().chain(error).collect(), counts)
    };
    all.into_iter().map(with_error).collect()
}

fn usage(points: &Points, model: &ModelCounts) -> Vec<(Vec<KeyValue>, Counts)> {
    let of = |kind: &str, counts: &Counts| {
        let kind = named([(&names::TOKEN_TYPE, Some(text(kind)))], points.generation);
        (points.common(model).into_iter().chain(kind).collect(), counts.clone())
    };
    vec![of("input", &model.input), of("output", &model.output)]
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
