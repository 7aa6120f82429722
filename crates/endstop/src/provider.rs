//! Providers: who serves responses, over which wires, with which finish reasons and quirks.
//!
//! A provider is data: one file in this folder and one line in `providers!`. No code outside this
//! folder and `dialect/` names a provider.

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::dialect::{Dialect, Proof, Words};
use crate::ending::{Reason, Usage};
use crate::event::Word;
use crate::fault::ErrorPattern;
use crate::frame::Framing;
use crate::gateway_error::ErrorShape;
use crate::next_request::{RequestShape, Restriction};
use crate::verdict::Meaning;
pub use crate::version::{Version, VersionAt};

/// Declares the providers: a module and a constant each.
macro_rules! providers {
    ($($module:ident $name:ident,)+) => {
        $(
            mod $module;
            pub use $module::$name;
        )+

        /// Every built-in provider.
        pub static ALL: &[&Provider] = &[$(&$name),+];
    };
}

// One line per provider.
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

/// Provider for hosts without a file of their own. It is used if nothing more is known.
pub static GENERIC: &Provider = &OPENAI_COMPATIBLE;

/// Response headers that hold a provider's id of a request, in the order of the providers.
pub static REQUEST_ID_HEADERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| of_all(|provider| provider.request_id_headers));

/// Returns the values of a list of every provider, each once.
pub(crate) fn of_all(list: fn(&Provider) -> &'static [&'static str]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for value in ALL.iter().flat_map(|provider| list(provider)) {
        if !found.contains(value) {
            found.push(*value);
        }
    }
    found
}

/// A provider and the wires that it speaks.
///
/// ```
/// use endstop::provider;
///
/// let xai = provider::by_id("xai").unwrap();
/// assert!(xai.serves_from("api.x.ai"));
/// assert_eq!(xai.main.dialect.id, "openai-chat");
/// assert_eq!(xai.wire_for_path("/v1/responses").unwrap().dialect.id, "openai-responses");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// Short name, such as `xai`.
    pub id: &'static str,
    /// Other names that recordings and users have for it.
    pub aliases: &'static [&'static str],
    /// Display name.
    pub title: &'static str,
    /// First segment of its paths at the gateway.
    pub route: &'static str,
    /// Patterns of its hosts. They match label by label and as a whole; `*` matches one label or
    /// the rest of one.
    pub hosts: &'static [&'static str],
    /// Base URL of its API. `{name}` stands for a part that differs by customer. Empty if there is
    /// no common base URL.
    pub base_url: &'static str,
    /// Way in which a request carries its key.
    pub auth: Auth,
    /// Environment variables that usually hold its key, the most common one first.
    pub key_variables: &'static [&'static str],
    /// Prefixes of its keys and tokens, which are removed from every text that is kept.
    pub key_prefixes: &'static [&'static str],
    /// Prefixes of the ids that it makes. They can be as long and as random as a key.
    pub id_prefixes: &'static [&'static str],
    /// Response headers that hold its id of a request.
    pub request_id_headers: &'static [&'static str],
    /// Settings of SDKs that point them at another base URL.
    pub sdk_urls: &'static [SdkUrl],
    /// Main wire.
    pub main: Profile,
    /// Other wires.
    pub others: &'static [Profile],
    /// Whether servers of others offer its API beside their own.
    pub offered_elsewhere: bool,
    /// Name in OpenTelemetry's conventions for generative AI; empty if they have none for it.
    pub opentelemetry: &'static str,
    /// Sources of these facts.
    pub source: &'static str,
}

impl Provider {
    /// Returns every wire that it speaks, the main one first.
    pub fn wires(&self) -> impl Iterator<Item = &Profile> {
        std::iter::once(&self.main).chain(self.others)
    }

    /// Returns the wire that serves this path, or `None` if none of its wires does.
    #[must_use]
    pub fn wire_for_path(&self, path: &str) -> Option<&Profile> {
        self.wires()
            .filter_map(|wire| wire.longest_match(path).map(|length| (length, wire)))
            .max_by_key(|(length, _)| *length)
            .map(|(_, wire)| wire)
    }

