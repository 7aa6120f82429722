//! Division of a report's time: into days or hours of a time zone, or not at all.
//!
//! Sums are kept per hour of UTC. An hour that lies in one segment is counted from the sums; an hour that
//! the edge of a segment cuts is counted from its rows. Where its rows have been deleted, the edge is moved
//! to the beginning of the hour, and the period that is reported moves with it.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::Error;
use crate::query::{Dimension, Period};
use crate::sums::HOUR;

/// The most segments, and the most ranges of rows, of a report.
const MOST: usize = 10_000;
const MOST_RANGES: usize = 400;

/// The segments of a period, in order and without gaps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Start of each segment, and the end of the last.
    edges: Vec<i64>,
    /// Name of each: the first millisecond of its hour, and of its day.
    labels: Vec<(i64, i64)>,
    /// The hour from which on sums are used; rows are counted before it.
    sums_from: i64,
}

impl Axis {
    /// Divides a period that is compared with one that begins `shift` later, and named like that.
    /// `deleted` is the time before which rows may be missing.
    pub(crate) fn new(
        by: &[Dimension],
        period: Period,
        zone: &TimeZone,
        shift: i64,
        deleted: i64,
    ) -> Result<Self, Error> {
        let [since, until] = [period.since, period.until].map(crate::columns::time);
        if since >= until {
            return Err(Error::Query("the period ends before it begins".to_owned()));
        }
        let unit = if by.contains(&Dimension::Hour) {
            Some(start_of_hour as fn(i64, &TimeZone) -> i64)
        } else {
            by.contains(&Dimension::Day).then_some(start_of_day as fn(i64, &TimeZone) -> i64)
        };
        let mut starts = vec![since];
        if let Some(start) = unit {
            // The next one begins within 26 hours: days are up to 25 hours long.
            let mut label = start(since + shift, zone);
            loop {
                let step = if by.contains(&Dimension::Hour) { HOUR + HOUR / 2 } else { 26 * HOUR };
                let next = start(label + step, zone);
                if next - shift >= until {
                    break;
                }
                starts.push(next - shift);
                if starts.len() > MOST {
                    let why = format!("more than {MOST} hours or days: ask for a shorter period");
                    return Err(Error::Query(why));
                }
                label = next;
            }
        }
        let named = |start: i64| {
            let at = start + shift;
            (start_of_hour(at, zone), start_of_day(at, zone))
        };
        let labels: Vec<_> = starts.iter().map(|start| named(*start)).collect();
        let round = |at: i64| {
            let hour = at - at.rem_euclid(HOUR);
            if hour < deleted { hour } else { at }
        };
        let mut axis = Self { edges: Vec::new(), labels: Vec::new(), sums_from: i64::MIN };
        let mut ends = starts.iter().skip(1).copied().chain([until]);
        for (start, label) in starts.iter().zip(labels) {
            let (start, end) = (round(*start), round(ends.next().unwrap_or(until)));
            if start < end {
                axis.edges.push(start);
                axis.labels.push(label);
            }
        }
        if axis.edges.is_empty() {
            let why = "the rows of this hour have been deleted, and only its sums are kept: ask for \
                       whole hours";
            return Err(Error::Query(why.to_owned()));
        }
        axis.edges.push(round(until));
        if axis.cut().len() > MOST_RANGES {
            let why = "too many hours or days that are not whole hours of UTC: ask for a shorter \
                       period";
            return Err(Error::Query(why.to_owned()));
        }
        Ok(axis)
    }

    /// Counts all hours that begin before a time from their rows.
    pub(crate) fn with_rows_before(mut self, time: i64) -> Self {
        self.sums_from = time + (HOUR - time.rem_euclid(HOUR)) % HOUR;
        self
    }

    /// Returns the period that is counted.
    pub(crate) fn period(&self) -> Period {
        let at = |edge: Option<&i64>| u64::try_from(edge.copied().unwrap_or_default()).unwrap_or(0);
        Period { since: at(self.edges.first()), until: at(self.edges.last()) }
    }

    /// Returns the start of each segment, in order.
    pub(crate) fn starts(&self) -> &[i64] {
        self.edges.split_last().map_or(&[], |(_, starts)| starts)
    }

    /// Returns the segment of a time.
    pub(crate) fn of_time(&self, at: i64) -> Option<usize> {
        let segment = self.edges.partition_point(|edge| *edge <= at).checked_sub(1)?;
        (segment < self.labels.len()).then_some(segment)
    }

    /// Returns the segment that a whole hour lies in.
    pub(crate) fn of_hour(&self, hour: i64) -> Option<usize> {
        if hour < self.sums_from {
            return None;
        }
        let segment = self.of_time(hour)?;
        (self.of_time(hour + HOUR - 1) == Some(segment)).then_some(segment)
    }

    /// Returns what a segment is called.
    pub(crate) fn label(&self, segment: usize, by: Dimension) -> Option<i64> {
        let (hour, day) = self.labels.get(segment)?;
        let (is_hour, is_day) = (by == Dimension::Hour, by == Dimension::Day);
        is_hour.then_some(*hour).or(is_day.then_some(*day))
    }

    /// Returns the first whole hour and the end of the last one; equal where there is none.
    pub(crate) fn hours(&self) -> (i64, i64) {
        let [first, last] =
            [self.edges.first(), self.edges.last()].map(|it| it.copied().unwrap_or(0));
        let (first, last) = (first + (HOUR - first % HOUR) % HOUR, last - last % HOUR);
        let first = first.max(self.sums_from);
        (first, last.max(first))
    }

