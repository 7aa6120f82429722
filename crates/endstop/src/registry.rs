//! Chooses the wire that reads a response, from what is known about the response.
//!
//! [`choose`] knows the built-in providers. A [`Registry`] also knows the providers and finish
//! reasons that users register at run time or write in TOML:
//!
//! ```
//! use endstop::registry::{Clues, Registry};
//!
//! # #[cfg(feature = "toml")] {
//! let mut registry = Registry::default();
//! registry.add_toml("mine.toml", r#"
//!     [provider.openai.words]
//!     frobnicated = "output_limit"
//!
//!     [provider.acme]
//!     like = "openai-chat"
//!     hosts = ["api.acme.example"]
//! "#)?;
//! let wire = registry.choose(&Clues { host: "api.acme.example", ..Clues::default() });
//! assert_eq!(wire.provider(), "acme");
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "toml")]
mod file;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(feature = "toml")]
pub use file::ProviderFileError;

use crate::dialect::Proof;
use crate::ending::{Ending, Reason};
use crate::event::Word;
use crate::provider::{
    self, Capabilities, Corrections, GENERIC, Profile, Provider, Resume, Taught, Wire,
};
use crate::verdict::Meaning;
use crate::{shape, version};

/// Maximum number of unknown finish reasons that are remembered.
const MAX_UNKNOWN: usize = 1024;

/// Facts about a response before it is read. A field is empty if it is not known.
///
/// ```
/// use endstop::registry::{Clues, choose};
///
/// let clues = Clues { host: "api.mistral.ai", path: "/v1/chat/completions", ..Clues::default() };
/// assert_eq!(choose(&clues).provider(), "mistral");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Clues<'a> {
    /// Id of the provider, an alias, or an unknown name.
    pub provider: &'a str,
    /// Id of the dialect.
    pub dialect: &'a str,
    /// Host that served the response.
    pub host: &'a str,
    /// Path of the request, with its query if that is known.
    pub path: &'a str,
    /// API version. If empty, it is looked for in the headers, the query and the path.
    pub version: &'a str,
    /// Known headers of the request. Names may have any case.
    pub headers: &'a [(&'a str, &'a str)],
    /// Beginning of the body, or all of it.
    pub body: &'a [u8],
}

/// Returns the wire that reads a response, by the surest clue: provider, host, path, then shape.
///
/// If nothing fits, the response is read as chat completions, as a guess.
#[must_use]
pub fn choose(clues: &Clues<'_>) -> Wire {
    let named = provider::by_id(clues.provider);
    let hosted = || Some(clues.host).filter(|host| !host.is_empty()).and_then(provider::by_host);
    let known = named.or_else(hosted);
    let wire = match known {
        Some(provider) => of_provider(provider, clues),
        None => of_anyone(clues),
    };
    let wire = clues.versioned(wire);
    match (known, clues.provider) {
        (None, name) if !name.is_empty() => wire
            .corrected(Corrections { provider: Some(name.to_owned()), ..Corrections::default() }),
        _ => wire,
    }
}

fn of_provider(provider: &'static Provider, clues: &Clues<'_>) -> Wire {
    let named = |path: &str| provider.wire_for_path(path).filter(|wire| wire.is_named_by(path));
    let own = told(clues, |id| provider.wire_of(id), named);
    if let Some(profile) = own {
        return profile.into();
    }
    // A dialect that the provider is not known for, as at compatible endpoints: read it
    // generically.
    let told = told_of_anyone(clues).map(|profile| Profile { provider: provider.id, ..*profile });
    if let Some(profile) = told {
        return profile.into();
    }
    // No clue names the wire: the body does, if it is one of the provider's.
    let guess = shape::guess(clues.body);
    let shaped = guess.and_then(|guess| provider.wire_of(guess.dialect.id));
    let by_path = || provider.wire_for_path(clues.bare_path());
    shaped.or_else(by_path).unwrap_or(&provider.main).into()
}

fn of_anyone(clues: &Clues<'_>) -> Wire {
    match told_of_anyone(clues) {
        Some(profile) => profile.into(),
        None => shape::guess(clues.body)
            .unwrap_or(Profile { guessed: true, ambiguous: true, ..GENERIC.main })
            .into(),
    }
}

fn told_of_anyone(clues: &Clues<'_>) -> Option<&'static Profile> {
    let of_dialect = |id: &str| {
        let generic = GENERIC.wire_of(id);
        generic.or_else(|| provider::ALL.iter().find_map(|known| known.wire_of(id)))
    };
    told(clues, of_dialect, provider::by_path)
}

/// Returns the wire that the dialect's id or the path names.
fn told<'p>(
    clues: &Clues<'_>,
    by_dialect: impl Fn(&str) -> Option<&'p Profile>,
    by_path: impl Fn(&str) -> Option<&'p Profile>,
) -> Option<&'p Profile> {
    let path = Some(clues.bare_path()).filter(|path| !path.is_empty());
    by_dialect(clues.dialect).or_else(|| path.and_then(by_path))
}

