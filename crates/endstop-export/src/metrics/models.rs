//! Counters by provider and model, for a bounded number of models.
//!
//! The first models get counters of their own. Responses of further ones count under `other`, and a second table
//! remembers how often each of those was asked. After each scrape, models of that table that are used more than twice
//! as much as the least used model with counters take its place. A model that loses its counters disappears from the
//! text, so no counter ever falls.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use endstop::text::{WORD_CAP, clean};
use endstop::{Reason, Record};
use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap};

use super::histogram::{Counts, Histogram, SECONDS, TOKENS};

/// Models with counters of their own.
pub const MODELS: usize = 200;
/// The label of all others.
pub const OTHER: &str = "other";
/// Providers with a counter for their other models.
const PROVIDERS: usize = 100;
/// Names of other models that are remembered.
const CANDIDATES: usize = 1000;
/// Models that get counters after one scrape.
const CHANGES: usize = 20;

/// All counters by model.
#[derive(Debug, Default)]
pub(crate) struct Models(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    models: HashMap<Name, Model, RandomState>,
    /// Counters of other models, by provider.
    others: HashMap<String, Model, RandomState>,
    /// Uses of other models.
    candidates: HashMap<Name, u64, RandomState>,
}

/// A provider and a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    provider: String,
    model: String,
}

#[derive(Clone, Copy, Hash)]
struct NameRef<'n> {
    provider: &'n str,
    model: &'n str,
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.model == name.model && self.provider == name.provider
    }
}

/// Counters of one model.
#[derive(Debug)]
pub(crate) struct Model {
    uses: AtomicU64,
    endings: RwLock<HashMap<Ends, Histogram, RandomState>>,
    pub(crate) first_byte: Histogram,
    pub(crate) input: Histogram,
    pub(crate) output: Histogram,
    pub(crate) reasoning: AtomicU64,
    pub(crate) cached: AtomicU64,
    pub(crate) continuations: AtomicU64,
}

/// The labels of an ending, besides those of its model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ends {
    pub(crate) reason: Reason,
    pub(crate) finish_reason: String,
    pub(crate) closed: String,
    pub(crate) action: String,
}

#[derive(Clone, Copy, Hash)]
struct EndsRef<'e> {
    reason: Reason,
    finish_reason: &'e str,
    closed: &'e str,
    action: &'e str,
}

impl Equivalent<Ends> for EndsRef<'_> {
    fn equivalent(&self, ends: &Ends) -> bool {
        self.reason == ends.reason
            && self.finish_reason == ends.finish_reason
            && self.closed == ends.closed
            && self.action == ends.action
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            uses: AtomicU64::new(0),
            endings: RwLock::default(),
            first_byte: Histogram::new(&SECONDS),
            input: Histogram::new(&TOKENS),
            output: Histogram::new(&TOKENS),
            reasoning: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            continuations: AtomicU64::new(0),
        }
    }
}

impl Model {
    /// Counts a response.
    pub(crate) fn count(&self, record: &Record, reason: Reason) {
        let ends = EndsRef {
            reason,
            finish_reason: record.finish_reason.as_deref().unwrap_or_default(),
            closed: &record.closed,
            action: &record.action,
        };
        self.time(ends, record.total_us);
        if let Some(time) = record.first_byte_us {
            self.first_byte.add(time);
        }
        if let Some(tokens) = record.tokens_in {
            self.input.add(tokens);
        }
        if let Some(tokens) = record.tokens_out {
            self.output.add(tokens);
        }
        if let Some(tokens) = record.tokens_reasoning {
            self.reasoning.fetch_add(tokens, Ordering::Relaxed);
        }
        if let Some(tokens) = record.tokens_cached {
            self.cached.fetch_add(tokens, Ordering::Relaxed);
        }
    }

    fn time(&self, ends: EndsRef<'_>, total_us: u64) {
        let known = self.endings.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&ends) {
            return known.add(total_us);
        }
        drop(known);
        let EndsRef { reason, finish_reason, closed, action } = ends;
        let text = |text: &str| clean(text, WORD_CAP);
        let (finish_reason, closed) = (text(finish_reason), text(closed));
        let ends = Ends { reason, finish_reason, closed, action: text(action) };
        let mut all = self.endings.write().unwrap_or_else(PoisonError::into_inner);
        all.entry(ends).or_insert_with(|| Histogram::new(&SECONDS)).add(total_us);
    }

    /// Returns the durations of its responses, by their endings, in order.
    pub(crate) fn durations(&self) -> Vec<(Ends, Counts)> {
        let all = self.endings.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<(Ends, Counts)> =
            all.iter().map(|(ends, times)| (ends.clone(), times.counts())).collect();
        all.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        all
    }
}

