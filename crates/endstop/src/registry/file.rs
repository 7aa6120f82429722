//! Providers and finish reasons that users define in TOML.
//!
//! ```toml
//! [provider.openai.words]                       # corrects a built-in provider, on all its wires
//! frobnicated = "output_limit"                  # in the main field of each wire
//! shrugged = { reason = "unknown", vague = true }
//! [provider.openai.words."incomplete_details.reason"]
//! budget = "output_limit"                       # in this field
//! [provider.openai.versions."v2".words]         # for one version of the API
//! frobnicated = "paused"
//!
//! [provider.acme]                               # adds a provider
//! like = "openai-chat"
//! hosts = ["api.acme.example"]
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use toml::Spanned;

use super::{Entry, Like, Registry};
use crate::dialect::Proof;
use crate::dialect::common::END_MARKER;
use crate::ending::Reason;
use crate::nearest::nearest;
use crate::provider::{self, Corrections, Profile, Taught};
use crate::text::{plain_error, toml_key_at};
use crate::verdict::Meaning;
use crate::version::can_be_named;

impl Registry {
    /// Registers the providers and finish reasons of a TOML file. It may contain only
    /// `[provider.NAME]` tables.
    ///
    /// # Errors
    /// Returns the file name, the line and the problem. Nothing is registered then.
    pub fn add_toml(&mut self, file: &str, text: &str) -> Result<(), ProviderFileError> {
        check_keys(file, text)?;
        self.add_toml_within(file, text)
    }

    /// Registers the `[provider.NAME]` tables of a TOML file that may contain other tables.
    ///
    /// # Errors
    /// Returns the file name, the line and the problem. Nothing is registered then.
    pub fn add_toml_within(&mut self, file: &str, text: &str) -> Result<(), ProviderFileError> {
        for entry in entries(self, file, text)? {
            self.register(entry);
        }
        Ok(())
    }
}

/// A problem in a file of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderFileError {
    /// Name of the file.
    pub file: String,
    /// Line number, starting at 1.
    pub line: usize,
    /// Problem, and how to fix it.
    pub message: String,
}

impl fmt::Display for ProviderFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for ProviderFileError {}

/// Rejects a file that contains anything but tables of providers.
fn check_keys(file: &str, text: &str) -> Result<(), ProviderFileError> {
    let source = Source { file, text };
    toml::from_str::<Alone>(text).map(drop).map_err(|error| source.unread(&error))
}

