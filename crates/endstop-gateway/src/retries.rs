//! Retries: requests that a client sends again after a failure belong to one turn.
//!
//! A client that retries sends the same model, conversation and tools with the same key. The options
//! of the stream may differ: Claude Code repeats a failed stream without one. Only a keyed hash of a
//! failed request is kept, in memory, for five minutes. No hash is computed for a request of a key
//! that has not failed within that time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use endstop::Profile;

/// Time within which a request counts as a retry.
const WITHIN: Duration = Duration::from_secs(5 * 60);
/// Maximum number of keys with failed requests.
const KEYS: usize = 1024;
/// Maximum number of failed requests of one key.
const PER_KEY: usize = 32;

/// Failed requests that a client may send again.
#[derive(Debug, Default)]
pub struct Retries {
    state: RandomState,
    failed: Mutex<HashMap<Arc<str>, VecDeque<Failed>>>,
}

#[derive(Debug)]
struct Failed {
    request: u64,
    at: Instant,
    attempt: Attempt,
}

/// A request, as far as it is compared with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) profile: &'a Profile,
    /// Model, which some wires have in the path.
    pub(crate) model: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

/// Place of a request in its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Id of the turn's first request.
    pub(crate) turn_id: String,
    /// Number of the request in the turn, starting at 1.
    pub(crate) number: u32,
}

impl Retries {
    /// Returns the place of a request that repeats a failed one, or `None` if it is new.
    pub(crate) fn attempt(&self, key: &str, asked: Asked<'_>) -> Option<Attempt> {
        if !self.has_failed(key) {
            return None;
        }
        // Not under the lock: a body may be large, and every request takes the lock.
        let request = self.hash(asked);
        let mut failed = self.lock();
        let of_key = failed.get_mut(key)?;
        let known = of_key.iter().position(|failed| failed.request == request)?;
        let Attempt { turn_id, number } = of_key.remove(known)?.attempt;
        Some(Attempt { turn_id, number: number.saturating_add(1) })
    }

    /// Reports whether a request of this key failed a short time ago. Forgets older ones.
    fn has_failed(&self, key: &str) -> bool {
        let mut failed = self.lock();
        let Some(of_key) = failed.get_mut(key) else { return false };
        let now = Instant::now();
        of_key.retain(|failed| now.duration_since(failed.at) < WITHIN);
        let some = !of_key.is_empty();
        if !some {
            failed.remove(key);
        }
        some
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, VecDeque<Failed>>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a request that failed.
    pub(crate) fn failed(&self, key: &Arc<str>, asked: Asked<'_>, attempt: Attempt) {
        let failed = Failed { request: self.hash(asked), at: Instant::now(), attempt };
        let mut all = self.lock();
        if all.len() >= KEYS && !all.contains_key(key) {
            all.retain(|_, of_key| of_key.back().is_some_and(|last| last.at.elapsed() < WITHIN));
        }
        if all.len() >= KEYS && !all.contains_key(key) {
            return;
        }
        let of_key = all.entry(key.clone()).or_default();
        if of_key.len() >= PER_KEY {
            of_key.pop_front();
        }
        of_key.push_back(failed);
    }

    fn hash(&self, asked: Asked<'_>) -> u64 {
        let mut hasher = self.state.build_hasher();
        let model = asked.model.into_iter();
        for part in model.chain(asked.profile.conversation(asked.body)) {
            hasher.write(part.as_bytes());
            hasher.write_u8(0xff);
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use endstop::provider;

    use super::*;

    fn attempt(number: u32) -> Attempt {
        Attempt { turn_id: "t".to_owned(), number }
    }

    #[test]
    fn the_same_conversation_is_a_retry_with_or_without_a_stream() {
        let retries = Retries::default();
        let profile = &provider::ANTHROPIC.main;
        let key: Arc<str> = "k_1".into();
        let body =
            &br#"{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user"}]}"#[..];
        let again = &br#"{"model":"m","max_tokens":99,"messages":[{"role":"user"}]}"#[..];
        let other = &br#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#[..];
        let asked = |body| Asked { profile, model: Some("m"), body };
        assert_eq!(retries.attempt(&key, asked(body)), None);
        retries.failed(&key, asked(body), attempt(1));
        assert_eq!(retries.attempt(&key, asked(other)), None);
        assert_eq!(retries.attempt("k_2", asked(again)), None);
        assert_eq!(retries.attempt(&key, asked(again)), Some(attempt(2)));
        // It did not fail again.
        assert_eq!(retries.attempt(&key, asked(again)), None);
    }

    /// Finding G10: Gemini and Bedrock have the model in the path, and the same body for each.
    #[test]
    fn another_model_is_no_retry() {
        let retries = Retries::default();
        let key: Arc<str> = "k_1".into();
        let body = br#"{"contents":[{"parts":[{"text":"x"}]}]}"#;
        let asked =
            |model| Asked { profile: &provider::GOOGLE.main, model: Some(model), body: &body[..] };
        retries.failed(&key, asked("gemini-a"), attempt(1));
        assert_eq!(retries.attempt(&key, asked("gemini-b")), None);
        assert_eq!(retries.attempt(&key, asked("gemini-a")), Some(attempt(2)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let retries = Retries::default();
        let profile = &provider::OPENAI.main;
        for key in 0..2 * KEYS {
            let key: Arc<str> = format!("k_{key}").into();
            for number in 0..3 {
                let body = format!(r#"{{"messages":[{number}]}}"#);
                let asked = Asked { profile, model: None, body: body.as_bytes() };
                retries.failed(&key, asked, attempt(1));
            }
        }
        let first: Arc<str> = "k_0".into();
        for number in 0..2 * PER_KEY {
            let body = format!(r#"{{"messages":["{number}"]}}"#);
            let asked = Asked { profile, model: None, body: body.as_bytes() };
            retries.failed(&first, asked, attempt(1));
        }
        let all = retries.failed.lock().unwrap();
        assert_eq!(all.len(), KEYS);
        assert_eq!(all["k_0"].len(), PER_KEY);
    }
}
