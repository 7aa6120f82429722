//! Which wire reads this response? Found from whatever is known of it.
//!
//! [`choose`] knows the built-in providers. A [`Registry`] knows besides them those that users
//! register at run time or write in TOML:
//!
//! ```
//! use endstop::registry::{Clues, Registry};
//!
//! let mut registry = Registry::default();
//! registry.add_toml("mine.toml", r#"
//!     [provider.acme]
//!     like = "openai-chat"
//!     hosts = ["api.acme.example"]
//!     [provider.acme.words]
//!     frobnicated = "output_limit"
//! "#)?;
//! let wire = registry.choose(&Clues { host: "api.acme.example", ..Clues::default() });
//! assert_eq!(wire.provider(), "acme");
//! # Ok::<(), endstop::registry::Error>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use toml::Spanned;

use crate::dialect::Proof;
use crate::ending::{Ending, Reason};
use crate::event::Word;
use crate::provider::{self, Capabilities, Corrections, GENERIC, Profile, Provider, Resume, Wire};
use crate::shape;
use crate::verdict::Meaning;

/// The most unknown words that are remembered.
const MAX_UNKNOWN: usize = 1024;

/// What is known of a response before it is read. Empty where it is not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clues<'a> {
    /// The provider's id, an alias, or a name that we do not know.
    pub provider: &'a str,
    /// The dialect's id.
    pub dialect: &'a str,
    /// The host that served it.
    pub host: &'a str,
    /// The path that was asked.
    pub path: &'a str,
    /// The version of the API, where a provider has entries for several.
    pub version: &'a str,
    /// The beginning of the body, or all of it.
    pub body: &'a [u8],
}

/// The wire that reads it, by the surest clue there is: provider, host, path, then shape.
///
/// Where nothing fits, it is read as chat completions, by guess.
#[must_use]
pub fn choose(clues: &Clues<'_>) -> Wire {
    let named = provider::by_id(clues.provider);
    let hosted = || Some(clues.host).filter(|host| !host.is_empty()).and_then(provider::by_host);
    let known = named.or_else(hosted);
    let wire = match known {
        Some(provider) => of_provider(provider, clues),
        None => of_anyone(clues),
    };
    match (known, clues.provider) {
        (None, name) if !name.is_empty() => wire
            .corrected(Corrections { provider: Some(name.to_owned()), ..Corrections::default() }),
        _ => wire,
    }
}

fn of_provider(provider: &'static Provider, clues: &Clues<'_>) -> Wire {
    let own = told(clues, |id| provider.wire_of(id), |path| provider.wire_for_path(path));
    if let Some(profile) = own {
        return profile.into();
    }
    // A wire that it is not known for, as compatible endpoints are: read as anyone's.
    let told = told_of_anyone(clues).map(|profile| Profile { provider: provider.id, ..*profile });
    if let Some(profile) = told {
        return profile.into();
    }
    // Nobody said which of its wires this is: the body does, if it is one of them.
    let guess = shape::guess(clues.body);
    guess.and_then(|guess| provider.wire_of(guess.dialect.id)).unwrap_or(&provider.main).into()
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

/// The wire that the dialect's id or the path names.
fn told<'p>(
    clues: &Clues<'_>,
    by_dialect: impl Fn(&str) -> Option<&'p Profile>,
    by_path: impl Fn(&str) -> Option<&'p Profile>,
) -> Option<&'p Profile> {
    let path = clues.path.split(['?', '#']).next().unwrap_or_default();
    by_dialect(clues.dialect)
        .or_else(|| Some(path).filter(|path| !path.is_empty()).and_then(by_path))
}

/// Providers that were registered at run time, before those that are built in.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: BTreeMap<String, Vec<Entry>>,
    unknown: BTreeSet<(String, String, String)>,
}

/// A provider that was registered at run time.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// The version of its API that this is about; empty for any.
    pub version: String,
    /// The hosts that it serves from.
    pub hosts: Vec<String>,
    /// The wire that reads it.
    pub wire: Wire,
}

/// A word that a provider said and that is in no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    /// Who said it.
    pub provider: String,
    /// Of which model; empty where it is not known.
    pub model: String,
    /// In which field.
    pub field: &'static str,
    /// The word.
    pub word: String,
}