    /// Returns the names of the request headers that name an API version.
    pub fn version_headers(&self) -> impl Iterator<Item = &'static str> {
        let places = self.wires().flat_map(|wire| wire.versions).map(|version| version.at);
        places.filter_map(|at| if let VersionAt::Header(name) = at { Some(name) } else { None })
    }

    /// Reports whether it serves from this host, given with or without a port.
    #[must_use]
    pub fn serves_from(&self, host: &str) -> bool {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        self.hosts.iter().any(|pattern| is_host(host, pattern) || is_host(name, pattern))
    }

    /// Returns the meaning of a finish reason, in any field of any of its wires.
    #[must_use]
    pub fn meaning(&self, word: &str) -> Meaning {
        meaning_on(self.wires(), word)
    }

    /// Returns its wire of this dialect, if it speaks it.
    #[must_use]
    pub fn wire_of(&self, dialect: &str) -> Option<&Profile> {
        self.wires().find(|wire| wire.dialect.id == dialect)
    }
}

/// One wire of one provider: the dialect and the settings of this host.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Short name of the provider.
    pub provider: &'static str,
    /// Wire format.
    pub dialect: &'static Dialect,
    /// Patterns of paths, in any case. The last part is the end of the path, in whole segments. `*` stands for
    /// any text and `{id}` for a segment that is an id. A pattern that begins with `*` is a last
    /// resort: the shape of the body, if it is known, tells more.
    pub paths: &'static [&'static str],
    /// Framing of the stream.
    pub framing: Framing,
    /// Finish reasons of this host. They take precedence over those of the dialect.
    pub words: &'static [Words],
    /// Signal that proves the end of a stream.
    pub proof: Proof,
    /// Shape of this host's errors.
    pub error_shape: ErrorShape,
    /// Settings that requests to this host accept.
    pub request_shape: RequestShape,
    /// Request fields that limit the output tokens, the one that this host prefers first.
    pub caps: &'static [&'static str],
    /// Error patterns of this host. They take precedence over those of the dialect.
    pub error_patterns: &'static [ErrorPattern],
    /// Differences of this host from its dialect.
    pub quirks: Quirks,
    /// Rules for resuming a truncated answer. The first rule that matches the model applies.
    pub resume: &'static [ResumeRule],
    /// Capabilities of the wire at this host.
    pub capabilities: Capabilities,
    /// API versions that affect how responses end.
    pub versions: &'static [Version],
    /// Deprecated fields and retired models that recordings still show.
    pub notes: &'static [&'static str],
    /// Whether the dialect was detected from the shape of the bytes, so that confidence is at most
    /// medium.
    pub guessed: bool,
    /// Whether the shape fits several dialects or none, so that confidence is low.
    pub ambiguous: bool,
}

/// A profile with the corrections of its user. A reader reads by it.
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
    /// Built-in profile.
    pub profile: Profile,
    /// Additions and corrections at run time.
    pub corrections: Option<Arc<Corrections>>,
    /// API version of the request, if it is known.
    pub api_version: Option<Arc<str>>,
}

/// Additions and corrections that users make to a profile at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrections {
    /// Another name for the provider.
    pub provider: Option<String>,
    /// Finish reasons. They take precedence over all others.
    pub words: Vec<Taught>,
}

/// A finish reason that a user defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taught {
    /// Name of its field, without the path. `None` means the main field of the wire.
    pub field: Option<String>,
    /// Finish reason; a number as its digits.
    pub word: String,
    /// Meaning.
    pub meaning: Meaning,
}

/// Way in which a request carries its key.
///
/// Closed list: code that sends requests must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer,
    /// This header.
    Header(&'static str),
    /// This header or this query parameter.
    HeaderOrQuery(&'static str, &'static str),
    /// An AWS Signature Version 4 or a bearer key.
    SigV4 {
        /// Environment variables that usually hold the region, the most common one first.
        region_variables: &'static [&'static str],
    },
    /// No key.
    Open,
}