impl Models {
    /// Finds the counters of a model, and uses them.
    pub(crate) fn with(&self, provider: &str, model: &str, count: impl Fn(&Model)) {
        let name = NameRef { provider, model };
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.models.get(&name) {
            known.uses.fetch_add(1, Ordering::Relaxed);
            return count(known);
        }
        drop(table);
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.with_new(name, count);
    }

    /// Hands over the counters of each model, in the order of their names.
    pub(crate) fn each(&self, mut each: impl FnMut(&str, &str, &Model)) {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let named = table.models.iter().map(|(name, model)| (&*name.provider, &*name.model, model));
        let others = table.others.iter().map(|(provider, model)| (&**provider, OTHER, model));
        let mut all: Vec<(&str, &str, &Model)> = named.chain(others).collect();
        all.sort_unstable_by_key(|(provider, model, _)| (*provider, *model));
        all.into_iter().for_each(|(provider, model, counters)| each(provider, model, counters));
    }

    /// Gives counters to the models that are used most by now.
    pub(crate) fn settle(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).settle();
    }
}

impl Table {
    fn with_new(&mut self, name: NameRef<'_>, count: impl Fn(&Model)) {
        let NameRef { provider, model } = name;
        let owned = || {
            let (provider, model) = (clean(provider, WORD_CAP), clean(model, WORD_CAP));
            Name { provider, model }
        };
        if self.models.len() < MODELS && model != OTHER {
            let model = self.models.entry(owned()).or_default();
            model.uses.fetch_add(1, Ordering::Relaxed);
            return count(model);
        }
        if let Some(uses) = self.candidates.get_mut(&name) {
            *uses += 1;
        } else if self.candidates.len() < CANDIDATES && model != OTHER {
            self.candidates.insert(owned(), 1);
        }
        let provider = if self.others.len() < PROVIDERS || self.others.contains_key(provider) {
            provider
        } else {
            OTHER
        };
        if let Some(known) = self.others.get(provider) {
            return count(known);
        }
        count(self.others.entry(clean(provider, WORD_CAP)).or_default());
    }

    fn settle(&mut self) {
        let mut used: Vec<(u64, Name)> =
            self.candidates.iter().map(|(name, uses)| (*uses, name.clone())).collect();
        used.sort_unstable_by_key(|(uses, _)| std::cmp::Reverse(*uses));
        let uses_of = |model: &Model| model.uses.load(Ordering::Relaxed);
        for (uses, name) in used.into_iter().take(CHANGES) {
            let least = self.models.iter().min_by_key(|(_, model)| uses_of(model));
            let Some((least, few)) = least.map(|(least, model)| (least.clone(), uses_of(model)))
            else {
                break;
            };
            if uses <= few.saturating_mul(2) {
                break;
            }
            self.models.remove(&least);
            self.candidates.remove(&name);
            self.models.insert(name, Model { uses: AtomicU64::new(uses), ..Model::default() });
        }
        // Older uses count less and less.
        for model in self.models.values() {
            let uses = uses_of(model);
            model.uses.fetch_sub(uses.div_ceil(8), Ordering::Relaxed);
        }
        self.candidates.retain(|_, uses| {
            *uses -= uses.div_ceil(8);
            *uses > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher as _;

    fn hash_of(name: impl Hash) -> u64 {
        std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(name)
    }

    #[test]
    fn borrowed_names_are_found() {
        let name = Name { provider: "p".to_owned(), model: "m".to_owned() };
        assert_eq!(hash_of(&name), hash_of(NameRef { provider: "p", model: "m" }));
        let ends = Ends {
            reason: Reason::Cut,
            finish_reason: "error".to_owned(),
            closed: "eof".to_owned(),
            action: "failed".to_owned(),
        };
        let borrowed = EndsRef {
            reason: Reason::Cut,
            finish_reason: "error",
            closed: "eof",
            action: "failed",
        };
        assert_eq!(hash_of(&ends), hash_of(borrowed));
    }

    fn names(models: &Models) -> Vec<String> {
        let mut names = Vec::new();
        models.each(|_, model, _| names.push(model.to_owned()));
        names
    }

    #[test]
    fn the_most_used_models_have_counters() {
        let models = Models::default();
        for number in 0..10_000 {
            models.with("p", &format!("invented-{number}"), |_| {});
        }
        assert_eq!(names(&models).len(), MODELS + 1);
        for _ in 0..50 {
            models.with("p", "real", |_| {});
        }
        // The invented names fill the table of candidates until they have been forgotten.
        models.settle();
        for _ in 0..50 {
            models.with("p", "real", |_| {});
        }
        models.settle();
        let names = names(&models);
        assert!(names.contains(&"real".to_owned()) && names.len() == MODELS + 1);
    }
}