impl Clues<'_> {
    /// Returns the path without its query.
    fn bare_path(&self) -> &str {
        self.path.split(['?', '#']).next().unwrap_or_default()
    }

    /// Returns the wire with its API version, if the clues contain one.
    fn versioned(&self, wire: Wire) -> Wire {
        let told = Some(self.version).filter(|told| !told.is_empty()).map(str::to_owned);
        let asked = || version::asked_for(wire.profile.versions, self.path, self.headers);
        let api_version = told.or_else(asked).map(Arc::from);
        Wire { api_version, ..wire }
    }
}

/// Providers registered at run time. They take precedence over the built-in ones.
///
/// ```
/// use endstop::Reason;
/// use endstop::dialect::Meaning;
/// use endstop::provider::XAI;
/// use endstop::registry::{Entry, Like, Registry};
///
/// let mut registry = Registry::default();
/// assert_eq!(registry.meaning("xai", "frobnicated"), Meaning::Unknown);
/// let entry = Entry::new("xai", Like::Provider(&XAI)).word("frobnicated", Reason::OutputLimit);
/// registry.register(entry);
/// assert_eq!(registry.meaning("xai", "frobnicated"), Meaning::Known(Reason::OutputLimit));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: BTreeMap<String, Vec<Entry>>,
    unknown: BTreeSet<(String, String, String)>,
}

/// A provider registered at run time, or the corrections of a built-in one.
///
/// ```
/// use endstop::provider::OPENAI;
/// use endstop::registry::{Clues, Entry, Like, Registry};
///
/// let mut entry = Entry::new("acme", Like::Wire(&OPENAI.main));
/// entry.hosts = vec!["api.acme.example".to_owned()];
/// let mut registry = Registry::default();
/// registry.register(entry);
/// let wire = registry.choose(&Clues { host: "api.acme.example", ..Clues::default() });
/// assert_eq!(wire.provider(), "acme");
/// ```
#[derive(Clone, Debug)]
pub struct Entry {
    /// Id. The id of a built-in provider corrects that provider, on all its wires.
    pub id: String,
    /// API version that the entry applies to; empty for any.
    pub version: String,
    /// Patterns of its hosts, besides the built-in ones. They match label by label; `*` matches one
    /// label or the rest of one.
    pub hosts: Vec<String>,
    /// Base URL of its API, if it differs from that of the provider in `like`.
    pub base_url: Option<String>,
    /// Wires that it speaks.
    pub like: Like,
    /// Signal that proves the end of a stream, on the first wire and on those with the same signal.
    pub proof: Option<Proof>,
    /// Whether it reports a natural stop when the output token limit was reached.
    pub lies_at_cap: Option<bool>,
    /// Whether its output tokens exclude reasoning tokens.
    pub reasoning_beside_output: Option<bool>,
    /// Size of its context in tokens, prompt and answer together. A response that fills it is truncated,
    /// whatever a provider says that reports a natural stop for truncated answers too.
    pub context_tokens: Option<u64>,
    /// Finish reasons of this provider.
    pub corrections: Corrections,
}

impl Entry {
    /// Adds a finish reason in the main field of each of its wires.
    #[must_use]
    pub fn word(mut self, word: impl Into<String>, reason: Reason) -> Self {
        let meaning = Meaning::Known(reason);
        self.corrections.words.push(Taught { field: None, word: word.into(), meaning });
        self
    }
}

/// Wires of a registered provider.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Like {
    /// All wires of this provider, chosen in the same way.
    Provider(&'static Provider),
    /// Only this wire, on every path.
    Wire(&'static Profile),
}

impl Like {
    /// Finds a provider by its id or alias, or a wire by the id of its dialect.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let wire = || told_of_anyone(&Clues { dialect: name, ..Clues::default() });
        let provider = provider::by_id(name).map(Self::Provider);
        provider.or_else(|| wire().map(Self::Wire))
    }

    /// Returns the first wire.
    #[must_use]
    pub fn main(self) -> &'static Profile {
        match self {
            Self::Provider(provider) => &provider.main,
            Self::Wire(profile) => profile,
        }
    }

    /// Returns the built-in provider whose base URL, authorisation and routes apply.
    #[must_use]
    pub fn provider(self) -> &'static Provider {
        match self {
            Self::Provider(provider) => provider,
            Self::Wire(profile) => {
                let speaks = |known: &&&Provider| known.main.dialect.id == profile.dialect.id;
                let own = provider::by_id(profile.provider).unwrap_or(GENERIC);
                let first = || provider::ALL.iter().find(speaks).copied();
                if own.id == GENERIC.id { own } else { first().unwrap_or(own) }
            }
        }
    }

    /// Returns every wire.
    pub fn wires(self) -> impl Iterator<Item = &'static Profile> {
        let (all, one) = match self {
            Self::Provider(provider) => (Some(provider.wires()), None),
            Self::Wire(profile) => (None, Some(profile)),
        };
        all.into_iter().flatten().chain(one)
    }

    fn wire_for_path(self, path: &str) -> Option<&'static Profile> {
        match self {
            Self::Provider(provider) => provider.wire_for_path(path),
            Self::Wire(profile) => Some(profile).filter(|wire| wire.serves(path)),
        }
    }
}

