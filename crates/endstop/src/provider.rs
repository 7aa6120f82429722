//! Providers: who serves, by which wires, with which words and quirks.
//!
//! A provider is data, in a file of its own and one line in [`ALL`]. Nothing outside this folder
//! and `dialect/` names one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dialect::{Dialect, Proof, Words};
use crate::ending::{Reason, Usage};
use crate::event::Word;
use crate::fault::ErrorPattern;
use crate::frame::Framing;
use crate::gateway_error::ErrorShape;
use crate::next_request::{RequestShape, Restriction};
use crate::verdict::Meaning;
pub use crate::version::{Values, Version, VersionAt};

/// Declares the providers: a file and a name each.
macro_rules! providers {
    ($($module:ident $name:ident,)+) => {
        $(
            mod $module;
            pub use $module::$name;
        )+

        /// Every provider that is built in.
        pub static ALL: &[&Provider] = &[$(&$name),+];
    };
}

// One line a provider.
providers! {
    openai OPENAI,
    azure AZURE,
    xai XAI,
    anthropic ANTHROPIC,
    google GOOGLE,
    vertex VERTEX,
    mistral MISTRAL,
    cohere COHERE,
    ollama OLLAMA,
    bedrock BEDROCK,
    openrouter OPENROUTER,
    deepseek DEEPSEEK,
    groq GROQ,
    together TOGETHER,
    fireworks FIREWORKS,
    cerebras CEREBRAS,
    perplexity PERPLEXITY,
    moonshot MOONSHOT,
    minimax MINIMAX,
    zai ZAI,
    alibaba ALIBABA,
    xiaomi XIAOMI,
    ai21 AI21,
    writer WRITER,
    reka REKA,
    nvidia NVIDIA,
    sambanova SAMBANOVA,
    baseten BASETEN,
    cloudflare CLOUDFLARE,
    huggingface HUGGINGFACE,
    github GITHUB,
    databricks DATABRICKS,
    snowflake SNOWFLAKE,
    vllm VLLM,
    sglang SGLANG,
    llamacpp LLAMACPP,
    lmstudio LMSTUDIO,
    watsonx WATSONX,
    replicate REPLICATE,
    aleph_alpha ALEPH_ALPHA,
    sap SAP,
    openai_compatible OPENAI_COMPATIBLE,
}

/// Whoever has no file of its own: what is read where nothing more is known.
pub static GENERIC: &Provider = &OPENAI_COMPATIBLE;

/// Who serves responses, and by which wires.
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// The short name, such as `xai`.
    pub id: &'static str,
    /// Other names that recordings and people use for it.
    pub aliases: &'static [&'static str],
    /// The name for people.
    pub title: &'static str,
    /// The first part of its paths at a gateway.
    pub route: &'static str,
    /// Patterns of the hosts that it serves from. They match label by label and as a whole; `*`
    /// stands for one label or the rest of one.
    pub hosts: &'static [&'static str],
    /// Where its API begins; `{name}` stands for what differs by customer. Empty where there is no
    /// one place.
    pub base_url: &'static str,
    /// How a request shows its key.
    pub auth: Auth,
    /// The environment variables that people keep its key in, the usual one first.
    pub key_variables: &'static [&'static str],
    /// The environment variables that its SDKs read another base URL from.
    pub url_variables: &'static [&'static str],
    /// Its first wire.
    pub main: Profile,
    /// Its other wires.
    pub others: &'static [Profile],
    /// Where the facts come from.
    pub source: &'static str,
}

impl Provider {
    /// Every wire that it speaks, the main one first.
    pub fn wires(&self) -> impl Iterator<Item = &Profile> {
        std::iter::once(&self.main).chain(self.others)
    }

    /// The wire that serves this path; none if none of them does.
    #[must_use]
    pub fn wire_for_path(&self, path: &str) -> Option<&Profile> {
        self.wires()
            .filter_map(|wire| wire.longest_match(path).map(|length| (length, wire)))
            .max_by_key(|(length, _)| *length)
            .map(|(_, wire)| wire)
    }