/// A setting that points SDKs at another base URL.
///
/// SDKs differ in the part of the path that they add to the base URL themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SdkUrl {
    /// Place of the setting.
    pub setting: Setting,
    /// Path of the base URL after the provider's route at the gateway. `{name}` stands for a part
    /// that differs by customer.
    pub path: &'static str,
    /// SDKs with this setting. Names are those of `PyPI` unless they say otherwise.
    pub sdks: &'static [&'static str],
}

/// Place of a setting of an SDK.
///
/// Closed list: code that prints settings must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// This environment variable.
    Variable(&'static str),
    /// This argument of the constructor.
    Argument(&'static str),
}

impl SdkUrl {
    /// Returns a base URL that SDKs read from an environment variable.
    #[must_use]
    pub const fn variable(
        name: &'static str,
        path: &'static str,
        sdks: &'static [&'static str],
    ) -> Self {
        Self { setting: Setting::Variable(name), path, sdks }
    }

    /// Returns a base URL that SDKs take as an argument of their constructor.
    #[must_use]
    pub const fn argument(
        name: &'static str,
        path: &'static str,
        sdks: &'static [&'static str],
    ) -> Self {
        Self { setting: Setting::Argument(name), path, sdks }
    }
}

/// A way to resume a truncated answer, for some models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeRule {
    /// Parts of model names. A rule with an empty list applies to every model.
    pub models: &'static [&'static str],
    /// Way to resume.
    pub how: Resume,
}

impl ResumeRule {
    /// Returns a rule for every model.
    #[must_use]
    pub const fn always(how: Resume) -> Self {
        Self { models: &[], how }
    }

    /// Returns a rule for models whose names contain one of these parts.
    #[must_use]
    pub const fn for_models(models: &'static [&'static str], how: Resume) -> Self {
        Self { models, how }
    }
}

/// Way to resume a truncated answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resume {
    /// The conversation ends with the answer so far, and the model continues it.
    Prefill(Prefill),
    /// The request refers to a token or an id from the provider.
    Token(Token),
    /// A hint asks the model to continue, in a message of this role.
    Hint(Role),
}

/// Way to mark the answer so far as one to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Field that the last message carries besides its text, such as `prefix`.
    pub message_flag: Option<&'static str>,
    /// Fields that the request carries, with their values.
    pub request_flags: &'static [(&'static str, bool)],
    /// Replies that repeat the answer so far.
    pub echoes: Echo,
    /// Whether white space at the end must be removed.
    pub trims: bool,
    /// Base URL to use instead of the provider's usual one.
    pub base_url: Option<&'static str>,
}

/// A prefill that only appends an assistant message.
pub const TRAILING: Prefill = Prefill {
    message_flag: None,
    request_flags: &[],
    echoes: Echo::Never,
    trims: false,
    base_url: None,
};

/// Replies that begin with the prefill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Echo {
    /// None.
    Never,
    /// Plain replies, and streams without new text.
    Plain,
    /// All.
    Always,
}

/// Way to refer to the response to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Field of the request.
    pub field: &'static str,
    /// Value of the field.
    pub of: TokenOf,
    /// Other contents of the request.
    pub input: TokenInput,
    /// Request field, such as `conversation`, with which the provider keeps the response itself.
    pub held_by: Option<&'static str>,
    /// Request settings with which the provider stores nothing.
    pub restrictions: &'static [Restriction],
    /// Whether the output token limit covers all parts together.
    pub cap_counts_all: bool,
}

/// Value that identifies a response at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenOf {
    /// The id of the response.
    Response,
    /// A continuation token from the provider.
    Answer,
}

/// Contents of a request besides the id or token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenInput {
    /// The contents of the first request.
    Same,
    /// Only the hint, as the only message in this list, with this role.
    Hint(&'static str, Role),
    /// Only the hint, as text in this field.
    HintText(&'static str),
    /// The continuation token in the first field, and nothing in the second.
    Token(&'static str, &'static str),
}

/// Role of the message that carries a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The system.
    System,
    /// The developer.
    Developer,
    /// The user. The end of the answer is quoted.
    User,
}