impl Entry {
    /// Returns a provider with this name that otherwise equals another.
    #[must_use]
    pub fn new(id: &str, like: Like) -> Self {
        Self {
            id: id.to_owned(),
            version: String::new(),
            hosts: Vec::new(),
            base_url: None,
            like,
            proof: None,
            lies_at_cap: None,
            reasoning_beside_output: None,
            context_tokens: None,
            corrections: Corrections::default(),
        }
    }

    /// Reports whether the entry corrects a built-in provider instead of adding one.
    #[must_use]
    pub fn corrects(&self) -> bool {
        matches!(self.like, Like::Provider(provider) if provider.id == self.id)
    }

    /// Reports whether it serves from this host, given with or without a port.
    #[must_use]
    pub fn serves_from(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        self.hosts.iter().any(|pattern| provider::is_host(name, pattern))
    }

    /// Returns the wire with the corrections of this entry.
    fn correct(&self, mut wire: Wire) -> Wire {
        let profile = &mut wire.profile;
        if let Some(proof) = self.proof.filter(|_| profile.proof == self.like.main().proof) {
            profile.proof = proof;
        }
        let quirks = &mut profile.quirks;
        quirks.lies_at_cap = self.lies_at_cap.unwrap_or(quirks.lies_at_cap);
        quirks.reasoning_beside_output =
            self.reasoning_beside_output.unwrap_or(quirks.reasoning_beside_output);
        quirks.context_tokens = self.context_tokens.or(quirks.context_tokens);
        let said = wire.corrections.as_ref().and_then(|before| before.provider.clone());
        let own = self.corrections.provider.clone();
        let renamed = (!self.corrects()).then(|| self.id.clone());
        let provider = own.or(renamed).or(said);
        let words = self.corrections.words.clone();
        wire.corrected(Corrections { provider, words })
    }
}

/// A finish reason that is in no table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownWord {
    /// Provider that sent it.
    pub provider: String,
    /// Model that sent it; empty if not known.
    pub model: String,
    /// Field that carried it.
    pub field: Cow<'static, str>,
    /// Finish reason.
    pub word: String,
}

/// Capabilities of a wire, and the way to resume its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
#[non_exhaustive]
pub struct Can {
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Way to resume a truncated answer of the model.
    pub resume: Resume,
}

impl Registry {
    /// Registers a provider. Replaces and returns an entry with the same id and version.
    pub fn register(&mut self, entry: Entry) -> Option<Entry> {
        let versions = self.entries.entry(entry.id.clone()).or_default();
        match versions.iter_mut().find(|known| known.version == entry.version) {
            Some(known) => Some(std::mem::replace(known, entry)),
            None => {
                versions.push(entry);
                None
            }
        }
    }

    /// Returns the entry with this id, or of the built-in provider with this alias, for this API
    /// version. Falls back to the entry for any version.
    #[must_use]
    pub fn get(&self, id: &str, version: &str) -> Option<&Entry> {
        let aliased = || self.entries.get(provider::by_id(id)?.id);
        let versions = self.entries.get(id).or_else(aliased)?;
        let exact = versions.iter().find(|entry| entry.version == version);
        exact
            .or_else(|| versions.iter().find(|entry| entry.version.is_empty()))
            .or_else(|| versions.last())
    }

