//! Parses and formats times. All times are UTC.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, SpanRelativeTo, Timestamp};

const DAY_MS: u64 = 24 * 3_600_000;

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// Time relative to now, such as `7d`, or a date such as `2026-11-16` or `2026-11-16T09:30`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Milliseconds before now.
    Ago(u64),
    /// Milliseconds since 1970.
    At(u64),
}

impl When {
    /// Returns the time in milliseconds since 1970.
    pub(crate) fn at(self, now: u64) -> u64 {
        match self {
            Self::Ago(ms) => now.saturating_sub(ms),
            Self::At(ms) => ms,
        }
    }
}

/// Parses a time.
pub(crate) fn parse(text: &str) -> Result<When, String> {
    let found = ago(text).map(When::Ago).or_else(|| date(text).map(When::At));
    found.ok_or_else(|| {
        format!(
            "invalid time `{text}`: expected one such as `7d`, `24h`, `30m`, `2026-11-16` or \
             `2026-11-16T09:30`"
        )
    })
}

fn ago(text: &str) -> Option<u64> {
    let span: Span = text.parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    u64::try_from(duration.as_millis()).ok()
}

fn date(text: &str) -> Option<u64> {
    let exact = text.parse::<Timestamp>().ok();
    let civil = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    let at = exact.or_else(|| civil().map(|zoned| zoned.timestamp()))?;
    u64::try_from(at.as_millisecond()).ok()
}

/// Formats a time, such as `2026-11-16 09:30:00`.
pub(crate) fn shown(ms: u64) -> String {
    formatted(ms, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time with its zone for people, such as `2026-11-16 09:30:00Z`.
pub(crate) fn zoned(ms: u64) -> String {
    formatted(ms, "%Y-%m-%d %H:%M:%SZ")
}

/// Formats the hour of a time, such as `2026-11-16 09:00Z`.
pub(crate) fn hour(ms: u64) -> String {
    formatted(ms, "%Y-%m-%d %H:00Z")
}

/// Formats a time with its zone, such as `2026-11-16T09:30:00Z`.
pub(crate) fn rfc3339(ms: u64) -> String {
    format!("{}Z", shown(ms).replace(' ', "T"))
}

/// Formats the date that is this many days after 1970-01-01.
pub(crate) fn day(days: u64) -> String {
    formatted(days.saturating_mul(DAY_MS), "%Y-%m-%d")
}

/// Formats a time as migration tools write it: `20261116093000`.
pub(crate) fn stamp(ms: u64) -> String {
    formatted(ms, "%Y%m%d%H%M%S")
}

/// Formats a time. One beyond the year 9999 is shown as the last one that can be.
fn formatted(ms: u64, format: &str) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.unwrap_or(Timestamp::MAX).strftime(format).to_string()
}

/// Formats a duration in microseconds for people.
pub(crate) fn long(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{} ms", us / 1000),
        1_000_000..60_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => format!("{:.1} min", us as f64 / 6e7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_shown() {
        assert_eq!(parse("7d").unwrap().at(10 * DAY_MS), 3 * DAY_MS);
        assert_eq!(parse("90m").unwrap(), When::Ago(5_400_000));
        for text in ["1970-01-01 00:00:00", "2000-02-29 23:59:59", "2026-11-16 09:30:00"] {
            let When::At(ms) = parse(text).unwrap() else { unreachable!() };
            assert_eq!(shown(ms), text);
        }
        assert_eq!(parse("2026-11-16T09:30Z"), parse("2026-11-16 09:30:00"));
        assert_eq!(stamp(0), "19700101000000");
        for wrong in ["", "7", "7y", "2026-13-01", "2026-02-29", "x", "2026-11-16T25:00", "9d9"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
