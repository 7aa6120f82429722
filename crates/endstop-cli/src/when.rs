//! Parses and formats times. All times are UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_MS: u64 = 24 * 3_600_000;

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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
    let wrong = || {
        format!(
            "invalid time `{text}`: expected one such as `7d`, `24h`, `30m`, `2026-11-16` or \
             `2026-11-16T09:30`"
        )
    };
    if let Some(ago) = ago(text) {
        return Ok(When::Ago(ago));
    }
    date(text).map(When::At).ok_or_else(wrong)
}

fn ago(text: &str) -> Option<u64> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(unit)?;
    let unit = match unit {
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => DAY_MS,
        "w" => 7 * DAY_MS,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn date(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, by: char| -> Option<Vec<u64>> {
        text.split(by).map(|part| part.parse().ok()).collect()
    };
    let [year, month, day] = numbers(date, '-')?.try_into().ok()?;
    let mut time = numbers(time, ':')?;
    time.resize(3, 0);
    let [hour, minute, second] = time.try_into().ok()?;
    let days = (1970..=9999).contains(&year).then(|| days_before(year, month, day))??;
    (hour < 24 && minute < 60 && second < 60)
        .then(|| days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn month_lengths(year: u64) -> [u64; 12] {
    let february = if is_leap(year) { 29 } else { 28 };
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// Returns the days from 1970-01-01 to this date.
fn days_before(year: u64, month: u64, day: u64) -> Option<u64> {
    let lengths = month_lengths(year);
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    let length = lengths.get(index)?;
    if day == 0 || day > *length {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let months: u64 = lengths.iter().take(index).sum();
    Some(years + months + day - 1)
}

/// Formats a time, such as `2026-11-16 09:30:00`.
pub(crate) fn shown(ms: u64) -> String {
    let (date, second) = (ms / DAY_MS, ms % DAY_MS / 1000);
    format!("{} {:02}:{:02}:{:02}", day(date), second / 3600, second / 60 % 60, second % 60)
}

/// Formats the date that is this many days after 1970-01-01.
pub(crate) fn day(days: u64) -> String {
    let (mut year, mut left) = (1970, days);
    while left >= if is_leap(year) { 366 } else { 365 } {
        left -= if is_leap(year) { 366 } else { 365 };
        year += 1;
    }
    let mut month = 1;
    for length in month_lengths(year) {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", left + 1)
}

/// Formats a time as migration tools write it: `20261116093000`.
pub(crate) fn stamp(ms: u64) -> String {
    shown(ms).chars().filter(char::is_ascii_digit).collect()
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