    /// Returns whether it serves from this host, given with or without a port.
    #[must_use]
    pub fn serves_from(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        self.hosts.iter().any(|pattern| is_host(host, pattern) || is_host(name, pattern))
    }

    /// What it means by a word, in whichever field of whichever wire it stands.
    #[must_use]
    pub fn meaning(&self, word: &str) -> Meaning {
        meaning_on(self.wires(), word)
    }

    /// The wire of this dialect, if it speaks it.
    #[must_use]
    pub fn wire_of(&self, dialect: &str) -> Option<&Profile> {
        self.wires().find(|wire| wire.dialect.id == dialect)
    }
}

/// One wire of one provider: the dialect, and what this host does its own way.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The provider's short name.
    pub provider: &'static str,
    /// The wire language.
    pub dialect: &'static Dialect,
    /// What the paths of this wire hold; `*` stands for anything between two parts.
    pub paths: &'static [&'static str],
    /// How the stream is framed.
    pub framing: Framing,
    /// This host's own words, before those of the dialect.
    pub words: &'static [Words],
    /// What proves the end of a stream.
    pub proof: Proof,
    /// How this host tells errors.
    pub error_shape: ErrorShape,
    /// What requests can ask of this host.
    pub request_shape: RequestShape,
    /// The request fields that cap the output, the one that this host prefers first.
    pub caps: &'static [&'static str],
    /// This host's own errors, before those of the dialect.
    pub error_patterns: &'static [ErrorPattern],
    /// What this host does its own way.
    pub quirks: Quirks,
    /// How a cut answer can be resumed: the first rule whose models fit.
    pub resume: &'static [ResumeRule],
    /// What the wire can do here.
    pub capabilities: Capabilities,
    /// API versions that bear on how responses end.
    pub versions: &'static [Version],
    /// Deprecated fields and retired models that recordings still show.
    pub notes: &'static [&'static str],
    /// The dialect was found by the shape of the bytes, so that no verdict is better than medium.
    pub guessed: bool,
    /// The shape fits several dialects or none, so that no verdict is better than low.
    pub ambiguous: bool,
}

/// A profile with the corrections of whoever runs it: what a reader reads by.
///
/// ```
/// use endstop::provider::{Corrections, OPENAI_COMPATIBLE, Taught, Wire};
/// use endstop::{Reason, dialect::Meaning};
///
/// let mine = Wire::from(&OPENAI_COMPATIBLE).corrected(Corrections {
///     provider: Some("mine".into()),
///     words: vec![Taught {
///         field: Some("finish_reason".into()),
///         word: "frobnicated".into(),
///         meaning: Meaning::Known(Reason::OutputLimit),
///     }],
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Wire {
    /// The built-in profile.
    pub profile: Profile,
    /// What was added or corrected at run time.
    pub corrections: Option<Arc<Corrections>>,
    /// The version of the API that was asked, where it is known.
    pub api_version: Option<Arc<str>>,
}

/// What users add to a profile at run time, or correct in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrections {
    /// Another name for the provider.
    pub provider: Option<String>,
    /// Words that come before all others.
    pub words: Vec<Taught>,
}

/// A word that a user taught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taught {
    /// The bare name of the field that it stands in; the wire's first field if none is named.
    pub field: Option<String>,
    /// The word; a number as its digits.
    pub word: String,
    /// Its meaning.
    pub meaning: Meaning,
}

/// How a request shows its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer,
    /// A header of its own.
    Header(&'static str),
    /// A header of its own, or a query parameter.
    HeaderOrQuery(&'static str, &'static str),
    /// A signature by AWS's fourth version, or a bearer key.
    SigV4,
    /// None.
    Open,
}

/// How a cut answer can be resumed, for some models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeRule {
    /// What the names of these models hold; the empty list fits every model.
    pub models: &'static [&'static str],
    /// How.
    pub how: Resume,
}

/// A rule for every model.
#[must_use]
pub const fn always(how: Resume) -> ResumeRule {
    ResumeRule { models: &[], how }
}