/// Capabilities of a wire at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether it streams.
    pub streams: bool,
    /// Whether it calls tools.
    pub tools: bool,
    /// Whether it returns several choices.
    pub choices: bool,
    /// Whether a stream ends with token usage without a request for it.
    pub usage_in_streams: bool,
}

/// Capabilities of most wires.
pub const COMMON_CAPABILITIES: Capabilities =
    Capabilities { streams: true, tools: true, choices: false, usage_in_streams: true };

/// Differences of a host from its dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Whether it reports a natural stop when the output token limit was reached.
    pub lies_at_cap: bool,
    /// Whether its output tokens exclude reasoning tokens.
    pub reasoning_beside_output: bool,
    /// Whether its input tokens exclude cached tokens.
    pub cache_beside_input: bool,
    /// Whether it runs custom tools itself and shows their calls like the caller's.
    pub runs_custom_tools: bool,
    /// Size of its context in tokens, prompt and answer together, if it is known.
    pub context_tokens: Option<u64>,
}

/// No quirks.
pub const NO_QUIRKS: Quirks = Quirks {
    lies_at_cap: false,
    reasoning_beside_output: false,
    cache_beside_input: false,
    runs_custom_tools: false,
    context_tokens: None,
};

impl Quirks {
    /// Returns the names of those that are set. They are part of the rules' version, to which a
    /// quirk that a host does not have adds nothing.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        // Destructured, so that a new quirk cannot be forgotten.
        let Self {
            lies_at_cap,
            reasoning_beside_output,
            cache_beside_input,
            runs_custom_tools,
            context_tokens,
        } = *self;
        let all = [
            (lies_at_cap, "lies_at_cap"),
            (reasoning_beside_output, "reasoning_beside_output"),
            (cache_beside_input, "cache_beside_input"),
            (runs_custom_tools, "runs_custom_tools"),
            (context_tokens.is_some(), "context_tokens"),
        ];
        all.into_iter().filter(|(set, _)| *set).map(|(_, name)| name)
    }
}

impl Wire {
    /// Returns the same wire with these corrections.
    #[must_use]
    pub fn corrected(self, corrections: Corrections) -> Self {
        Self { corrections: Some(Arc::new(corrections)), ..self }
    }

    /// Returns the name of the provider.
    #[must_use]
    pub fn provider(&self) -> &str {
        let own = self.corrections.as_ref().and_then(|own| own.provider.as_deref());
        own.unwrap_or(self.profile.provider)
    }

    /// Returns the API version of the request, if it is known.
    #[must_use]
    pub fn api_version(&self) -> Option<&str> {
        self.api_version.as_deref()
    }

    /// Returns the meaning of a finish reason in this field.
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

    /// Reports whether a user gave this finish reason in this field a meaning.
    pub(crate) fn is_taught(&self, field: &str, word: &str) -> bool {
        self.taught(field, word).is_some()
    }

    /// Returns the meaning that a user gave a finish reason. The last one applies.
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
    /// Reports whether this value means that the response is not finished yet.
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

impl From<&Self> for Wire {
    fn from(wire: &Self) -> Self {
        wire.clone()
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
    /// Returns all input tokens, with cached tokens if the host counts them separately.
    #[must_use]
    pub fn input_tokens(&self, usage: &Usage) -> Option<u64> {
        let cached = [usage.cache_read, usage.cache_write].into_iter().flatten();
        let beside: u64 = if self.quirks.cache_beside_input { cached.sum() } else { 0 };
        usage.input.map(|input| input.saturating_add(beside))
    }

    /// Returns all output tokens, with reasoning tokens if the host counts them separately.
    #[must_use]
    pub fn output_tokens(&self, usage: &Usage) -> Option<u64> {
        let beside = usage.reasoning.filter(|_| self.quirks.reasoning_beside_output).unwrap_or(0);
        usage.output.map(|output| output.saturating_add(beside))
    }

    /// Returns the tables of finish reasons, the host's before those of the dialect.
    pub fn tables(&self) -> impl Iterator<Item = &'static Words> + use<> {
        self.words.iter().chain(self.dialect.words)
    }

