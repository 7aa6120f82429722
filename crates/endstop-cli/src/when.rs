//! Parses and formats times. All times are UTC.

pub(crate) use endstop_store::When;
use jiff::Timestamp;

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// Parses a time.
pub(crate) fn parse(text: &str) -> Result<When, String> {
    text.parse().map_err(|error: endstop_store::Error| error.to_string())
}

/// Formats a time, such as `2026-11-16 09:30:00`.
pub(crate) fn shown(ms: u64) -> String {
    formatted(ms, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time with its zone for people, such as `2026-11-16 09:30:00Z`.
pub(crate) fn zoned(ms: u64) -> String {
    formatted(ms, "%Y-%m-%d %H:%M:%SZ")
}

/// Formats a time of a zone.
pub(crate) fn in_zone(ms: u64, zone: &str, format: &str) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let zoned = at.unwrap_or(Timestamp::MAX).in_tz(zone);
    zoned.map_or_else(|_| formatted(ms, format), |zoned| zoned.strftime(format).to_string())
}

/// Formats a time with its zone, such as `2026-11-16T09:30:00Z`.
pub(crate) fn rfc3339(ms: u64) -> String {
    format!("{}Z", shown(ms).replace(' ', "T"))
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
    fn times_are_shown() {
        for text in ["1970-01-01 00:00:00", "2000-02-29 23:59:59", "2026-11-16 09:30:00"] {
            assert_eq!(shown(parse(text).unwrap().at(0, None).unwrap()), text);
        }
        assert_eq!(stamp(0), "19700101000000");
    }
}