    /// Returns every entry, ordered by id.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().flatten()
    }

    /// Returns every known id: the registered ones, then the built-in ones.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let built_in = provider::ALL.iter().map(|provider| provider.id);
        let own = self.entries.keys().map(String::as_str);
        own.filter(|id| provider::by_id(id).is_none()).chain(built_in)
    }

    /// Reports whether this is the id or alias of a registered or built-in provider.
    #[must_use]
    pub fn knows(&self, provider: &str) -> bool {
        self.get(provider, "").is_some() || provider::by_id(provider).is_some()
    }

    /// Returns the meaning of a finish reason, in any field of any wire of a provider. An unknown
    /// provider is treated as OpenAI-compatible.
    #[must_use]
    pub fn meaning(&self, provider: &str, word: &str) -> Meaning {
        let entry = self.get(provider, "");
        let taught = entry.and_then(|entry| {
            entry.corrections.words.iter().rev().find(|taught| taught.word == word)
        });
        if let Some(taught) = taught {
            return taught.meaning;
        }
        let built_in = || Like::Provider(provider::by_id(provider).unwrap_or(GENERIC));
        let like = entry.map_or_else(built_in, |entry| entry.like);
        provider::meaning_on(like.wires(), word)
    }

    /// Returns the wire that reads a response, by the surest clue.
    #[must_use]
    pub fn choose(&self, clues: &Clues<'_>) -> Wire {
        let named = self.get(clues.provider, "");
        let hosted = || {
            let host =
                Some(clues.host).filter(|host| !host.is_empty() && clues.provider.is_empty())?;
            self.entries().find(|entry| entry.serves_from(host))
        };
        let entry = match named.or_else(hosted) {
            Some(entry) => entry,
            None => {
                let built_in = choose(clues);
                match self.get(built_in.profile.provider, "") {
                    Some(entry) if entry.corrects() => return self.correct(entry, built_in),
                    Some(entry) => entry,
                    None => return built_in,
                }
            }
        };
        let wire = match entry.like {
            Like::Provider(provider) => choose(&Clues { provider: provider.id, ..*clues }),
            Like::Wire(profile) => clues.versioned(profile.into()),
        };
        self.correct(entry, wire)
    }

    /// Returns the wire with which the provider of these clues serves their path, or `None` if the path
    /// is not one of a model. Many servers offer another provider's API beside their own, such as
    /// Anthropic's Messages; its wire is then the other provider's.
    #[must_use]
    pub fn serving(&self, clues: &Clues<'_>) -> Option<Wire> {
        let entry = self.get(clues.provider, "");
        let built_in = || provider::by_id(clues.provider).map(Like::Provider);
        let like = entry.map(|entry| entry.like).or_else(built_in)?;
        let path = clues.bare_path();
        let own = like.wire_for_path(path);
        let wire = clues.versioned(own.or_else(|| provider::offered_by_many(path))?.into());
        Some(match entry {
            Some(entry) => self.correct(entry, wire),
            None if own.is_some() => wire,
            None => {
                let provider = Some(clues.provider.to_owned());
                wire.corrected(Corrections { provider, ..Corrections::default() })
            }
        })
    }

    /// Returns the wire with the corrections of the entry for its API version.
    fn correct(&self, entry: &Entry, wire: Wire) -> Wire {
        let version = wire.api_version().unwrap_or_default();
        self.get(&entry.id, version).unwrap_or(entry).correct(wire)
    }

    /// Returns every wire that can judge a response: those of each provider, and those that servers
    /// offer beside their own.
    pub(crate) fn wires(&self) -> impl Iterator<Item = Wire> {
        let built_in = provider::ALL.iter().flat_map(|known| {
            let own = known.wires().chain(provider::offered());
            own.map(|profile| Wire::from(Profile { provider: known.id, ..*profile }))
        });
        let registered = self.entries().flat_map(|entry| {
            let own = entry.like.wires().chain(provider::offered());
            own.map(|profile| entry.correct(profile.into()))
        });
        built_in.chain(registered)
    }

    /// Returns the capabilities of a provider's wire for a model.
    #[doc(hidden)]
    #[must_use]
    pub fn can(&self, clues: &Clues<'_>, model: &str) -> Can {
        let profile = self.choose(clues).profile;
        Can { capabilities: profile.capabilities, resume: profile.resume_for(model) }
    }

    /// Returns the finish reason of an ending if it is in no table and is new for this provider and
    /// model. The set of known ones is bounded: nothing is reported when it is full.
    pub fn report_unknown(&mut self, wire: &Wire, ending: &Ending) -> Option<UnknownWord> {
        let said = ending.said.as_ref()?;
        let unknown =
            wire.meaning(&said.field, &Word::Text(said.word.as_str().into())) == Meaning::Unknown;
        let counts = ending.over && ending.reason == Reason::Unknown;
        if !unknown || !counts || self.unknown.len() >= MAX_UNKNOWN {
            return None;
        }
        let model = ending.model.clone().unwrap_or_default();
        let new = self.unknown.insert((ending.provider.clone(), model.clone(), said.word.clone()));
        new.then(|| UnknownWord {
            provider: ending.provider.clone(),
            model,
            field: said.field.clone(),
            word: said.word.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(clues: Clues<'_>, provider: &str, dialect: &str, guessed: bool) {
        let wire = choose(&clues);
        assert_eq!(
            (wire.provider(), wire.profile.dialect.id, wire.profile.guessed),
            (provider, dialect, guessed),
            "{clues:?}"
        );
    }

    /// Ollama and LM Studio serve Anthropic's Messages, Groq serves OpenAI's Responses.
    #[test]
    fn apis_that_many_servers_offer_are_known_everywhere() {
        let registry = Registry::default();
        let dialect = |provider: &str, path: &str| {
            let clues = Clues { provider, path, ..Clues::default() };
            let wire = registry.serving(&clues)?;
            assert_eq!(wire.provider(), provider);
            Some(wire.profile.dialect.id)
        };
        let servers = ["ollama", "lmstudio", "vllm", "groq", "openrouter", "deepseek", "cohere"];
        for provider in servers {
            for (path, id) in [
                ("/v1/messages", "anthropic-messages"),
                ("/anthropic/v1/messages?beta=true", "anthropic-messages"),
                ("/messages", "anthropic-messages"),
                ("/v1/responses", "openai-responses"),
                ("/v1/chat/completions", "openai-chat"),
            ] {
                assert_eq!(dialect(provider, path), Some(id), "{provider} {path}");
            }
            for path in [
                "/v1/threads/thread_1/messages",
                "/v1/messages/count_tokens",
                "/v1/messages/batches",
                "/v1/models",
                "/v1/files",
                "/inbox/messages",
            ] {
                assert_eq!(dialect(provider, path), None, "{provider} {path}");
            }
        }
        assert_eq!(dialect("openai", "/v1/messages"), Some("anthropic-messages"));
        assert_eq!(dialect("openai", "/v1/threads/thread_1/messages"), None);
    }

    #[test]
    fn the_surest_clue_decides() {
        let clues = Clues::default();
        check(
            Clues { provider: "xai", path: "/v1/responses", ..clues },
            "xai",
            "openai-responses",
            false,
        );
        check(
            Clues { host: "api.mistral.ai", path: "/v1/chat/completions", ..clues },
            "mistral",
            "openai-chat",
            false,
        );
        check(
            Clues {
                host: "bedrock-runtime.us-east-1.amazonaws.com",
                path: "/model/us.anthropic.claude/invoke",
                ..clues
            },
            "bedrock",
            "anthropic-messages",
            false,
        );
        check(
            Clues {
                host: "us-east5-aiplatform.googleapis.com",
                path: "/v1/x/publishers/anthropic/models/c:streamRawPredict",
                ..clues
            },
            "vertex",
            "anthropic-messages",
            false,
        );
        check(
            Clues { host: "gw.example", path: "/v1/completions", ..clues },
            "openai-compatible",
            "openai-completions",
            false,
        );
        check(
            Clues { provider: "acme", path: "/v1/chat/completions?x=1", ..clues },
            "acme",
            "openai-chat",
            false,
        );
        check(
            Clues { body: b"data: {\"type\":\"message_start\"}\n\n", ..clues },
            "anthropic",
            "anthropic-messages",
            true,
        );
        check(
            Clues { provider: "openai", body: b"{\"object\":\"response\"}", ..clues },
            "openai",
            "openai-responses",
            false,
        );
        check(clues, "openai-compatible", "openai-chat", true);
    }

    #[cfg(feature = "toml")]
    const ACME: &str = r#"
[provider.acme]
like = "openai-chat"
hosts = ["api.acme.example"]
proof = "word"
lies_at_cap = true
[provider.acme.words]
frobnicated = "output_limit"
stop = "paused"
"#;

    fn read(wire: Wire, word: &str) -> Ending {
        let body = format!(
            "{{\"model\":\"m\",\"choices\":[{{\"index\":0,\"message\":{{\"content\":\"x\"}},\"finish_reason\":\"{word}\"}}]}}"
        );
        let mut reader =
            crate::Watcher::new(wire, crate::Head::default(), crate::RequestInfo::default());
        reader.watch(body.as_bytes());
        reader.finish(crate::TransportEnd::Eof)
    }

    #[cfg(feature = "toml")]
    #[test]
    fn users_add_and_correct_words_in_toml() {
        let mut registry = Registry::default();
        registry.add_toml("acme.toml", ACME).unwrap();
        for clues in [
            Clues { provider: "acme", ..Clues::default() },
            Clues {
                host: "api.acme.example:443",
                path: "/v1/chat/completions",
                ..Clues::default()
            },
        ] {
            let wire = registry.choose(&clues);
            assert_eq!((wire.provider(), wire.profile.proof), ("acme", Proof::Word));
            assert_eq!(read(wire.clone(), "frobnicated").reason, Reason::OutputLimit);
            assert_eq!(read(wire.clone(), "stop").reason, Reason::Paused);
            assert_eq!(read(wire, "length").reason, Reason::OutputLimit);
        }
        assert_eq!(
            registry.choose(&Clues { provider: "openai", ..Clues::default() }).provider(),
            "openai"
        );
    }

    #[test]
    fn entries_are_replaced_by_id_and_version() {
        let mut registry = Registry::default();
        let entry = |version: &str, reason| Entry {
            version: version.to_owned(),
            corrections: Corrections {
                provider: None,
                words: vec![Taught {
                    field: None,
                    word: "x".to_owned(),
                    meaning: Meaning::Known(reason),
                }],
            },
            ..Entry::new("acme", Like::Provider(GENERIC))
        };
        assert!(registry.register(entry("", Reason::Failed)).is_none());
        assert!(registry.register(entry("2", Reason::Paused)).is_none());
        let of = |registry: &Registry, version| {
            let clues = Clues { provider: "acme", version, ..Clues::default() };
            read(registry.choose(&clues), "x").reason
        };
        assert_eq!(of(&registry, "2"), Reason::Paused);
        assert_eq!(of(&registry, "3"), Reason::Failed);
        assert!(registry.register(entry("2", Reason::Refused)).is_some());
        assert_eq!(of(&registry, "2"), Reason::Refused);
    }

    #[test]
    fn an_unknown_word_is_reported_once_and_the_set_is_bounded() {
        let mut registry = Registry::default();
        let wire = Wire::from(GENERIC);
        let report = |registry: &mut Registry, word: &str| {
            registry.report_unknown(&wire, &read(wire.clone(), word))
        };
        let first = report(&mut registry, "frobnicated").unwrap();
        assert_eq!(
            (first.model.as_str(), &*first.field, first.word.as_str()),
            ("m", "finish_reason", "frobnicated")
        );
        assert_eq!(report(&mut registry, "frobnicated"), None);
        assert_eq!(report(&mut registry, "stop"), None);
        for number in 0..2 * MAX_UNKNOWN {
            report(&mut registry, &format!("word{number}"));
        }
        assert_eq!(registry.unknown.len(), MAX_UNKNOWN);
    }

    #[test]
    fn capabilities_are_found() {
        let registry = Registry::default();
        let claude = Clues { provider: "anthropic", ..Clues::default() };
        assert!(matches!(registry.can(&claude, "claude-haiku-4-5").resume, Resume::Prefill(_)));
        assert!(matches!(registry.can(&claude, "claude-sonnet-5").resume, Resume::Hint(_)));
        assert!(registry.can(&claude, "").capabilities.tools);
    }

    /// Returns the ending of a body that a wire of the registry reads.
    fn ends(registry: &Registry, clues: Clues<'_>, body: &str) -> (Reason, crate::Confidence) {
        let wire = registry.choose(&Clues { body: body.as_bytes(), ..clues });
        let mut reader =
            crate::Watcher::new(wire, crate::Head::default(), crate::RequestInfo::default());
        reader.watch(body.as_bytes());
        let ending = reader.finish(crate::TransportEnd::Eof);
        (ending.reason, ending.confidence)
    }

    #[cfg(feature = "toml")]
    const TAUGHT: &str = r#"
[provider.openai]
proof = "word"
[provider.openai.words]
frobnicated = "output_limit"
shrugged = { reason = "unknown", vague = true }
mumbled = "unknown"
nodded = { reason = "complete", vague = true }
withheld = { reason = "filtered", vague = true }
[provider.openai.words."incomplete_details.reason"]
budget = "output_limit"
[provider.openai.words."choices[].finish_details.type"]
full = { reason = "context_limit" }
[provider.openai.versions."v2".words]
frobnicated = "paused"
[provider.gemini.words]
WEARY = "paused"
99 = "refused"
[provider.gemini.words.blockReason]
OTHER = "refused"
"#;

    #[cfg(feature = "toml")]
    #[test]
    fn a_corrected_provider_keeps_all_its_wires() {
        use crate::Confidence::{High, Medium};
        let mut registry = Registry::default();
        registry.add_toml("x.toml", TAUGHT).unwrap();
        let clues = Clues::default();
        let chat = |word: &str| {
            format!(r#"{{"choices":[{{"message":{{"content":"x"}},"finish_reason":"{word}"}}]}}"#)
        };
        let response = |status: &str, reason: &str| {
            format!(
                r#"{{"object":"response","status":"{status}","incomplete_details":{{"reason":"{reason}"}},"output":[{{"type":"message","content":[{{"type":"output_text","text":"x"}}]}}]}}"#
            )
        };
        let (chat_path, responses) = ("/v1/chat/completions", "/v1/responses");
        for (clues, body, want) in [
            (
                Clues { provider: "openai", ..clues },
                chat("frobnicated"),
                (Reason::OutputLimit, High),
            ),
            (
                Clues { provider: "chatgpt", ..clues },
                chat("frobnicated"),
                (Reason::OutputLimit, High),
            ),
            (
                Clues { host: "api.openai.com", path: chat_path, ..clues },
                chat("frobnicated"),
                (Reason::OutputLimit, High),
            ),
            (
                Clues { provider: "openai", path: "/v2/chat/completions", ..clues },
                chat("frobnicated"),
                (Reason::Paused, High),
            ),
            (Clues { provider: "openai", ..clues }, chat("shrugged"), (Reason::Unknown, Medium)),
            (Clues { provider: "openai", ..clues }, chat("mumbled"), (Reason::Unknown, Medium)),
            (Clues { provider: "openai", ..clues }, chat("nodded"), (Reason::Complete, Medium)),
            (Clues { provider: "openai", ..clues }, chat("withheld"), (Reason::Filtered, Medium)),
            (Clues { provider: "openai", ..clues }, chat("stop"), (Reason::Complete, High)),
            // The same finish reasons in the main field of the other wire, and in a nested field.
            (
                Clues { provider: "openai", path: responses, ..clues },
                response("frobnicated", ""),
                (Reason::OutputLimit, High),
            ),
            (
                Clues { provider: "openai", ..clues },
                response("incomplete", "budget"),
                (Reason::OutputLimit, High),
            ),
            // A finish reason without a field applies to the main field only.
            (
                Clues { provider: "openai", path: responses, ..clues },
                response("incomplete", "frobnicated"),
                (Reason::Unknown, Medium),
            ),
            (
                Clues { provider: "openai", path: responses, ..clues },
                response("completed", ""),
                (Reason::Complete, High),
            ),
            // Other providers are not affected.
            (Clues { provider: "azure", ..clues }, chat("frobnicated"), (Reason::Unknown, Medium)),
            (
                Clues { provider: "google", ..clues },
                r#"{"candidates":[{"finishReason":"WEARY"}]}"#.to_owned(),
                (Reason::Paused, High),
            ),
            (
                Clues { host: "generativelanguage.googleapis.com", ..clues },
                r#"{"candidates":[{"finishReason":99}]}"#.to_owned(),
                (Reason::Refused, High),
            ),
            (
                Clues { provider: "google", ..clues },
                r#"{"promptFeedback":{"blockReason":"OTHER"}}"#.to_owned(),
                (Reason::Refused, High),
            ),
        ] {
            assert_eq!(ends(&registry, clues, &body), want, "{clues:?} {body}");
        }
        let wire = registry.choose(&Clues { provider: "chatgpt", ..clues });
        assert_eq!((wire.provider(), wire.profile.proof), ("openai", Proof::Word));
        let served = registry.serving(&Clues { provider: "chatgpt", path: chat_path, ..clues });
        assert_eq!(served.unwrap().profile.proof, Proof::Word);
        // This wire proves its end with an event.
        let wire = registry.choose(&Clues { provider: "openai", path: responses, ..clues });
        assert_eq!(wire.profile.proof, Proof::Event);
    }

    #[cfg(feature = "toml")]
    #[test]
    fn a_provider_of_ones_own_is_like_a_provider_or_like_one_wire() {
        let mut registry = Registry::default();
        let text = r#"
[provider.all]
like = "openai"
hosts = ["*.all.example"]
[provider.one]
like = "anthropic-messages"
"#;
        registry.add_toml("x.toml", text).unwrap();
        let found = |clues: Clues<'_>| {
            let wire = registry.choose(&clues);
            (wire.provider().to_owned(), wire.profile.dialect.id)
        };
        let clues = Clues { path: "/v1/responses", ..Clues::default() };
        let all = |dialect| ("all".to_owned(), dialect);
        assert_eq!(found(Clues { provider: "all", ..clues }), all("openai-responses"));
        assert_eq!(found(Clues { host: "API.all.example:443", ..clues }), all("openai-responses"));
        assert_eq!(found(Clues { provider: "all", path: "", ..clues }), all("openai-chat"));
        for host in ["api.all.example.evil", "evil-all.example", "a.b.all.example", "all.example"] {
            assert_eq!(found(Clues { host, ..clues }).0, "openai-compatible", "{host}");
        }
        let one = ("one".to_owned(), "anthropic-messages");
        assert_eq!(found(Clues { provider: "one", ..clues }), one);
        let serving = |provider, path| {
            let wire = registry.serving(&Clues { provider, path, ..Clues::default() })?;
            Some((wire.provider().to_owned(), wire.profile.dialect.id))
        };
        assert_eq!(serving("all", "/v1/responses?x=1"), Some(all("openai-responses")));
        assert_eq!(serving("all", "/v1/models"), None);
        assert_eq!(serving("one", "/v1/messages"), Some(one));
        // An API that many servers offer is read, whatever it is like.
        let offered = ("one".to_owned(), "openai-responses");
        assert_eq!(serving("one", "/v1/responses"), Some(offered));
        assert_eq!(serving("nobody", "/v1/responses"), None);
        assert_eq!(registry.get("one", "").unwrap().like.provider().id, "anthropic");
    }

    #[test]
    fn versions_are_told_by_headers_query_and_path() {
        let version = |clues: &Clues<'_>| choose(clues).api_version().map(str::to_owned);
        let clues = Clues::default();
        let headers = [("Anthropic-Version", "2026-10-21")];
        let told =
            Clues { provider: "anthropic", path: "/v1/messages", headers: &headers, ..clues };
        assert_eq!(version(&told).as_deref(), Some("2026-10-21"));
        assert_eq!(version(&Clues { version: "x", ..told }).as_deref(), Some("x"));
        let azure = Clues {
            provider: "azure",
            path: "/d/chat/completions?api-version=2024-10-21",
            ..clues
        };
        assert_eq!(version(&azure).as_deref(), Some("2024-10-21"));
        assert_eq!(version(&Clues { provider: "openai", ..clues }), None);
    }

    /// The path alone identifies one of two services, and with it the meaning of its integers.
    #[test]
    fn integers_are_those_of_the_service_that_the_path_tells() {
        let registry = Registry::default();
        let body = r#"{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":9}]}"#;
        let ends = |path| ends(&registry, Clues { path, ..Clues::default() }, body).0;
        assert_eq!(ends("/v1beta/models/gemini-3:generateContent"), Reason::Filtered);
        let vertex = "/v1/projects/p/locations/l/publishers/google/models/m:generateContent";
        assert_eq!(ends(vertex), Reason::MalformedToolCall);
    }

    #[cfg(feature = "toml")]
    #[test]
    fn bad_toml_gets_one_line_with_file_and_line() {
        let fails = |text: &str, line: usize, says: &str| {
            let mut registry = Registry::default();
            let error = registry.add_toml("x.toml", text).unwrap_err();
            let shown = error.to_string();
            assert!(
                shown.starts_with(&format!("x.toml:{line}: ")) && shown.contains(says),
                "{text}: {shown}"
            );
            assert_eq!(shown.lines().count(), 1, "{shown}");
            assert!(registry.entries.is_empty());
        };
        let acme = "[provider.acme]\nlike = \"openai-chat\"\n";
        let with = |rest: &str| format!("{acme}{rest}");
        fails("[provider.acme\nlike = 1", 1, "");
        fails("[provider.acme]\nlike = 1\n", 2, "string");
        fails(
            "[provider.acme]\nlike = \"nobody\"\n",
            2,
            "unknown provider or wire `nobody`: expected",
        );
        fails("[provider.acme]\nlike = \"opneai\"\n", 2, "did you mean `openai`?");
        fails("[provider.acme]\nhosts = []\n", 1, "unknown provider `acme`: add `like = \"…\"`");
        fails("[provider.anthropc]\nhosts = []\n", 1, "did you mean `anthropic`?");
        fails("[provider.\"a b\"]\nlike = \"openai\"\n", 1, "invalid provider name `a b`");
        fails("listen = 1\n", 1, "unknown field `listen`");
        fails(&with("frob = 1\n"), 3, "unknown field `frob`");
        fails(&with("proof = \"luck\"\n"), 3, "invalid proof `luck`: expected marker, event, word");
        fails(&with("hosts = [\"https://x\"]\n"), 3, "invalid host `https://x`");
        fails(&with("hosts = [\".acme.example\"]\n"), 3, "invalid host `.acme.example`");
        fails(&with("base_url = \"acme\"\n"), 3, "invalid base_url: expected https:// or http://");
        fails("[provider.openai]\nlike = \"openai-chat\"\n", 1, "is built in: remove `like`");
        fails("[provider.openai]\n[provider.chatgpt]\n", 1, "duplicate provider `openai`");
        fails(&with("[provider.acme]\nlike = \"openai-chat\"\n"), 3, "duplicate");
        let words = |rest: &str| with(&format!("[provider.acme.words]\n{rest}\n"));
        fails(
            &words("\nx = \"success\""),
            5,
            "invalid meaning `success` for `x`: expected one of complete, stop_sequence",
        );
        fails(&words("x = 1"), 4, "invalid meaning for `x`: expected a name");
        fails(&words("x = []"), 4, "invalid meaning for `x`");
        fails(&words("x = {}"), 4, "invalid meaning for `x`");
        fails(&words("x = { reason = \"nope\" }"), 4, "invalid meaning `nope` for `x`");
        fails(&words("x = { reason = \"failed\", vague = 1 }"), 4, "invalid `vague` of `x`");
        fails(&words("\"\" = \"failed\""), 4, "invalid word: it must not be empty");
        fails(&words("finish_reason = \"failed\""), 4, "`finish_reason` is a field");
        fails(
            &with("[provider.acme.words.finsh_reason]\n\nx = \"failed\"\n"),
            3,
            "unknown field `finsh_reason`: expected one of finish_reason, finish_details.type;",
        );
        fails(
            &with("[provider.acme.words.finish_reason]\nx = \"failed\"\ny = \"nope\"\n"),
            5,
            "invalid meaning `nope` for `y`",
        );
        fails(
            &with("[provider.acme.versions.v2.words]\nx = \"nope\"\n"),
            4,
            "invalid meaning `nope` for `x`",
        );
        fails(
            &with("[provider.acme.versions.2099.words]\nx = \"failed\"\n"),
            3,
            "invalid version `2099`: requests name the version of this API in their path",
        );
        fails(&with("[provider.acme.versions.2]\nwrods = 1\n"), 4, "unknown field `wrods`");
    }

    #[cfg(feature = "toml")]
    #[test]
    fn nothing_of_a_bad_file_is_registered_and_a_second_file_adds() {
        let mut registry = Registry::default();
        registry.add_toml("a.toml", ACME).unwrap();
        let bad =
            "[provider.bravo]\nlike = \"openai-chat\"\n[provider.charlie]\nlike = \"nobody\"\n";
        assert!(registry.add_toml("b.toml", bad).is_err());
        assert!(registry.get("bravo", "").is_none());
        let again = registry.add_toml("c.toml", ACME).unwrap_err();
        assert!(again.to_string().contains("c.toml:2: provider `acme` is already registered"));
        let replaced = ACME.replace("proof =", "replace = true\nproof =");
        registry.add_toml("d.toml", &replaced).unwrap();
        let other =
            "listen = 1\n[provider.openai]\nreplace = true\nlike = \"anthropic-messages\"\n";
        registry.add_toml_within("e.toml", other).unwrap();
        let wire = registry.choose(&Clues { host: "api.openai.com", ..Clues::default() });
        assert_eq!((wire.provider(), wire.profile.dialect.id), ("openai", "anthropic-messages"));
    }
}
