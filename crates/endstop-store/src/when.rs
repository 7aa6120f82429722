//! Times as people write them: `7d`, `2026-11-16`, `2026-11-16T09:30+01:00`.

use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::{Span, SpanRelativeTo, Timestamp};

use crate::axis;
use crate::error::Error;

/// A time before now, such as `7d`, or a date such as `2026-11-16` or `2026-11-16T09:30`.
///
/// ```
/// use endstop_store::When;
///
/// let week: When = "7d".parse().unwrap();
/// assert_eq!(week.at(10 * 86_400_000, None).unwrap(), 3 * 86_400_000);
/// let day: When = "2026-11-16".parse().unwrap();
/// let berlin = day.at(0, Some("Europe/Berlin")).unwrap();
/// assert_eq!(day.at(0, None).unwrap() - berlin, 3_600_000);
/// assert!("yesterday".parse::<When>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When(Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Milliseconds before now.
    Ago(u64),
    /// Milliseconds since 1970.
    At(u64),
    /// A date and time of the zone that is asked for.
    Civil(DateTime),
}

impl When {
    /// Returns the time in milliseconds since 1970. A date without an offset is one of this time zone, or
    /// of UTC.
    ///
    /// # Errors
    /// The time zone is not known.
    pub fn at(self, now: u64, zone: Option<&str>) -> Result<u64, Error> {
        match self.0 {
            Form::Ago(ms) => Ok(now.saturating_sub(ms)),
            Form::At(ms) => Ok(ms),
            Form::Civil(date) => {
                let at = date.to_zoned(axis::zone(zone)?);
                let at = at.map_err(|error| Error::Query(format!("invalid time: {error}")))?;
                Ok(u64::try_from(at.timestamp().as_millisecond()).unwrap_or(0))
            }
        }
    }
}

impl FromStr for When {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let form = ago(text).or_else(|| exact(text)).or_else(|| civil(text));
        form.map(Self).ok_or_else(|| {
            Error::Query(format!(
                "invalid time `{text}`: expected one such as `7d`, `24h`, `30m`, `2026-11-16` or \
                 `2026-11-16T09:30`"
            ))
        })
    }
}

fn ago(text: &str) -> Option<Form> {
    let span: Span = text.parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    u64::try_from(duration.as_millis()).ok().map(Form::Ago)
}

fn exact(text: &str) -> Option<Form> {
    let at = text.parse::<Timestamp>().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Form::At)
}

fn civil(text: &str) -> Option<Form> {
    let date: DateTime = text.parse().ok()?;
    // Years before 1970 have no responses.
    (date.year() >= 1970).then_some(Form::Civil(date))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        text.parse::<When>().unwrap().at(0, None).unwrap()
    }

    #[test]
    fn times_are_read() {
        assert_eq!("90m".parse::<When>().unwrap(), When(Form::Ago(5_400_000)));
        assert_eq!(at("2026-11-16T09:30Z"), at("2026-11-16 09:30:00"));
        assert_eq!(at("2026-11-16T10:30+01:00"), at("2026-11-16T09:30"));
        for wrong in
            ["", "7", "7y", "2026-13-01", "2026-02-29", "x", "2026-11-16T25:00", "9d9", "-7d"]
        {
            assert!(wrong.parse::<When>().is_err(), "{wrong}");
        }
    }
}