    /// Returns the field that carries the finish reason; the first if the wire has several.
    #[must_use]
    pub fn main_field(&self) -> &'static str {
        self.dialect.words.first().map_or("", |words| words.field)
    }

    /// Reports whether this wire serves the path.
    #[must_use]
    pub fn serves(&self, path: &str) -> bool {
        self.longest_match(path).is_some()
    }

    /// Reports whether the wire has a finish reason for tool calls.
    #[must_use]
    pub fn has_tool_word(&self) -> bool {
        let rows = self.dialect.words.iter().flat_map(|words| words.rows);
        rows.into_iter().any(|(_, reason)| *reason == Reason::ToolCall)
    }

    /// Returns the way to resume a truncated answer of this model.
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

    /// Reports whether the path names this wire, and not only as a last resort.
    pub(crate) fn is_named_by(&self, path: &str) -> bool {
        self.paths.iter().any(|pattern| !pattern.starts_with('*') && holds(path, pattern))
    }
}

/// Reports whether the path contains the parts of the pattern, in this order, and ends with the
/// last one. Paths below a model path are other paths, such as `/messages/count_tokens`.
///
/// The case does not count. Some hosts ignore it, and a path that one of them serves must not pass
/// for another.
fn holds(path: &str, pattern: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut rest = path.strip_suffix('/').unwrap_or(path);
    let Some((before, last)) = pattern.rsplit_once('*') else { return ends(rest, pattern) };
    let found = before.split('*').all(|part| match after_part(rest, part) {
        Some(after) => {
            rest = after;
            true
        }
        None => false,
    });
    found && if last.is_empty() { !rest.is_empty() } else { ends(rest, last) }
}

/// Reports whether the path ends with this part of a pattern, segment by segment.
fn ends(path: &str, part: &str) -> bool {
    let mut segments = path.rsplit('/');
    let mut wanted = part.rsplit('/').peekable();
    let mut is_last = true;
    while let Some(want) = wanted.next() {
        let segment = segments.next().unwrap_or_default();
        let fits = match want {
            _ if wanted.peek().is_none() => ends_in_any_case(segment, want),
            "{id}" => is_id(segment),
            _ if is_last => after_start(segment, want).is_some_and(is_stream),
            _ => segment.eq_ignore_ascii_case(want),
        };
        if !fits {
            return false;
        }
        is_last = false;
    }
    true
}

/// Reports whether the rest of a segment is empty or names the streamed form, as in
/// `converse-stream`.
fn is_stream(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with(['-', '_']) && ends_in_any_case(rest, "stream")
}

fn ends_in_any_case(text: &str, end: &str) -> bool {
    let start = text.len().checked_sub(end.len());
    let last = start.and_then(|start| text.as_bytes().get(start..));
    last.is_some_and(|last| last.eq_ignore_ascii_case(end.as_bytes()))
}

/// Returns the text after this start of it, which may have any case.
fn after_start<'t>(text: &'t str, start: &str) -> Option<&'t str> {
    let (first, rest) = text.split_at_checked(start.len())?;
    first.eq_ignore_ascii_case(start).then_some(rest)
}

/// Reports whether a segment is an id and not the name of a resource. Ids have digits or are long.
fn is_id(segment: &str) -> bool {
    segment.len() >= 20 || segment.contains(|letter: char| letter.is_ascii_digit())
}

/// Returns the text after this part of it, which may have any case.
pub(crate) fn after_part<'t>(text: &'t str, part: &str) -> Option<&'t str> {
    let last = text.len().checked_sub(part.len())?;
    let is_here = |at: &usize| {
        let found = text.as_bytes().get(*at..at + part.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(part.as_bytes()))
    };
    (0..=last).find(is_here).and_then(|at| text.get(at + part.len()..))
}

