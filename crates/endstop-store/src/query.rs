//! Questions to a store and its answers: the same types for every backend.

use std::collections::BTreeMap;
use std::str::FromStr;

use endstop::Reason;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Dimension by which sums are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Our word for analytics.
    FinishReason,
    /// Our reason.
    Reason,
    /// Provider.
    Provider,
    /// The model.
    Model,
    /// Team of the request.
    Team,
    /// Id of the caller's key.
    Key,
    /// The upstream's name.
    Upstream,
    /// Action of the gateway.
    Action,
    /// The upstream's status code.
    Status,
    /// Whether the response was streamed.
    Streamed,
    /// The wire.
    Dialect,
    /// The hour, as its first millisecond since 1970.
    Hour,
    /// The day, as its first millisecond since 1970.
    Day,
}

impl Dimension {
    /// Every dimension, in the order of their names in help texts.
    pub const ALL: [Self; 13] = [
        Self::FinishReason,
        Self::Reason,
        Self::Provider,
        Self::Model,
        Self::Team,
        Self::Key,
        Self::Upstream,
        Self::Action,
        Self::Status,
        Self::Streamed,
        Self::Dialect,
        Self::Hour,
        Self::Day,
    ];

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FinishReason => "finish_reason",
            Self::Reason => "reason",
            Self::Provider => "provider",
            Self::Model => "model",
            Self::Team => "team",
            Self::Key => "key",
            Self::Upstream => "upstream",
            Self::Action => "action",
            Self::Status => "status",
            Self::Streamed => "streamed",
            Self::Dialect => "dialect",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Returns the column of a row that has its value; none of a time.
    pub(crate) fn column(self) -> Option<&'static str> {
        match self {
            Self::Team => Some("team_id"),
            Self::Key => Some("key_id"),
            Self::Hour | Self::Day => None,
            Self::FinishReason
            | Self::Reason
            | Self::Provider
            | Self::Model
            | Self::Upstream
            | Self::Action
            | Self::Status
            | Self::Streamed
            | Self::Dialect => Some(self.name()),
        }
    }
}

impl FromStr for Dimension {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|known| known.name()).collect();
            let meant = endstop::nearest(name, known.iter().copied());
            let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            let known = known.join(", ");
            Error::Query(format!("cannot group by `{name}`: expected one of {known}{meant}"))
        })
    }
}

/// Filter for responses. A text fits itself; one with `*` fits what it describes. `null` fits where
/// there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Of this team.
    pub team: Option<String>,
    /// Of this key.
    pub key: Option<String>,
    /// Of this provider.
    pub provider: Option<String>,
    /// Of this model.
    pub model: Option<String>,
    /// Through this upstream.
    pub upstream: Option<String>,
    /// With this reason of ours.
    pub reason: Option<String>,
    /// With this finish reason.
    pub finish_reason: Option<String>,
}

/// From one time until before another, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// The first millisecond.
    pub since: u64,
    /// The first that is no longer meant.
    pub until: u64,
}

/// A question about many responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    /// Dimensions of the groups, at most four.
    pub by: Vec<Dimension>,
    /// The period to count.
    pub period: Period,
    /// The period to compare with.
    pub before: Option<Period>,
    /// The time zone of hours and days, such as `Europe/Berlin`; UTC by default.
    pub zone: Option<String>,
    /// Filter.
    pub filter: Filter,
    /// At most so many groups, those with the highest counts.
    pub limit: usize,
}

impl Query {
    /// Checks the question, as [`crate::Store::report`] does.
    ///
    /// # Errors
    /// [`Error::Query`] with the mistake.
    pub fn check(&self) -> Result<(), Error> {
        crate::ask::check(self)
    }
}

/// The upper bounds of the times that are counted together, in microseconds; a last bucket has none.
pub const BOUNDS_US: [u64; 23] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    350_000,
    500_000,
    750_000,
    1_000_000,
    1_500_000,
    2_000_000,
    3_500_000,
    5_000_000,
    7_500_000,
    10_000_000,
    20_000_000,
    35_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
];

/// Histogram of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buckets(pub [u64; 24]);