/// Parses the tables of providers without registering them.
fn entries(registry: &Registry, file: &str, text: &str) -> Result<Vec<Entry>, ProviderFileError> {
    let source = Source { file, text };
    let written: File = toml::from_str(text).map_err(|error| source.unread(&error))?;
    let mut entries: Vec<Entry> = Vec::new();
    for (name, provider) in written.provider {
        let made = source.entries(registry, &name, provider)?;
        if made.iter().any(|new| entries.iter().any(|known| known.id == new.id)) {
            let message =
                format!("duplicate provider `{}`: this file already defines it", name.get_ref());
            return Err(source.error(name.span(), message));
        }
        entries.extend(made);
    }
    Ok(entries)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Alone {
    #[serde(default, rename = "provider")]
    _provider: IgnoredAny,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    provider: BTreeMap<Spanned<String>, Written>,
}

/// A provider in the TOML file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table of a provider's settings")]
struct Written {
    /// Provider (all its wires) or wire that it is like, such as `openai-chat`. Leave it out to correct a
    /// built-in provider.
    like: Option<Spanned<String>>,
    /// Whether it replaces a provider of this name, built in or from another file.
    #[serde(default)]
    replace: bool,
    /// Hosts that identify it, such as `api.acme.example`, `*.acme.example`.
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
    /// Base URL of its API, such as `https://api.acme.example/v1`. The gateway serves it at its name.
    base_url: Option<Spanned<String>>,
    /// Finish reasons in the main field of each wire, with their meanings, such as
    /// `frobnicated = "output_limit"`. A table of the name of another field has the finish reasons of
    /// that field.
    #[serde(default)]
    words: WrittenWords,
    /// Finish reasons of single versions of the API, such as `v2`. They precede those of `words`.
    #[serde(default)]
    versions: BTreeMap<Spanned<String>, WrittenVersion>,
    /// Signal at the end of a stream, such as `word`: `marker`, `event`, `word` or `silent`. By default
    /// that of `like`.
    proof: Option<Spanned<String>>,
    /// Whether it reports a natural stop when the output token limit was reached.
    lies_at_cap: Option<bool>,
    /// Whether its output tokens exclude reasoning tokens.
    reasoning_beside_output: Option<bool>,
    /// Size of its context in tokens, prompt and answer together, such as `8192`.
    context_tokens: Option<NonZeroU64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with the words of a version")]
struct WrittenVersion {
    /// Finish reasons of this version, such as `weary = "paused"`.
    words: WrittenWords,
}

/// Finish reasons with their meanings, and fields with their tables.
type WrittenWords = BTreeMap<Spanned<String>, Spanned<WrittenWord>>;

/// Value of a finish reason or a field.
enum WrittenWord {
    /// Meaning by its name.
    Name(String),
    /// A flag, for `vague`.
    Flag(bool),
    /// Meaning with `vague`, or the finish reasons of a field.
    Table(WrittenWords),
    /// A value that is never valid.
    Other,
}

// Written by hand, since an untagged enum would lose the spans.
impl<'de> Deserialize<'de> for WrittenWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = WrittenWord;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a meaning")
            }

            fn visit_str<E>(self, name: &str) -> Result<WrittenWord, E> {
                Ok(WrittenWord::Name(name.to_owned()))
            }

            fn visit_bool<E>(self, flag: bool) -> Result<WrittenWord, E> {
                Ok(WrittenWord::Flag(flag))
            }

            fn visit_i64<E>(self, _: i64) -> Result<WrittenWord, E> {
                Ok(WrittenWord::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<WrittenWord, E> {
                Ok(WrittenWord::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WrittenWord, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(WrittenWord::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WrittenWord, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(map)).map(WrittenWord::Table)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Range<usize>, message: String) -> ProviderFileError {
        let before = self.text.bytes().take(span.start);
        let line = before.filter(|byte| *byte == b'\n').count() + 1;
        ProviderFileError { file: self.file.to_owned(), line, message }
    }

    /// Returns the error of the TOML parser, on one line.
    fn unread(&self, error: &toml::de::Error) -> ProviderFileError {
        let span = error.span().unwrap_or(0..0);
        let mut message = plain_error(error.message(), "value");
        // Two tables differ in one letter: that one is part of a policy.
        if message.contains("unknown field `providers`") {
            message.push_str("; did you mean `[provider.NAME]`?");
        }
        match toml_key_at(self.text, span.start) {
            (_, key) if key.is_empty() => self.error(span, message),
            (_, key) => self.error(span, format!("`{key}`: {message}")),
        }
    }

    fn entries(
        &self,
        registry: &Registry,
        name: &Spanned<String>,
        written: Written,
    ) -> Result<Vec<Entry>, ProviderFileError> {
        let (id, like) = self.like(registry, name, &written)?;
        let mut entry = Entry::new(&id, like);
        entry.hosts = self.hosts(written.hosts)?;
        entry.base_url = written.base_url.map(|url| self.base_url(url)).transpose()?;
        entry.proof = written.proof.map(|proof| self.proof(&proof, like)).transpose()?;
        entry.lies_at_cap = written.lies_at_cap;
        entry.reasoning_beside_output = written.reasoning_beside_output;
        entry.context_tokens = written.context_tokens.map(NonZeroU64::get);
        entry.corrections = Corrections { provider: None, words: self.words(written.words, like)? };
        let mut entries = vec![entry.clone()];
        for (version, own) in written.versions {
            self.check_version(&version, like)?;
            let mut words = entry.corrections.words.clone();
            words.extend(self.words(own.words, like)?);
            let corrections = Corrections { provider: None, words };
            let version = version.into_inner();
            entries.push(Entry { version, corrections, ..entry.clone() });
        }
        Ok(entries)
    }

    /// Rejects a version that no request can name.
    fn check_version(
        &self,
        version: &Spanned<String>,
        like: Like,
    ) -> Result<(), ProviderFileError> {
        if like.wires().any(|wire| can_be_named(wire.versions, version.get_ref())) {
            return Ok(());
        }
        let message = format!(
            "invalid version `{}`: requests name the version of this API in their path, such as `v1` \
             or `v1beta`",
            crate::text::clean(version.get_ref(), 80)
        );
        Err(self.error(version.span(), message))
    }

    /// Returns the id of a provider and what it is like. A correction is like the provider itself.
    fn like(
        &self,
        registry: &Registry,
        name: &Spanned<String>,
        written: &Written,
    ) -> Result<(String, Like), ProviderFileError> {
        let id = name.get_ref();
        let wrong = |message: String| Err(self.error(name.span(), message));
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if id.is_empty() || id.len() > 64 || !id.chars().all(allowed) {
            return wrong(format!(
                "invalid provider name `{}`: expected up to 64 letters, digits, `-` and `_`",
                crate::text::clean(id, 80)
            ));
        }
        let built_in = provider::by_id(id);
        if registry.get(id, "").is_some() && !written.replace {
            return wrong(format!(
                "provider `{id}` is already registered: add `replace = true` to replace it"
            ));
        }
        match (built_in, &written.like) {
            (Some(provider), None) => Ok((provider.id.to_owned(), Like::Provider(provider))),
            (Some(provider), Some(_)) if !written.replace => wrong(format!(
                "provider `{}` is built in: remove `like` to correct it, or add `replace = true` to \
                 replace it",
                provider.id
            )),
            (_, Some(like)) => {
                let id = built_in.map_or(id.as_str(), |provider| provider.id);
                Ok((id.to_owned(), self.named(like)?))
            }
            (None, None) => {
                let ids = provider::ALL.iter().map(|provider| provider.id);
                let meant = nearest(id, ids).map(|id| format!("; did you mean `{id}`?"));
                wrong(format!(
                    "unknown provider `{id}`: add `like = \"…\"` with a provider or a wire that it \
                     is like{}",
                    meant.unwrap_or_default()
                ))
            }
        }
    }

    fn named(&self, like: &Spanned<String>) -> Result<Like, ProviderFileError> {
        let name = like.get_ref();
        Like::named(name).ok_or_else(|| {
            let wires: Vec<&str> = crate::dialect::ALL.iter().map(|dialect| dialect.id).collect();
            let ids = provider::ALL.iter().map(|provider| provider.id);
            let meant = nearest(name, ids.chain(wires.iter().copied()));
            let meant = meant.map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
            let message = format!(
                "unknown provider or wire `{name}`: expected a provider's id or one of {}{meant}",
                wires.join(", ")
            );
            self.error(like.span(), message)
        })
    }

    fn hosts(&self, hosts: Vec<Spanned<String>>) -> Result<Vec<String>, ProviderFileError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-*".contains(c);
        let is_label = |label: &str| !label.is_empty() && label.chars().all(allowed);
        let read = |host: Spanned<String>| {
            if host.get_ref().split('.').all(is_label) {
                return Ok(host.get_ref().to_ascii_lowercase());
            }
            let message = format!(
                "invalid host `{}`: expected a name such as `api.acme.example` or `*.acme.example`, \
                 without scheme, port and path",
                host.get_ref()
            );
            Err(self.error(host.span(), message))
        };
        hosts.into_iter().map(read).collect()
    }

    fn base_url(&self, url: Spanned<String>) -> Result<String, ProviderFileError> {
        let text = url.get_ref();
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let odd = |char: char| char.is_whitespace() || char.is_control() || "@?#".contains(char);
        if rest
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(odd))
        {
            return Ok(url.into_inner());
        }
        // The URL is not repeated: it may contain a password.
        let message = "invalid base_url: expected https:// or http://, a host and at most a path, \
                       without a user, a query or spaces";
        Err(self.error(url.span(), message.to_owned()))
    }

    fn proof(&self, proof: &Spanned<String>, like: Like) -> Result<Proof, ProviderFileError> {
        read_proof(proof.get_ref(), like.main().proof).ok_or_else(|| {
            let message = format!(
                "invalid proof `{}`: expected marker, event, word or silent",
                proof.get_ref()
            );
            self.error(proof.span(), message)
        })
    }

    /// Returns the finish reasons of a provider, in all its fields.
    fn words(&self, words: WrittenWords, like: Like) -> Result<Vec<Taught>, ProviderFileError> {
        let mut taught = Vec::new();
        for (name, value) in words {
            match (field(like, name.get_ref()), value.get_ref()) {
                (Some(field), WrittenWord::Table(words)) => {
                    for (word, value) in words {
                        taught.push(self.taught(Some(field), word, value)?);
                    }
                }
                (Some(_), WrittenWord::Name(_) | WrittenWord::Flag(_) | WrittenWord::Other) => {
                    let message = format!(
                        "`{}` is a field: write its words in a table of this name",
                        name.get_ref()
                    );
                    return Err(self.error(name.span(), message));
                }
                (None, WrittenWord::Table(table)) if !is_meaning(table) => {
                    return Err(self.unknown_field(&name, like));
                }
                (None, _) => taught.push(self.taught(None, &name, &value)?),
            }
        }
        Ok(taught)
    }

    fn unknown_field(&self, name: &Spanned<String>, like: Like) -> ProviderFileError {
        let message = format!(
            "unknown field `{}`: expected one of {}; a word takes a meaning or {{ reason = \"…\", \
             vague = true }}",
            name.get_ref(),
            fields(like).join(", ")
        );
        self.error(name.span(), message)
    }

    fn taught(
        &self,
        field: Option<&str>,
        word: &Spanned<String>,
        value: &Spanned<WrittenWord>,
    ) -> Result<Taught, ProviderFileError> {
        if word.get_ref().is_empty() {
            return Err(self.error(word.span(), "invalid word: it must not be empty".to_owned()));
        }
        let meaning = read_meaning(word.get_ref(), value.get_ref());
        let meaning = meaning.map_err(|message| self.error(value.span(), message))?;
        let field = field.map(str::to_owned);
        Ok(Taught { field, word: word.get_ref().clone(), meaning })
    }
}

/// Reports whether a table is a meaning, rather than the finish reasons of a field.
fn is_meaning(table: &WrittenWords) -> bool {
    table.is_empty() || table.keys().any(|key| MEANING.contains(&key.get_ref().as_str()))
}

/// Keys in the table of a meaning.
const MEANING: [&str; 2] = ["reason", "vague"];

/// Parses a meaning: a name, or a table with `reason` and `vague`.
fn read_meaning(word: &str, value: &WrittenWord) -> Result<Meaning, String> {
    let unread = || {
        format!(
            "invalid meaning for `{word}`: expected a name such as \"output_limit\", or {{ reason = \
             \"…\", vague = true }}"
        )
    };
    match value {
        WrittenWord::Name(name) => named_meaning(word, name, Meaning::Known),
        WrittenWord::Table(table) if is_meaning(table) => {
            let odd = table.keys().find(|key| !MEANING.contains(&key.get_ref().as_str()));
            if let Some(odd) = odd {
                let meant = nearest(odd.get_ref(), MEANING);
                let meant = meant.map(|key| format!("; did you mean `{key}`?"));
                return Err(format!(
                    "unknown key `{}` in the meaning of `{word}`: expected reason or vague{}",
                    odd.get_ref(),
                    meant.unwrap_or_default()
                ));
            }
            let value = |key: &str| {
                let found = table.iter().find(|(known, _)| known.get_ref() == key);
                found.map(|(_, value)| value.get_ref())
            };
            let Some(WrittenWord::Name(name)) = value("reason") else { return Err(unread()) };
            match value("vague") {
                None | Some(WrittenWord::Flag(false)) => named_meaning(word, name, Meaning::Known),
                Some(WrittenWord::Flag(true)) => named_meaning(word, name, Meaning::Vague),
                Some(WrittenWord::Name(_) | WrittenWord::Table(_) | WrittenWord::Other) => {
                    Err(format!("invalid `vague` of `{word}`: expected true or false"))
                }
            }
        }
        WrittenWord::Table(_) | WrittenWord::Flag(_) | WrittenWord::Other => Err(unread()),
    }
}

fn named_meaning(word: &str, name: &str, how: fn(Reason) -> Meaning) -> Result<Meaning, String> {
    let Some(reason) = Reason::from_name(name) else {
        let names: Vec<&str> = Reason::ALL.into_iter().map(Reason::name).collect();
        let names = names.join(", ");
        let meant = nearest(name, Reason::ALL.into_iter().map(Reason::name));
        let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        // The value is repeated only if it looks like a name: it may be a misplaced key.
        let plain = name.chars().all(|char| char.is_ascii_lowercase() || char == '_');
        let name = if plain { format!(" `{name}`") } else { String::new() };
        return Err(format!("invalid meaning{name} for `{word}`: expected one of {names}{meant}"));
    };
    // A finish reason without a known meaning is always vague.
    Ok(if reason == Reason::Unknown { Meaning::Vague(reason) } else { how(reason) })
}

/// Returns the field with this name or path on one of the wires.
fn field(like: Like, name: &str) -> Option<&'static str> {
    let mut tables = like.wires().flat_map(Profile::tables);
    tables.find(|table| table.field == name || table.path == name).map(|table| table.field)
}

/// Returns the names of all fields that carry finish reasons, each once.
fn fields(like: Like) -> Vec<&'static str> {
    let mut names = Vec::new();
    for table in like.wires().flat_map(Profile::tables) {
        if !names.contains(&table.field) {
            names.push(table.field);
        }
    }
    names
}

fn read_proof(word: &str, own: Proof) -> Option<Proof> {
    match word {
        "marker" => Some(match own {
            Proof::Marker(marker) => Proof::Marker(marker),
            Proof::Event | Proof::Word | Proof::Silent => Proof::Marker(END_MARKER),
        }),
        "event" => Some(Proof::Event),
        "word" => Some(Proof::Word),
        "silent" => Some(Proof::Silent),
        _ => None,
    }
}