/// Reports whether a host matches this pattern: the same number of labels, each of them matching.
///
/// A key may be sent to a host that matches, so a longer name must not match.
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

/// Returns the meaning of a finish reason on the first wire that knows it, in any field.
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

/// Returns the provider with this id or alias.
#[must_use]
pub fn by_id(id: &str) -> Option<&'static Provider> {
    ALL.iter().copied().find(|provider| provider.id == id || provider.aliases.contains(&id))
}

/// Returns the provider that serves from this host.
#[must_use]
pub fn by_host(host: &str) -> Option<&'static Provider> {
    ALL.iter().copied().find(|provider| provider.serves_from(host))
}

/// Returns the wire of an API that many servers offer beside their own, such as Anthropic's Messages or
/// OpenAI's Responses. The path of such an API follows a root: `/v1`, `/api`, or the id of a
/// provider.
pub(crate) fn offered_by_many(path: &str) -> Option<&'static Profile> {
    let mut api = path;
    for (at, _) in path.match_indices('/') {
        let (before, rest) = path.split_at_checked(at)?;
        let root = before.rsplit('/').next()?;
        let is_root = ["v1", "api"].iter().any(|known| known.eq_ignore_ascii_case(root));
        if is_root || ALL.iter().any(|provider| provider.id.eq_ignore_ascii_case(root)) {
            api = rest;
        }
    }
    let segments = |path: &str| path.trim_matches('/').split('/').count();
    let is_whole = |pattern: &str| segments(pattern) == segments(api) && holds(api, pattern);
    offered().find(|wire| wire.paths.iter().any(|pattern| is_whole(pattern)))
}

/// Returns the wires that servers offer beside their own, the generic ones first.
pub(crate) fn offered() -> impl Iterator<Item = &'static Profile> {
    let all = ALL.iter().copied().filter(|provider| provider.offered_elsewhere);
    std::iter::once(GENERIC).chain(all).flat_map(Provider::wires)
}

/// Returns the wire that serves this path if the provider is unknown.
#[must_use]
pub fn by_path(path: &str) -> Option<&'static Profile> {
    let closest = |best: Option<(usize, &'static Profile)>, wire: &'static Profile| {
        let length = wire.longest_match(path).filter(|_| wire.is_named_by(path))?;
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
    fn paths_match_in_whole_segments_at_their_end() {
        for (path, pattern, is) in [
            ("/v1/messages", "/messages", true),
            ("/v1/messages/", "/messages", true),
            ("/v1/messages?beta=true", "/messages", true),
            ("/v1/messages/count_tokens", "/messages", false),
            ("/v1/submessages", "/messages", false),
            ("/v1/responses/resp_1", "/responses/{id}", true),
            ("/v1/responses/input_tokens", "/responses/{id}", false),
            ("/v1/responses/resp_1/cancel", "/responses/{id}", false),
            ("/v1beta/models/x:generateContent", ":generateContent", true),
            ("/v1beta/models/x:generateContent/y", ":generateContent", false),
            ("/model/us.anthropic.x/invoke", "anthropic*/invoke", true),
            ("/model/anthropic.x/invoke-with-response-stream", "anthropic*/invoke", true),
            ("/model/anthropic.x/invoked", "anthropic*/invoke", false),
            ("/model/anthropic.x/async-invoke", "anthropic*/invoke", false),
            ("/v1/text/generation_stream", "/text/generation", true),
            ("/accounts/a/ai/run/@cf/x/y", "/ai/run/*", true),
            ("/accounts/a/ai/run/", "/ai/run/*", false),
            ("", "/messages", false),
            ("/v1/Messages", "/messages", true),
            ("/V1/Models/m:STREAMgeneratecontent", ":streamGenerateContent", true),
            ("/Model/Amazon.Nova-1/Invoke", "amazon.nova*/invoke", true),
        ] {
            assert_eq!(holds(path, pattern), is, "{path} {pattern}");
        }
    }

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
