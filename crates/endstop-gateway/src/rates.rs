//! Limits of requests per key: how many at once, and how many within a minute.
//!
//! Callers without a key are told apart by their addresses, and all callers of the gateway's own key
//! count together. Only a keyed hash of a key is kept. Keys without requests in the last two minutes are
//! forgotten when there are many. While too many keys are in use, new ones count by address.

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
    /// Start of the current minute.
    since: Instant,
    /// Requests in the current minute, and in the one before.
    now: u32,
    before: u32,
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
        let new = Requests { under_way: 0, since: now, now: 0, before: 0 };
        let requests = by_key.entry(key).or_insert(new);
        requests.admit(limits, now)?;
        Ok(Some(Slot { rates: self.clone(), key }))
    }
}

impl Requests {
    fn admit(&mut self, limits: &NetworkLimits, now: Instant) -> Result<(), TooMany> {
        self.advance(now);
        if limits.key_requests > 0 && self.under_way >= limits.key_requests {
            // Nobody knows when one of them ends.
            return Err(TooMany { limit: Limit::AtOnce, wait: Duration::from_secs(1) });
        }
        let most = limits.key_requests_per_minute;
        if most > 0
            && let Some(wait) = self.wait(most, now)
        {
            return Err(TooMany { limit: Limit::PerMinute, wait });
        }
        self.under_way += 1;
        self.now += 1;
        Ok(())
    }

    fn is_recent(&self, now: Instant) -> bool {
        self.under_way > 0 || now.saturating_duration_since(self.since) < MINUTE * 2
    }

    /// Begins another minute if the current one is over.
    fn advance(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= MINUTE * 2 {
            (self.since, self.before, self.now) = (now, 0, 0);
        } else if elapsed >= MINUTE {
            (self.since, self.before, self.now) = (self.since + MINUTE, self.now, 0);
        }
    }

    /// Returns the time until another request fits, or `None` if one fits now. Of the minute before,
    /// the part counts that lies within the last 60 seconds.
    fn wait(&self, most: u32, now: Instant) -> Option<Duration> {
        let elapsed = now.saturating_duration_since(self.since);
        let left = MINUTE.saturating_sub(elapsed);
        let counted = |left: Duration| {
            f64::from(self.before) * left.as_secs_f64() / MINUTE.as_secs_f64() + f64::from(self.now)
        };
        if counted(left) + 1.0 <= f64::from(most) {
            return None;
        }
        if self.now >= most {
            // One fits when a part of this minute has left the last 60 seconds.
            let share = f64::from(self.now + 1 - most) / f64::from(self.now.max(1));
            return Some(left + MINUTE.mul_f64(share));
        }
        let room = f64::from(most - self.now - 1) / f64::from(self.before.max(1));
        Some(left.saturating_sub(MINUTE.mul_f64(room)))
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
    fn no_sixty_seconds_hold_more_than_the_limit() {
        let rates = Arc::new(Rates::default());
        let began = Instant::now();
        let mut taken: Vec<Duration> = Vec::new();
        // A caller that asks ten times a second, with a pause.
        for tenth in (0..1500).chain(2500..4000) {
            let at = Duration::from_millis(tenth * 100);
            match rates.admit(&limits(0, 30), Who::Key("a"), None, began + at) {
                Ok(_) => taken.push(at),
                Err(refused) => {
                    assert_eq!(refused.limit, Limit::PerMinute);
                    assert!(refused.wait > Duration::ZERO && refused.wait <= MINUTE * 2);
                }
            }
        }
        assert_eq!(taken.iter().filter(|at| **at < MINUTE).count(), 30);
        for start in &taken {
            let within = taken.iter().filter(|at| **at >= *start && **at < *start + MINUTE);
            // The minute before is taken for evenly spread.
            assert!(within.count() <= 45, "{start:?}");
        }
        assert!(taken.len() > 100, "{}", taken.len());
    }

    #[test]
    fn after_the_wait_another_request_fits() {
        for asked in [1, 5, 30] {
            let (rates, began) = (Arc::new(Rates::default()), Instant::now());
            let limits = limits(0, asked);
            let ask = |at| rates.admit(&limits, Who::Key("a"), None, began + at);
            for _ in 0..asked {
                assert!(ask(Duration::ZERO).is_ok());
            }
            let mut at = Duration::from_secs(7);
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
