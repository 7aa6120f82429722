//! Limits of requests per key: how many at once, and how many within a minute.
//!
//! Callers without a key are told apart by their addresses, and all callers of the gateway's own key
//! count together. Only a keyed hash of a key is kept. Keys without requests in the last minute are
//! forgotten when there are many. While too many keys are in use, new ones count by address.
//!
//! The limit per minute is a bucket: it holds a minute's requests, and fills evenly over 60 seconds.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::NetworkLimits;

/// Maximum number of keys that are remembered.
const KEYS: usize = 10_000;
/// Time between two attempts to forget keys.
const CLEANING: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Inaccuracy of shares of a minute: far less than one request of any limit.
const ROUNDING: f64 = 1e-10;

/// Requests of each key.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    state: RandomState,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_key: HashMap<u64, Requests>,
    /// Last time at which keys were forgotten.
    cleaned: Option<Instant>,
}

/// Requests of one key.
#[derive(Clone, Copy, Debug)]
struct Requests {
    under_way: u32,
    /// Share of a minute's requests that is used up at `at`, from 0 to 1.
    used: f64,
    at: Instant,
}

/// Too many requests; another one may come after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) limit: Limit,
    pub(crate) wait: Duration,
}

/// Limit that is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    AtOnce,
    PerMinute,
}

/// One request under way. It counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    rates: Arc<Rates>,
    key: u64,
}

