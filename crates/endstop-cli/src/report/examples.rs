//! Examples of a report's bad groups: the newest ending of each, to look at.

use anyhow::Result;
use endstop::{Reason, Record};
use endstop_store::view;
use endstop_store::{Dimension, Filter, Group, Period, Query, Report, Store, Wanted};

/// Maximum number of examples.
const MOST: usize = 20;
/// Maximum number of hours in which the newest one is searched.
const MOST_HOURS: usize = 10_000;
/// Rows among which a value is searched that stores do not filter by.
const SEARCHED: usize = 1000;
const HOUR: u64 = 3_600_000;

/// An ending of a group.
#[derive(Debug)]
pub(super) struct Example {
    /// Place of the group in the report.
    pub(super) group: usize,
    pub(super) reason: Reason,
    pub(super) id: String,
}

/// Finds an example for each bad reason of each group: first for the most frequent one of each group.
pub(super) fn find(store: &mut dyn Store, query: &Query, report: &Report) -> Result<Vec<Example>> {
    let mut bad: Vec<(usize, u64, usize, Reason)> = Vec::new();
    for (index, group) in report.groups.iter().enumerate() {
        let reasons = group.now.reasons.iter();
        let known = reasons.filter_map(|(name, count)| Some((*count, Reason::from_name(name)?)));
        let mut reasons: Vec<_> =
            known.filter(|(count, reason)| *count > 0 && view::is_bad(*reason)).collect();
        reasons.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let ranked = reasons.into_iter().enumerate();
        bad.extend(ranked.map(|(rank, (count, reason))| (rank, count, index, reason)));
    }
    bad.sort_by_key(|(rank, count, ..)| (*rank, std::cmp::Reverse(*count)));
    bad.truncate(MOST);
    let mut examples = Vec::new();
    for (_, _, index, reason) in bad {
        let Some(group) = report.groups.get(index) else { continue };
        let id = newest(store, query, report.period, group, reason)?;
        examples.extend(id.map(|id| Example { group: index, reason, id }));
    }
    examples.sort_by_key(|example| example.group);
    Ok(examples)
}

/// Returns the id of the newest ending of a group with this reason.
fn newest(
    store: &mut dyn Store,
    query: &Query,
    period: Period,
    group: &Group,
    reason: Reason,
) -> Result<Option<String>> {
    let mut filter = Filter { reason: Some(reason.name().to_owned()), ..query.filter.clone() };
    let mut action = None;
    let mut others = vec![Dimension::Hour];
    let mut is_exact = true;
    let mut label = None;
    for (by, value) in query.by.iter().zip(&group.key) {
        let text = value.clone().unwrap_or_else(|| "null".to_owned());
        // These two mean something else in a filter.
        is_exact &= !text.contains('*') && (text != "null" || value.is_none());
        match by {
            Dimension::Team => filter.team = Some(text),
            Dimension::Key => filter.key = Some(text),
            Dimension::Provider => filter.provider = Some(text),
            Dimension::Model => filter.model = Some(text),
            Dimension::Upstream => filter.upstream = Some(text),
            Dimension::FinishReason => filter.finish_reason = Some(text),
            Dimension::Reason => {}
            Dimension::Hour | Dimension::Day => label = Some((*by, text)),
            Dimension::Action => {
                action = Some(text);
                others.push(*by);
            }
            Dimension::Status | Dimension::Streamed | Dimension::Dialect => {
                is_exact = false;
                others.push(*by);
            }
        }
    }
    let is_of_group = |record: &Record| {
        let is_same = |(by, value): (&Dimension, &Option<String>)| {
            value_of(*by, record).is_none_or(|found| found == *value)
        };
        query.by.iter().zip(&group.key).all(is_same)
    };
    let Some(period) = within(period, label.as_ref(), query.zone.as_deref())? else {
        return Ok(None);
    };
    others.truncate(4);
    let hour = newest_hour(store, &filter, period, &others, |by, value| {
        let key = query.by.iter().zip(&group.key);
        key.into_iter().any(|(known, wanted)| *known == by && wanted == value)
    })?;
    let limit = if is_exact { 1 } else { SEARCHED };
    let wanted = Wanted { filter, action, period: Some(hour), limit, ..Wanted::default() };
    let found = store.endings(&wanted)?;
    let fits = found.into_iter().map(|stored| stored.record).find(is_of_group);
    Ok(fits.map(|record| record.id))
}

/// Returns the part of a period that has a label of a report by hours or days.
fn within(
    period: Period,
    label: Option<&(Dimension, String)>,
    zone: Option<&str>,
) -> Result<Option<Period>> {
    let Some((by, text)) = label else { return Ok(Some(period)) };
    let Ok(start) = text.parse::<u64>() else { return Ok(None) };
    let length = if *by == Dimension::Hour {
        HOUR
    } else {
        let at = jiff::Timestamp::from_millisecond(i64::try_from(start)?)?;
        let day = at.in_tz(zone.unwrap_or("UTC"))?;
        let next = day.tomorrow()?.timestamp().as_millisecond();
        u64::try_from(next)?.saturating_sub(start)
    };
    let (since, until) = (period.since.max(start), period.until.min(start + length));
    Ok((since < until).then_some(Period { since, until }))
}

/// Returns the newest hour that has such endings, from the sums, so that only its rows are searched.
fn newest_hour(
    store: &mut dyn Store,
    filter: &Filter,
    period: Period,
    by: &[Dimension],
    fits: impl Fn(Dimension, &Option<String>) -> bool,
) -> Result<Period> {
    let hours = (period.until - period.since) / HOUR;
    if hours < 2 || hours > MOST_HOURS as u64 - 2 {
        return Ok(period);
    }
    let query = Query {
        by: by.to_vec(),
        period,
        before: None,
        zone: None,
        filter: filter.clone(),
        limit: MOST_HOURS,
    };
    let report = store.report(&query)?;
    let of_group = report.groups.iter().filter(|group| {
        by.iter().zip(&group.key).all(|(by, value)| *by == Dimension::Hour || fits(*by, value))
    });
    let newest =
        of_group.filter_map(|group| group.key.first()?.as_ref()?.parse::<u64>().ok()).max();
    let Some(hour) = newest else { return Ok(period) };
    Ok(Period { since: period.since.max(hour), until: period.until.min(hour + HOUR) })
}

/// Returns the value of a dimension; `None` of a time.
fn value_of(by: Dimension, record: &Record) -> Option<Option<String>> {
    Some(match by {
        Dimension::FinishReason => record.finish_reason.as_deref().map(str::to_owned),
        Dimension::Reason => Some(record.reason.to_string()),
        Dimension::Provider => Some(record.provider.to_string()),
        Dimension::Model => record.model.clone(),
        Dimension::Team => record.team_id.clone(),
        Dimension::Key => record.key_id.clone(),
        Dimension::Upstream => Some(record.upstream.clone()),
        Dimension::Action => Some(record.action.to_string()),
        Dimension::Status => record.status.map(|status| status.to_string()),
        Dimension::Streamed => Some(record.streamed.to_string()),
        Dimension::Dialect => Some(record.dialect.to_string()),
        Dimension::Hour | Dimension::Day => return None,
    })
}