/// What a wire can do, and how its answers are resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Can {
    /// What it can do.
    pub capabilities: Capabilities,
    /// How a cut answer of the model is resumed.
    pub resume: Resume,
}

impl Registry {
    /// Registers a provider. One of the same id and version is replaced and given back.
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

    /// The registered provider of this id and version; a version that is not there falls back to
    /// the entry for any.
    #[must_use]
    pub fn get(&self, id: &str, version: &str) -> Option<&Entry> {
        let versions = self.entries.get(id)?;
        let exact = versions.iter().find(|entry| entry.version == version);
        exact
            .or_else(|| versions.iter().find(|entry| entry.version.is_empty()))
            .or_else(|| versions.last())
    }

    /// The wire that reads a response, by the surest clue there is.
    #[must_use]
    pub fn choose(&self, clues: &Clues<'_>) -> Wire {
        let named = self.get(clues.provider, clues.version);
        let host = clues.host.split(':').next().unwrap_or_default();
        let hosted = || {
            let serves = |entry: &&Entry| {
                entry.hosts.iter().any(|known| known == clues.host || known == host)
            };
            self.entries.values().flatten().find(serves)
        };
        match named.or_else(|| if clues.provider.is_empty() { hosted() } else { None }) {
            Some(entry) => entry.wire.clone(),
            None => choose(clues),
        }
    }

    /// What a provider's wire can do for a model.
    #[must_use]
    pub fn can(&self, clues: &Clues<'_>, model: &str) -> Can {
        let profile = self.choose(clues).profile;
        Can { capabilities: profile.capabilities, resume: profile.resume_for(model) }
    }

    /// The word of an ending, if it is in no table and is met for the first time of this provider
    /// and model. The set is bounded: when it is full, nothing more is reported.
    pub fn report_unknown(&mut self, wire: &Wire, ending: &Ending) -> Option<UnknownWord> {
        let said = ending.said.as_ref()?;
        let unknown =
            wire.meaning(said.field, &Word::Text(said.word.as_str().into())) == Meaning::Unknown;
        if !unknown || ending.reason != Reason::Unknown || self.unknown.len() >= MAX_UNKNOWN {
            return None;
        }
        let model = ending.model.clone().unwrap_or_default();
        let new = self.unknown.insert((ending.provider.clone(), model.clone(), said.word.clone()));
        new.then(|| UnknownWord {
            provider: ending.provider.clone(),
            model,
            field: said.field,
            word: said.word.clone(),
        })
    }

    /// Registers the providers that are written in TOML.
    ///
    /// # Errors
    /// What is wrong, with the file's name and the line. Nothing is registered then.
    pub fn add_toml(&mut self, file: &str, text: &str) -> Result<(), Error> {
        let written: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            Error {
                file: file.to_owned(),
                line,
                message: error.message().lines().collect::<Vec<_>>().join("; "),
            }
        })?;
        let at = |span: std::ops::Range<usize>, message: String| Error {
            file: file.to_owned(),
            line: line_of(text, span.start),
            message,
        };
        let mut entries = Vec::new();
        for (id, provider) in written.provider {
            let taken =
                self.entries.contains_key(id.get_ref()) || provider::by_id(id.get_ref()).is_some();
            if taken && !provider.replace {
                let message = format!(
                    "there is a provider `{}` already: say `replace = true` to replace it",
                    id.get_ref()
                );
                return Err(at(id.span(), message));
            }
            entries.push(provider.entry(id.into_inner(), &at)?);
        }
        for entry in entries {
            self.register(entry);
        }
        Ok(())
    }
}

/// What is wrong with a file of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file.
    pub file: String,
    /// The line, from one on.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for Error {}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    provider: BTreeMap<Spanned<String>, Written>,
}

/// A provider as users write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// A dialect or a provider that it is like.
    like: Spanned<String>,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    version: String,
    #[serde(default)]
    hosts: Vec<String>,
    /// Words of the field that the dialect has first, and their meanings.
    #[serde(default)]
    words: BTreeMap<String, Spanned<String>>,
    proof: Option<Spanned<String>>,
    lies_at_cap: Option<bool>,
    reasoning_beside_output: Option<bool>,
}