impl Buckets {
    /// The bucket of this time.
    #[must_use]
    pub fn of(us: u64) -> usize {
        BOUNDS_US.partition_point(|bound| *bound <= us)
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// The time, in microseconds, that this share of all took at most, from 0 to 1; none of fewer than two
    /// times, of which it would say more than is known. Within a bucket times are taken to be spread evenly.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let all: u64 = self.0.iter().sum();
        if all < 2 {
            return None;
        }
        let rank = share.clamp(0.0, 1.0) * all as f64;
        let mut before = 0;
        let mut low = 0;
        for (count, high) in self.0.iter().zip(BOUNDS_US.iter().chain([&BOUNDS_US[22]])) {
            if *count > 0 && (before + count) as f64 >= rank {
                let part = ((rank - before as f64) / *count as f64).clamp(0.0, 1.0);
                return Some(low + (part * (high.saturating_sub(low)) as f64) as u64);
            }
            before += count;
            low = *high;
        }
        Some(low)
    }
}

/// Sums over a group of responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Number of responses.
    pub count: u64,
    /// Number of responses of each reason.
    pub reasons: BTreeMap<String, u64>,
    /// Responses to requests that repeat or continue an earlier one of their turn.
    pub repeated: u64,
    /// Of those, responses that ended well.
    pub repeated_well: u64,
    /// Input tokens, as far as they were told.
    pub tokens_in: u64,
    /// Output tokens, likewise.
    pub tokens_out: u64,
    /// Reasoning tokens, likewise.
    pub tokens_reasoning: u64,
    /// Cached input tokens, likewise.
    pub tokens_cached: u64,
    /// Output tokens of answers that were truncated or cut.
    pub tokens_of_cut: u64,
    /// Responses of which output tokens were told.
    pub counted: u64,
    /// Until the head of the response came.
    pub first_byte: Buckets,
    /// Until the end.
    pub total: Buckets,
}

impl Sums {
    /// Returns the number of turns: requests of users, however often a client repeated them.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.count.saturating_sub(self.repeated)
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        crate::sums::merge(self, other);
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }

    /// Returns the number of responses with one of these reasons.
    #[must_use]
    pub fn of(&self, reasons: &[Reason]) -> u64 {
        reasons.iter().filter_map(|reason| self.reasons.get(reason.name())).sum()
    }

    /// Their share of all, from 0 to 1.
    #[must_use]
    pub fn share(&self, reasons: &[Reason]) -> f64 {
        if self.count == 0 { 0.0 } else { self.of(reasons) as f64 / self.count as f64 }
    }
}

/// One group of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its value of each dimension asked for; none where there is none.
    pub key: Vec<Option<String>>,
    /// Its sums.
    pub now: Sums,
    /// Those of the period that it is compared with.
    pub before: Option<Sums>,
}

/// Answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The period that was counted. It is the one asked for, but that an end inside of an hour whose rows
    /// have been deleted is moved to the beginning of that hour.
    pub period: Period,
    /// The period that it is compared with, likewise.
    pub before: Option<Period>,
    /// The groups; the highest counts first, times in their order.
    pub groups: Vec<Group>,
    /// All groups together, those over the limit too.
    pub total: Group,
    /// Number of groups over the limit.
    pub left_out: usize,
}

/// Question for rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Filter.
    pub filter: Filter,
    /// With this word of the provider's.
    pub native: Option<String>,
    /// With this action.
    pub action: Option<String>,
    /// Period.
    pub period: Option<Period>,
    /// At most so many.
    pub limit: usize,
}

impl Wanted {
    /// Checks the question, as [`crate::Store::endings`] does.
    ///
    /// # Errors
    /// [`Error::Query`] with the mistake.
    pub fn check(&self) -> Result<(), Error> {
        crate::ask::check_wanted(self)
    }
}

impl Default for Wanted {
    fn default() -> Self {
        Self { filter: Filter::default(), native: None, action: None, period: None, limit: 100 }
    }
}

/// A word of a provider's that was seen in a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WordSeen {
    /// Provider.
    pub provider: String,
    /// Of which model; empty where it is not known.
    pub model: String,
    /// On which wire.
    pub dialect: String,
    /// In which field.
    pub field: String,
    /// The word.
    pub word: String,
    /// Endstop's reason.
    pub reason: String,
    /// Number of times in the period, by the filter.
    pub count: u64,
    /// Time of the first of all, in milliseconds since 1970, whatever the period and the filter.
    pub first_seen: u64,
    /// Time of the last of all, likewise.
    pub last_seen: u64,
    /// Whether it was first seen in the period, and the record has words from before the period.
    pub is_new: bool,
}