/// A rule for models whose names hold one of these.
#[must_use]
pub const fn models(models: &'static [&'static str], how: Resume) -> ResumeRule {
    ResumeRule { models, how }
}

/// How a cut answer can be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// The conversation ends with the answer so far, and the model goes on in it.
    Prefill(Prefill),
    /// The provider gave a token or an id.
    Token(Token),
    /// Only by asking: a hint in a message of this role.
    Hint(Role),
}

/// How the answer so far is marked as one to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Fields that the last message carries besides its text, such as `prefix`.
    pub message_flag: Option<&'static str>,
    /// Fields that the request carries, with their values.
    pub request_flags: &'static [(&'static str, bool)],
    /// The reply repeats the answer so far.
    pub echoes: bool,
    /// White space at the end must be left out.
    pub trims: bool,
    /// Where to ask, if it is not the provider's usual base URL.
    pub base_url: Option<&'static str>,
}

/// A prefill that is nothing but a last message of the assistant.
pub const TRAILING: Prefill =
    Prefill { message_flag: None, request_flags: &[], echoes: false, trims: false, base_url: None };

/// How the provider is told which answer to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The field of the request.
    pub field: &'static str,
    /// What goes there.
    pub of: TokenOf,
    /// What the request says besides.
    pub input: TokenInput,
    /// The field of a request whose answer the provider has put where the next request finds it.
    pub held_by: Option<&'static str>,
    /// What in a request means that the provider keeps nothing.
    pub restrictions: &'static [Restriction],
    /// The output cap counts all pieces.
    pub cap_counts_all: bool,
}

/// What a provider knows an answer by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenOf {
    /// The id of the response.
    Response,
    /// A token that it gave for going on.
    Answer,
}

/// What a request says besides an id or a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenInput {
    /// What the first one said.
    Same,
    /// The hint alone, as the only message in this list, of this role.
    Hint(&'static str, Role),
    /// The hint alone, as a text in this field.
    HintText(&'static str),
    /// The token for going on in the first field, and nothing in the second.
    Token(&'static str, &'static str),
}

/// The role of the message that carries a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The system's.
    System,
    /// The developer's.
    Developer,
    /// The user's, with the tail of the answer quoted.
    User,
}

impl Role {
    /// Returns the name that most wires have for the role.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
        }
    }
}

/// What a wire can do at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// It streams.
    pub streams: bool,
    /// It calls tools.
    pub tools: bool,
    /// It gives several choices.
    pub choices: bool,
    /// It tells the tokens used at the end of a stream without being asked to.
    pub usage_in_streams: bool,
}

/// What most wires can do.
pub const COMMON_CAPABILITIES: Capabilities =
    Capabilities { streams: true, tools: true, choices: false, usage_in_streams: true };

/// What a host does its own way.
#[derive(Clone, Copy, Debug)]
pub struct Quirks {
    /// It says a natural stop where the output cap cut the answer.
    pub lies_at_cap: bool,
    /// Its output tokens leave the reasoning out.
    pub reasoning_beside_output: bool,
    /// Its input tokens leave out what a cache held.
    pub cache_beside_input: bool,
    /// It runs custom tools of its own, and shows their calls as it shows the caller's.
    pub runs_custom_tools: bool,
}

/// No quirks.
pub const NO_QUIRKS: Quirks = Quirks {
    lies_at_cap: false,
    reasoning_beside_output: false,
    cache_beside_input: false,
    runs_custom_tools: false,
};

impl Wire {
    /// The same wire with these corrections.
    #[must_use]
    pub fn corrected(self, corrections: Corrections) -> Self {
        Self { corrections: Some(Arc::new(corrections)), ..self }
    }

    /// The provider's name.
    #[must_use]
    pub fn provider(&self) -> &str {
        let own = self.corrections.as_ref().and_then(|own| own.provider.as_deref());
        own.unwrap_or(self.profile.provider)
    }

    /// The version of the API that was asked, where it is known.
    #[must_use]
    pub fn api_version(&self) -> Option<&str> {
        self.api_version.as_deref()
    }

