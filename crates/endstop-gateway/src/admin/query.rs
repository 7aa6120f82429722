//! Questions to the admin API: filters, periods and groups.

use axum::extract::Query;
use endstop::Reason;
use endstop_store::{Dimension, Error, Filter, Period, When};
use serde::Deserialize;

use crate::watch::now;
use crate::watch::recent::Wanted;

/// The most records that one request gets.
const MOST: usize = 1000;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EndingsQuery {
    team: Option<String>,
    key: Option<String>,
    provider: Option<String>,
    upstream: Option<String>,
    model: Option<String>,
    reason: Option<String>,
    finish_reason: Option<String>,
    native: Option<String>,
    action: Option<String>,
    since: Option<String>,
    until: Option<String>,
    pub(super) limit: Option<usize>,
    /// For reports alone.
    by: Option<String>,
    compare: Option<bool>,
    zone: Option<String>,
}

impl EndingsQuery {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            team: self.team.clone(),
            key: self.key.clone(),
            provider: self.provider.clone(),
            model: self.model.clone(),
            upstream: self.upstream.clone(),
            reason: self.reason.clone(),
            finish_reason: self.finish_reason.clone(),
        }
    }

    /// Returns the period: all that is recorded, or a week for sums.
    pub(super) fn period(&self, week: bool) -> Result<Period, String> {
        let now = now();
        let at = |text: &Option<String>| text.as_deref().map(|text| self.at(text, now)).transpose();
        let until = at(&self.until)?.unwrap_or(now + 1);
        let week = if week { until.saturating_sub(7 * 24 * 3_600_000) } else { 0 };
        Ok(Period { since: at(&self.since)?.unwrap_or(week), until })
    }

    /// Returns a time: milliseconds since 1970, or one as on the command line.
    fn at(&self, text: &str, now: u64) -> Result<u64, String> {
        if let Ok(ms) = text.parse() {
            return Ok(ms);
        }
        let when: When = text.parse().map_err(|error: Error| error.to_string())?;
        when.at(now, self.zone.as_deref()).map_err(|error| error.to_string())
    }

    pub(super) fn stored(&self) -> Result<endstop_store::Wanted, String> {
        // What is wrong is said as it is where nothing is stored.
        let limit = self.clone().wanted()?.limit;
        Ok(endstop_store::Wanted {
            filter: self.filter(),
            native: self.native.clone(),
            action: self.action.clone(),
            period: Some(self.period(false)?),
            limit,
        })
    }

    pub(super) fn query(&self) -> Result<endstop_store::Query, String> {
        let by = self.by.as_deref().unwrap_or("reason").split(',');
        let by: Result<Vec<Dimension>, _> = by.map(str::parse).collect();
        let period = self.period(true)?;
        let length = period.until.saturating_sub(period.since);
        let before = Period { since: period.since.saturating_sub(length), until: period.since };
        Ok(endstop_store::Query {
            by: by.map_err(|error| error.to_string())?,
            period,
            before: self.compare.unwrap_or(false).then_some(before),
            zone: self.zone.clone(),
            filter: self.filter(),
            limit: self.limit.unwrap_or(100),
        })
    }

    pub(super) fn wanted(self) -> Result<Wanted, String> {
        let reason = match self.reason.as_deref() {
            None => None,
            Some(name) => Some(Reason::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
                format!("unknown reason: expected one of {}", known.join(", "))
            })?),
        };
        let since = self.since.as_deref().map(|text| self.at(text, now())).transpose()?;
        let limit = self.limit.unwrap_or(100);
        if limit == 0 || limit > MOST {
            return Err(format!("limit is from 1 to {MOST}"));
        }
        Ok(Wanted {
            provider: self.provider,
            upstream: self.upstream,
            model: self.model,
            reason,
            finish_reason: self.finish_reason,
            action: self.action,
            since,
            limit,
        })
    }
}

pub(super) type Asking = Result<Query<EndingsQuery>, axum::extract::rejection::QueryRejection>;

pub(super) fn asked(asking: Asking) -> Result<EndingsQuery, String> {
    asking.map_err(|rejection| told(&rejection.body_text())).map(|Query(asked)| asked)
}

/// Returns the error of the parser of queries in plain words.
fn told(error: &str) -> String {
    let error = error.strip_prefix("Failed to deserialize query string: ").unwrap_or(error);
    if let Some((name, known)) =
        error.split_once("unknown field `").and_then(|(_, rest)| rest.split_once('`'))
    {
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let meant = endstop::nearest(name, known.iter().copied());
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        let name = endstop::text::clean(name, 64);
        return format!(
            "unknown query parameter `{name}`: expected one of {}{meant}",
            known.join(", ")
        );
    }
    match error.split_once(": ") {
        Some(("limit", _)) => "invalid `limit`: expected a whole number".to_owned(),
        Some(("compare", _)) => "invalid `compare`: expected `true` or `false`".to_owned(),
        Some(_) | None => format!("invalid query: {}", endstop::text::plain_error(error, "value")),
    }
}

pub(super) fn wanted(asking: Asking) -> Result<Wanted, String> {
    asked(asking).and_then(EndingsQuery::wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_a_query_are_told_in_plain_words() {
        let said = |query: &str| {
            let uri = format!("/endstop/v1/endings?{query}").parse().unwrap();
            let asking: Asking = Query::try_from_uri(&uri);
            asked(asking).unwrap_err()
        };
        let text = said("reson=cut");
        assert!(
            text.starts_with("unknown query parameter `reson`: expected one of team,"),
            "{text}"
        );
        assert!(text.ends_with("; did you mean `reason`?"), "{text}");
        assert_eq!(said("limit=ten"), "invalid `limit`: expected a whole number");
        assert_eq!(said("compare=1"), "invalid `compare`: expected `true` or `false`");
        let text = said("team=a&team=b");
        assert!(text.starts_with("invalid query: ") && !text.contains("deserialize"), "{text}");
    }
}