impl Written {
    fn entry(
        self,
        id: String,
        at: &impl Fn(std::ops::Range<usize>, String) -> Error,
    ) -> Result<Entry, Error> {
        let like = self.like.get_ref();
        let known = told_of_anyone(&Clues { dialect: like, ..Clues::default() }).copied();
        let known = known.or_else(|| provider::by_id(like).map(|provider| provider.main));
        let Some(mut profile) = known else {
            let dialects: Vec<&str> =
                crate::dialect::ALL.iter().map(|dialect| dialect.id).collect();
            let message = format!(
                "nothing is called `{like}`: it takes a provider's id or one of {}",
                dialects.join(", ")
            );
            return Err(at(self.like.span(), message));
        };
        if let Some(proof) = &self.proof {
            profile.proof = read_proof(proof.get_ref(), &profile).ok_or_else(|| {
                at(
                    proof.span(),
                    format!(
                        "`{}` proves nothing: it takes marker, event, word or silent",
                        proof.get_ref()
                    ),
                )
            })?;
        }
        profile.quirks.lies_at_cap = self.lies_at_cap.unwrap_or(profile.quirks.lies_at_cap);
        profile.quirks.reasoning_beside_output =
            self.reasoning_beside_output.unwrap_or(profile.quirks.reasoning_beside_output);
        let field = profile.dialect.words.first().map_or("finish_reason", |words| words.field);
        let mut words = Vec::new();
        for (word, meaning) in self.words {
            let Some(reason) = Reason::from_name(meaning.get_ref()) else {
                let names: Vec<&str> = Reason::ALL.into_iter().map(Reason::name).collect();
                let message = format!(
                    "`{word}` cannot mean `{}`: it takes one of {}",
                    meaning.get_ref(),
                    names.join(", ")
                );
                return Err(at(meaning.span(), message));
            };
            words.push((field.to_owned(), word, reason));
        }
        let wire = Wire::from(profile).corrected(Corrections { provider: Some(id.clone()), words });
        Ok(Entry { id, version: self.version, hosts: self.hosts, wire })
    }
}

fn read_proof(word: &str, profile: &Profile) -> Option<Proof> {
    match word {
        "marker" => Some(match profile.proof {
            Proof::Marker(marker) => Proof::Marker(marker),
            Proof::Event | Proof::Word | Proof::Silent => Proof::Marker("[DONE]"),
        }),
        "event" => Some(Proof::Event),
        "word" => Some(Proof::Word),
        "silent" => Some(Proof::Silent),
        _ => None,
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
        let mut reader = crate::Reader::new(wire, crate::Head::default(), crate::Asked::default());
        reader.watch(body.as_bytes());
        reader.finish(crate::Close::Eof)
    }

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
            id: "acme".to_owned(),
            version: version.to_owned(),
            hosts: Vec::new(),
            wire: Wire::from(GENERIC).corrected(Corrections {
                provider: Some("acme".to_owned()),
                words: vec![("finish_reason".to_owned(), "x".to_owned(), reason)],
            }),
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
            (first.model.as_str(), first.field, first.word.as_str()),
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

    #[test]
    fn bad_toml_gets_one_line_with_file_and_line() {
        let fails = |text: &str, line: usize, says: &str| {
            let mut registry = Registry::default();
            let error = registry.add_toml("x.toml", text).unwrap_err();
            let shown = error.to_string();
            assert!(
                shown.starts_with(&format!("x.toml:{line}: ")) && shown.contains(says),
                "{shown}"
            );
            assert_eq!(shown.lines().count(), 1, "{shown}");
            assert!(registry.entries.is_empty());
        };
        fails("[provider.acme\nlike = 1", 1, "");
        fails("[provider.acme]\nlike = 1\n", 2, "string");
        fails("[provider.acme]\nlike = \"nobody\"\n", 2, "nothing is called `nobody`");
        fails("[provider.acme]\nlike = \"openai-chat\"\nfrob = 1\n", 3, "frob");
        fails("[provider.acme]\nlike = \"openai-chat\"\nproof = \"luck\"\n", 3, "proves nothing");
        fails(
            "[provider.acme]\nlike = \"openai-chat\"\n[provider.acme.words]\nx = \"success\"\n",
            4,
            "cannot mean `success`",
        );
        fails("[provider.openai]\nlike = \"openai-chat\"\n", 1, "already");
        fails(
            "[provider.a]\nlike = \"openai-chat\"\n[provider.a]\nlike = \"openai-chat\"\n",
            3,
            "duplicate",
        );
    }
}
