//! Limits of requests per key: how many at once, and how many within a minute.
//!
//! Callers without a key are told apart by their addresses. Only a keyed hash of a key is kept, for
//! as long as it has requests under way or within the last two minutes, and of so many keys at most.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Limits;

/// Maximum number of keys that are remembered.
const KEYS: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

/// Requests of each key.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    state: RandomState,
    by_key: Mutex<HashMap<u64, Requests>>,
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
    Address(Option<IpAddr>),
}

impl Rates {
    /// Counts a request; `None` if there are no limits.
    ///
    /// # Errors
    /// [`TooMany`] if its key has too many.
    pub(crate) fn admit(
        self: &Arc<Self>,
        limits: &Limits,
        who: Who<'_>,
        now: Instant,
    ) -> Result<Option<Slot>, TooMany> {
        if limits.key_requests == 0 && limits.key_requests_per_minute == 0 {
            return Ok(None);
        }
        let key = self.state.hash_one(who);
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if by_key.len() >= KEYS && !by_key.contains_key(&key) {
            make_room(&mut by_key, now);
        }
        let new = Requests { under_way: 0, since: now, now: 0, before: 0 };
        let requests = by_key.entry(key).or_insert(new);
        requests.admit(limits, now)?;
        Ok(Some(Slot { rates: self.clone(), key }))
    }
}

impl Requests {
    fn admit(&mut self, limits: &Limits, now: Instant) -> Result<(), TooMany> {
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

/// Forgets keys without requests, the oldest ones if there are too many.
fn make_room(by_key: &mut HashMap<u64, Requests>, now: Instant) {
    let is_live = |requests: &Requests| {
        requests.under_way > 0 || now.saturating_duration_since(requests.since) < MINUTE * 2
    };
    by_key.retain(|_, requests| is_live(requests));
    if by_key.len() >= KEYS {
        // Requests under way are bounded by the connections.
        by_key.retain(|_, requests| requests.under_way > 0);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut by_key = self.rates.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = by_key.get_mut(&self.key) {
            requests.under_way = requests.under_way.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(at_once: u32, per_minute: u32) -> Limits {
        Limits { key_requests: at_once, key_requests_per_minute: per_minute, ..Limits::default() }
    }

    #[test]
    fn requests_at_once_are_counted_per_key() {
        let (rates, now) = (Arc::new(Rates::default()), Instant::now());
        let ask = |who| rates.admit(&limits(2, 0), who, now);
        let held = [ask(Who::Key("a")).unwrap(), ask(Who::Key("a")).unwrap()];
        let refused = ask(Who::Key("a")).unwrap_err();
        assert_eq!((refused.limit, refused.wait.as_secs()), (Limit::AtOnce, 1));
        assert!(ask(Who::Key("b")).is_ok());
        assert!(ask(Who::Address(None)).is_ok());
        drop(held);
        assert!(ask(Who::Key("a")).is_ok());
        assert!(rates.admit(&limits(0, 0), Who::Key("a"), now).unwrap().is_none());
    }

    #[test]
    fn no_sixty_seconds_hold_more_than_the_limit() {
        let rates = Arc::new(Rates::default());
        let began = Instant::now();
        let mut taken: Vec<Duration> = Vec::new();
        // A caller that asks ten times a second, with a pause.
        for tenth in (0..1500).chain(2500..4000) {
            let at = Duration::from_millis(tenth * 100);
            match rates.admit(&limits(0, 30), Who::Key("a"), began + at) {
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
            let ask = |at| rates.admit(&limits, Who::Key("a"), began + at);
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
    fn the_number_of_keys_is_bounded() {
        let (rates, now) = (Arc::new(Rates::default()), Instant::now());
        let held = rates.admit(&limits(1, 0), Who::Key("held"), now).unwrap();
        for number in 0..3 * KEYS {
            assert!(rates.admit(&limits(1, 0), Who::Key(&number.to_string()), now).is_ok());
        }
        assert!(rates.by_key.lock().unwrap().len() <= KEYS);
        assert!(rates.admit(&limits(1, 0), Who::Key("held"), now).is_err());
        drop(held);
    }
}