    /// What this host means by a word in this field.
    #[must_use]
    pub fn meaning(&self, field: &str, word: &Word<'_>) -> Meaning {
        let tables = || self.profile.tables().filter(|words| words.field == field);
        let text = match word {
            Word::Text(text) => text.clone(),
            Word::Number(number) => {
                if let Some(taught) = self.taught(field, &number.to_string()) {
                    return taught;
                }
                match tables().find_map(|words| words.number(*number)) {
                    Some(member) => member.into(),
                    None => return Meaning::Unknown,
                }
            }
            Word::Odd(_) => return Meaning::Unknown,
        };
        let known = || tables().find_map(|words| words.meaning(&text));
        self.taught(field, &text).or_else(known).unwrap_or(Meaning::Unknown)
    }

    /// The meaning that a user gave the word; the last one counts.
    fn taught(&self, field: &str, word: &str) -> Option<Meaning> {
        let stands = |taught: &&Taught| match &taught.field {
            Some(named) => named == field,
            None => self.profile.main_field() == field,
        };
        let words = &self.corrections.as_ref()?.words;
        let mut fits = words.iter().rev().filter(|taught| taught.word == word);
        fits.find(stands).map(|taught| taught.meaning)
    }
}

impl Wire {
    /// The word in this field says that the response is still to come.
    #[must_use]
    pub fn is_pending(&self, field: &str, word: &str) -> bool {
        let mut tables = self.profile.tables();
        tables.any(|words| words.field == field && words.pending.contains(&word))
    }
}

impl From<&Provider> for Wire {
    fn from(provider: &Provider) -> Self {
        Self::from(provider.main)
    }
}

impl From<&Profile> for Wire {
    fn from(profile: &Profile) -> Self {
        Self::from(*profile)
    }
}

impl From<Profile> for Wire {
    fn from(profile: Profile) -> Self {
        Self { profile, corrections: None, api_version: None }
    }
}

impl Profile {
    /// All the input tokens that were told, with those of a cache where a host counts them beside.
    #[must_use]
    pub fn input_tokens(&self, usage: &Usage) -> Option<u64> {
        let cached = [usage.cache_read, usage.cache_write].into_iter().flatten();
        let beside: u64 = if self.quirks.cache_beside_input { cached.sum() } else { 0 };
        usage.input.map(|input| input.saturating_add(beside))
    }

    /// Returns all output tokens, with those of reasoning where a host counts them beside.
    #[must_use]
    pub fn output_tokens(&self, usage: &Usage) -> Option<u64> {
        let beside = usage.reasoning.filter(|_| self.quirks.reasoning_beside_output).unwrap_or(0);
        usage.output.map(|output| output.saturating_add(beside))
    }

    /// The tables of words, this host's own before those of the dialect.
    pub fn tables(&self) -> impl Iterator<Item = &'static Words> + use<> {
        self.words.iter().chain(self.dialect.words)
    }

    /// The field that carries the word on this wire, where it has several the first of them.
    #[must_use]
    pub fn main_field(&self) -> &'static str {
        self.dialect.words.first().map_or("", |words| words.field)
    }

    /// Whether this wire serves the path.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        self.longest_match(path).is_some()
    }

    /// Whether the wire has a word of its own for tool calls.
    #[must_use]
    pub fn has_tool_word(&self) -> bool {
        let rows = self.dialect.words.iter().flat_map(|words| words.rows);
        rows.into_iter().any(|(_, reason)| *reason == Reason::ToolCall)
    }

    /// How a cut answer of this model can be resumed.
    #[must_use]
    pub fn resume_for(&self, model: &str) -> Resume {
        let fits = |rule: &&ResumeRule| {
            rule.models.is_empty() || rule.models.iter().any(|known| model.contains(known))
        };
        self.resume.iter().find(fits).map_or(Resume::Hint(Role::User), |rule| rule.how)
    }

    fn longest_match(&self, path: &str) -> Option<usize> {
        self.paths.iter().filter(|pattern| holds(path, pattern)).map(|pattern| pattern.len()).max()
    }
}