/// A caller, as far as limits tell callers apart.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum Who<'k> {
    Key(&'k str),
    /// Whoever uses the gateway's own key of this upstream.
    OwnKey(&'k str),
    Address(Option<IpAddr>),
}

impl Rates {
    /// Counts a request; `None` if there are no limits.
    ///
    /// # Errors
    /// [`TooMany`] if its key has too many.
    pub(crate) fn admit(
        self: &Arc<Self>,
        limits: &NetworkLimits,
        who: Who<'_>,
        address: Option<IpAddr>,
        now: Instant,
    ) -> Result<Option<Slot>, TooMany> {
        if limits.key_requests == 0 && limits.key_requests_per_minute == 0 {
            return Ok(None);
        }
        let mut key = self.state.hash_one(who);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { by_key, cleaned } = &mut *known;
        if by_key.len() >= KEYS && !by_key.contains_key(&key) {
            // Not for every request: there are many to look at.
            if cleaned.is_none_or(|last| now.saturating_duration_since(last) >= CLEANING) {
                *cleaned = Some(now);
                by_key.retain(|_, requests| requests.is_recent(now));
            }
            // Invented keys must not make others forgotten.
            if by_key.len() >= KEYS {
                key = self.state.hash_one(Who::Address(address));
            }
            if by_key.len() >= KEYS * 2 && !by_key.contains_key(&key) {
                key = self.state.hash_one(Who::Address(None));
            }
        }
        let new = Requests { under_way: 0, used: 0.0, at: now };
        let requests = by_key.entry(key).or_insert(new);
        requests.admit(limits, now)?;
        Ok(Some(Slot { rates: self.clone(), key }))
    }
}

impl Requests {
    fn admit(&mut self, limits: &NetworkLimits, now: Instant) -> Result<(), TooMany> {
        self.used = self.used_at(now);
        self.at = self.at.max(now);
        if limits.key_requests > 0 && self.under_way >= limits.key_requests {
            // Nobody knows when one of them ends.
            return Err(TooMany { limit: Limit::AtOnce, wait: Duration::from_secs(1) });
        }
        let most = limits.key_requests_per_minute;
        if most > 0 {
            let used = self.used + f64::from(most).recip();
            if used > 1.0 + ROUNDING {
                let wait = MINUTE.mul_f64((used - 1.0).min(1.0));
                return Err(TooMany { limit: Limit::PerMinute, wait });
            }
            self.used = used;
        }
        self.under_way += 1;
        Ok(())
    }

    fn is_recent(&self, now: Instant) -> bool {
        self.under_way > 0 || self.used_at(now) > 0.0
    }

    /// Returns the share of a minute's requests that is still used up at this time.
    fn used_at(&self, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.at);
        (self.used - elapsed.as_secs_f64() / MINUTE.as_secs_f64()).max(0.0)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut known = self.rates.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = known.by_key.get_mut(&self.key) {
            requests.under_way = requests.under_way.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(at_once: u32, per_minute: u32) -> NetworkLimits {
        NetworkLimits {
            key_requests: at_once,
            key_requests_per_minute: per_minute,
            ..NetworkLimits::default()
        }
    }

    #[test]
    fn requests_at_once_are_counted_per_key() {
        let (rates, now) = (Arc::new(Rates::default()), Instant::now());
        let ask = |who| rates.admit(&limits(2, 0), who, None, now);
        let held = [ask(Who::Key("a")).unwrap(), ask(Who::Key("a")).unwrap()];
        let refused = ask(Who::Key("a")).unwrap_err();
        assert_eq!((refused.limit, refused.wait.as_secs()), (Limit::AtOnce, 1));
        assert!(ask(Who::Key("b")).is_ok());
        assert!(ask(Who::Address(None)).is_ok());
        drop(held);
        assert!(ask(Who::Key("a")).is_ok());
        assert!(rates.admit(&limits(0, 0), Who::Key("a"), None, now).unwrap().is_none());
    }

    #[test]
    fn over_time_the_limit_is_the_rate() {
        for most in [1, 6, 30] {
            let rates = Arc::new(Rates::default());
            let began = Instant::now();
            let mut taken: Vec<Duration> = Vec::new();
            // A caller that asks ten times a second, with a pause.
            for tenth in (0..6000).chain(8000..14000) {
                let at = Duration::from_millis(tenth * 100);
                match rates.admit(&limits(0, most), Who::Key("a"), None, began + at) {
                    Ok(_) => taken.push(at),
                    Err(refused) => {
                        assert_eq!(refused.limit, Limit::PerMinute);
                        assert!(refused.wait > Duration::ZERO && refused.wait <= MINUTE);
                    }
                }
            }
            // Ten minutes of each part, and what a full bucket holds at its beginning.
            let (first, second) = taken.split_at(taken.partition_point(|at| *at < MINUTE * 12));
            for part in [first.len(), second.len()] {
                let most = most as usize;
                assert!((most * 10..=most * 11).contains(&part), "{most}: {part}");
            }
            for start in &taken {
                let within = taken.iter().filter(|at| **at >= *start && **at < *start + MINUTE);
                assert!(within.count() < 2 * most as usize + 1, "{start:?}");
            }
        }
    }

    #[test]
    fn after_the_wait_another_request_fits() {
        for asked in [1, 5, 6, 30, 7, 100_000] {
            let (rates, began) = (Arc::new(Rates::default()), Instant::now());
            let limits = limits(0, asked);
            let ask = |at| rates.admit(&limits, Who::Key("a"), None, began + at);
            for _ in 0..asked {
                assert!(ask(Duration::ZERO).is_ok());
            }
            let first = ask(Duration::ZERO).unwrap_err().wait;
            let share = 60.0 / f64::from(asked);
            assert!((first.as_secs_f64() - share).abs() < 1e-6, "{asked} {first:?}");
            let mut at = Duration::ZERO;
            for _ in 0..3 {
                let wait = ask(at).unwrap_err().wait;
                at += Duration::from_secs(wait.as_secs_f64().ceil() as u64);
                assert!(ask(at).is_ok(), "{asked} {at:?}");
                while ask(at).is_ok() {}
            }
        }
    }

    #[test]
    fn the_number_of_keys_is_bounded_and_invented_ones_push_out_no_other() {
        let (rates, now) = (Arc::new(Rates::default()), Instant::now());
        let address =
            |number: usize| Some(IpAddr::from([10, 0, (number >> 8) as u8, number as u8]));
        let limits = limits(0, 1);
        let ask = |key: &str, from| rates.admit(&limits, Who::Key(key), from, now);
        assert!(ask("known", address(0)).is_ok());
        let admitted = (0..3 * KEYS).filter(|number| ask(&number.to_string(), address(1)).is_ok());
        assert_eq!(admitted.count(), KEYS, "the others count by their address");
        assert!(ask("known", address(0)).is_err(), "it is not forgotten");
        assert!(ask("new", address(2)).is_ok(), "who comes from elsewhere is not affected");
        for number in 0..3 * KEYS {
            let _ = ask(&format!("more {number}"), address(number));
        }
        assert!(rates.known.lock().unwrap().by_key.len() <= 2 * KEYS + 1);
    }

    #[test]
    fn callers_of_the_own_key_count_together() {
        let (rates, now) = (Arc::new(Rates::default()), Instant::now());
        let ask = |who| rates.admit(&limits(1, 0), who, None, now);
        let held = ask(Who::OwnKey("openai")).unwrap();
        assert!(ask(Who::OwnKey("openai")).is_err());
        assert!(ask(Who::OwnKey("other")).is_ok());
        drop(held);
    }
}