    /// Returns the ranges of time whose rows are counted, in order.
    pub(crate) fn cut(&self) -> Vec<(i64, i64)> {
        let (Some(since), Some(until)) = (self.edges.first(), self.edges.last()) else {
            return Vec::new();
        };
        let mut ranges: Vec<(i64, i64)> = vec![(*since, self.sums_from.min(*until))];
        ranges.retain(|(since, until)| since < until);
        for edge in self.edges.iter().filter(|edge| **edge % HOUR != 0) {
            let hour = edge - edge % HOUR;
            let range = (hour.max(*since), (hour + HOUR).min(*until));
            match ranges.last_mut() {
                Some(last) if range.0 <= last.1 => last.1 = last.1.max(range.1),
                Some(_) | None => ranges.push(range),
            }
        }
        ranges.retain(|(since, until)| since < until);
        ranges
    }
}

/// Returns the time zone of this name.
pub(crate) fn zone(name: Option<&str>) -> Result<TimeZone, Error> {
    let Some(name) = name else { return Ok(TimeZone::UTC) };
    TimeZone::get(name).map_err(|_| {
        Error::Query(format!(
            "unknown time zone `{name}`: expected a name such as `UTC` or `Europe/Berlin`"
        ))
    })
}

fn start_of_day(at: i64, zone: &TimeZone) -> i64 {
    let Ok(time) = Timestamp::from_millisecond(at) else { return at };
    let start = time.to_zoned(zone.clone()).start_of_day();
    start.map_or(at, |start| start.timestamp().as_millisecond())
}

fn start_of_hour(at: i64, zone: &TimeZone) -> i64 {
    let Ok(time) = Timestamp::from_millisecond(at) else { return at };
    let offset = i64::from(zone.to_offset(time).seconds()) * 1000;
    at - (at + offset).rem_euclid(HOUR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;
    const T0: i64 = 490_000 * HOUR;

    fn axis(by: &[Dimension], since: i64, until: i64, name: &str, deleted: i64) -> Axis {
        let period = Period { since: since.cast_unsigned(), until: until.cast_unsigned() };
        Axis::new(by, period, &zone(Some(name)).unwrap(), 0, deleted).unwrap()
    }

    #[test]
    fn edges_are_counted_from_rows_and_hours_from_sums() {
        let (since, until) = (T0 + 10 * MINUTE, T0 + 3 * HOUR + MINUTE);
        let axis = axis(&[], since, until, "UTC", 0);
        assert_eq!(axis.hours(), (T0 + HOUR, T0 + 3 * HOUR));
        assert_eq!(axis.cut(), [(since, T0 + HOUR), (T0 + 3 * HOUR, until)]);
        assert_eq!(axis.of_hour(T0), None);
        assert_eq!(axis.of_hour(T0 + HOUR), Some(0));
        assert_eq!((axis.of_time(since), axis.of_time(until)), (Some(0), None));
    }

    #[test]
    fn a_period_within_an_hour_has_rows_alone() {
        let axis = axis(&[], T0 + 1, T0 + 2, "UTC", 0);
        assert_eq!(axis.cut(), [(T0 + 1, T0 + 2)]);
        assert_eq!(axis.hours().0, axis.hours().1);
    }

    #[test]
    fn edges_move_where_rows_were_deleted() {
        let (since, until) = (T0 + 10 * MINUTE, T0 + 3 * HOUR + MINUTE);
        let axis = axis(&[], since, until, "UTC", T0 + 2 * HOUR);
        let Period { since, until: end } = axis.period();
        assert_eq!((since, end), (T0.cast_unsigned(), until.cast_unsigned()));
        let period = Period { since: (T0 + 1).cast_unsigned(), until: (T0 + 2).cast_unsigned() };
        assert!(Axis::new(&[], period, &TimeZone::UTC, 0, T0 + 3).is_err());
    }

    #[test]
    fn rows_are_counted_where_sums_say_too_little() {
        let (since, until) = (T0 + 10 * MINUTE, T0 + 5 * HOUR + MINUTE);
        let whole = |time| axis(&[], since, until, "UTC", 0).with_rows_before(time);
        let axis = whole(T0 + HOUR + 1);
        assert_eq!(axis.hours(), (T0 + 2 * HOUR, T0 + 5 * HOUR));
        assert_eq!(axis.cut(), [(since, T0 + 2 * HOUR), (T0 + 5 * HOUR, until)]);
        assert_eq!((axis.of_hour(T0 + HOUR), axis.of_hour(T0 + 2 * HOUR)), (None, Some(0)));
        let axis = whole(until + HOUR);
        assert_eq!((axis.cut(), axis.hours().1 - axis.hours().0), (vec![(since, until)], 0));
        assert_eq!(whole(0).cut(), [(since, T0 + HOUR), (T0 + 5 * HOUR, until)]);
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let until = T0 + 3 * 24 * HOUR;
        for (name, cut) in
            [("UTC", 0), ("Asia/Tokyo", 0), ("Asia/Kolkata", 3), ("Asia/Kathmandu", 3)]
        {
            let axis = axis(&[Dimension::Day], T0, until, name, 0);
            assert_eq!((axis.cut().len(), axis.labels.len()), (cut, 4), "{name}");
            let days = axis.labels.iter().map(|(_, day)| *day);
            assert!(days.zip(&axis.edges).skip(1).all(|(day, edge)| day == *edge), "{name}");
        }
    }
}