/// Whether the text holds the parts of the pattern, in their order.
fn holds(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    pattern.split('*').all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Whether a host is of this pattern: as many labels, each of them alike.
///
/// A key may go to whatever matches here, so that nothing may stand before or after.
pub(crate) fn is_host(host: &str, pattern: &str) -> bool {
    let (mut labels, mut patterns) = (host.split('.'), pattern.split('.'));
    loop {
        match (labels.next(), patterns.next()) {
            (None, None) => return true,
            (Some(label), Some(pattern)) if is_label(label, pattern) => {}
            (Some(_), Some(_)) | (Some(_), None) | (None, Some(_)) => return false,
        }
    }
}

fn is_label(label: &str, pattern: &str) -> bool {
    let Some((start, end)) = pattern.split_once('*') else {
        return label.eq_ignore_ascii_case(pattern);
    };
    let label = label.to_ascii_lowercase();
    let within = label.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    within.is_some_and(|within| !within.is_empty())
}

/// What a word means on the first of these wires that knows it, in whichever field.
pub(crate) fn meaning_on<'p>(wires: impl Iterator<Item = &'p Profile>, word: &str) -> Meaning {
    if word.is_empty() || word == "null" {
        return Meaning::Nothing;
    }
    let number = word.parse().map(Word::Number).ok();
    let words: Vec<Word<'_>> = std::iter::once(Word::Text(word.into())).chain(number).collect();
    for profile in wires {
        let wire = Wire::from(profile);
        for table in profile.tables() {
            let known = words.iter().map(|word| wire.meaning(table.field, word));
            if let Some(known) = known.into_iter().find(|known| *known != Meaning::Unknown) {
                return known;
            }
        }
    }
    Meaning::Unknown
}

/// The provider of this id or alias.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Provider> {
    ALL.iter().copied().find(|provider| provider.id == id || provider.aliases.contains(&id))
}

/// The provider that serves from this host.
#[must_use]
pub fn by_host(host: &str) -> Option<&'static Provider> {
    ALL.iter().copied().find(|provider| provider.serves_from(host))
}

/// The wire that serves this path where nothing is known of the provider.
#[must_use]
pub fn by_path(path: &str) -> Option<&'static Profile> {
    let closest = |best: Option<(usize, &'static Profile)>, wire: &'static Profile| {
        let length = wire.longest_match(path)?;
        best.is_none_or(|(most, _)| length > most).then_some((length, wire))
    };
    let wires = || ALL.iter().flat_map(|provider| provider.wires());
    let anyone = || wires().fold(None, |best, wire| closest(best, wire).or(best));
    GENERIC.wire_for_path(path).or_else(|| anyone().map(|(_, wire)| wire))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_match_label_by_label_and_as_a_whole() {
        for (host, provider) in [
            ("api.openai.com", Some("openai")),
            ("API.OpenAI.com:443", Some("openai")),
            ("localhost:11434", Some("ollama")),
            ("bedrock-runtime.us-east-1.amazonaws.com", Some("bedrock")),
            ("us-east5-aiplatform.googleapis.com", Some("vertex")),
            ("adb-1.19.azuredatabricks.net", Some("databricks")),
            ("bedrock-runtime.x.amazonaws.com.evil.example", None),
            ("evil.bedrock-runtime.x.amazonaws.com", None),
            ("bedrock-runtime.a.b.amazonaws.com", None),
            ("bedrock-runtime..amazonaws.com", None),
            ("-aiplatform.googleapis.com", None),
            ("evil-aiplatform.googleapis.com.example", None),
            ("x.evil-aiplatform.googleapis.com", None),
            ("a.b.openai.azure.com", None),
            ("openai.azure.com", None),
            ("evilopenai.azure.com", None),
            ("api.openai.com.evil.example", None),
            ("evil.api.openai.com", None),
            ("", None),
        ] {
            assert_eq!(by_host(host).map(|found| found.id), provider, "{host}");
        }
    }
}
