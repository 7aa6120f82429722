//! From `provider/model` to a wire, a base URL and a key.

use std::collections::BTreeMap;
use std::fmt;

use endstop::provider::{self, Auth, Provider, Setting};
use endstop::registry::{Clues, Like, Registry};
use endstop::{Profile, Wire, nearest};
use endstop_aws::{Credentials, ID_VARIABLE};
use zeroize::Zeroizing;

use crate::error::Error;

/// A key. It is wiped when dropped, and is not shown in debug output.
#[derive(Clone)]
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("…")
    }
}

/// Settings by provider, and where the rest comes from.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) registry: Registry,
    pub(crate) keys: BTreeMap<String, Secret>,
    pub(crate) base_urls: BTreeMap<String, String>,
    /// Base URL of a gateway in front of every provider, and where it comes from.
    pub(crate) gateway: Option<(String, String)>,
    pub(crate) variables: Variables,
}

/// Source of environment variables.
#[derive(Clone)]
pub(crate) struct Variables(pub(crate) fn(&str) -> Option<String>);

impl fmt::Debug for Variables {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Variables")
    }
}

impl Variables {
    /// Variables of this process.
    pub(crate) const PROCESS: Self =
        Self(|name| std::env::var(name).ok().filter(|text| !text.trim().is_empty()));
    /// No variables.
    pub(crate) const NONE: Self = Self(|_| None);

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }
}

/// A model of a provider, and how to reach it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) wire: Wire,
    pub(crate) model: String,
    pub(crate) base_url: String,
    /// Whether the base URL is the provider's own, so that a wire may replace it.
    pub(crate) is_usual_url: bool,
    pub(crate) key: TargetKey,
    pub(crate) origin: Origin,
}

/// Where the settings of a target come from, for messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Base URL, with the variable or setting that it comes from.
    pub(crate) base_url: String,
    /// Advice about a key that is not accepted.
    pub(crate) key: String,
}

/// A base URL.
struct BaseUrl {
    url: String,
    /// Whether it is the provider's own.
    is_usual: bool,
    /// The variables or the setting that it comes from; empty if it is the provider's own.
    origin: String,
}

/// Key of a request.
#[derive(Clone, Debug)]
pub(crate) enum TargetKey {
    /// None: the provider needs none, or none is set and the base URL is the caller's own.
    None,
    /// In this header, with this text before it.
    Header { name: &'static str, prefix: &'static str, key: Secret },
    /// An AWS signature for this region.
    Signed { credentials: Credentials, region: String },
}

impl Target {
    pub(crate) fn profile(&self) -> &Profile {
        &self.wire.profile
    }
}

impl Settings {
    /// Finds the target of `provider/model` or `provider:wire/model`.
    pub(crate) fn target(&self, name: &str) -> Result<Target, Error> {
        let Some((before, model)) = name.split_once('/').filter(|(_, model)| !model.is_empty())
        else {
            return Err(Error::Model { model: name.to_owned() });
        };
        let (id, wanted) = before.split_once(':').unwrap_or((before, ""));
        let provider = self.provider(id)?;
        let profile = wire_of(&provider, wanted)?;
        let clues = Clues { provider: id, dialect: profile.dialect.id, ..Clues::default() };
        let wire = self.registry.choose(&clues);
        let BaseUrl { url: base_url, is_usual: is_usual_url, origin } =
            self.base_url(id, &provider)?;
        let (key, key_advice) = self.key(id, &provider, is_usual_url)?;
        let from = if origin.is_empty() { origin } else { format!(" (from {origin})") };
        let url = &base_url;
        let origin = Origin { base_url: format!("`{url}`{from}"), key: key_advice };
        Ok(Target { wire, model: model.to_owned(), base_url, is_usual_url, key, origin })
    }

    /// Checks that the provider of a model is known, and its wire. Whether there is a key shows when it is
    /// asked.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        match self.target(name) {
            Err(
                error @ (Error::Model { .. }
                | Error::UnknownProvider { .. }
                | Error::UnknownWire { .. }),
            ) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn provider(&self, id: &str) -> Result<Known, Error> {
        let entry = self.registry.entries().find(|entry| entry.id == id);
        if let Some(entry) = entry {
            let built_in = entry.like.provider();
            return Ok(Known { like: entry.like, built_in, base_url: entry.base_url.clone() });
        }
        if let Some(built_in) = provider::by_id(id) {
            return Ok(Known { like: Like::Provider(built_in), built_in, base_url: None });
        }
        let known = provider::ALL
            .iter()
            .flat_map(|known| std::iter::once(known.id).chain(known.aliases.iter().copied()));
        let names: Vec<&str> = known.chain(self.registry.ids()).collect();
        let nearest = nearest(id, names).map(str::to_owned);
        Err(Error::UnknownProvider { name: id.to_owned(), nearest })
    }

    /// Returns the base URL.
    fn base_url(&self, id: &str, known: &Known) -> Result<BaseUrl, Error> {
        let own = |url: String, origin: String| BaseUrl { url, is_usual: false, origin };
        let given = self.base_urls.get(id).or_else(|| self.base_urls.get(known.built_in.id));
        if let Some(url) = given {
            let origin = "the setting `base_url`".to_owned();
            return Ok(own(checked(id, url, &origin)?, origin));
        }
        if let Some(url) = &known.base_url {
            let origin = format!("`[provider.{id}]`");
            return Ok(own(checked(id, url, &origin)?, origin));
        }
        let usual = known.built_in.base_url;
        let path = path_of(usual);
        if let Some((gateway, origin)) = &self.gateway {
            let gateway = checked(id, gateway, origin)?;
            let url = format!("{gateway}/{}{path}", known.built_in.route);
            return Ok(own(url, origin.clone()));
        }
        for url in known.built_in.sdk_urls {
            let Setting::Variable(name) = url.setting else { continue };
            // SDKs differ in the part of the path that they add to the variable.
            let (Some(rest), Some(value)) = (path.strip_prefix(url.path), self.variables.get(name))
            else {
                continue;
            };
            let origin = format!("`{name}`");
            return Ok(own(format!("{}{rest}", checked(id, &value, &origin)?), origin));
        }
        let (filled, origin) = self.filled(id, known.built_in)?;
        Ok(BaseUrl { url: checked(id, &filled, &origin)?, is_usual: true, origin })
    }

    /// Fills the parts of a base URL that differ by customer, from variables such as `AZURE_RESOURCE`.
    /// Returns the variables, too.
    fn filled(&self, id: &str, provider: &Provider) -> Result<(String, String), Error> {
        if provider.base_url.is_empty() {
            return Err(Error::NoBaseUrl { provider: id.to_owned(), variable: None });
        }
        let mut filled = provider.base_url.to_owned();
        let mut from = Vec::new();
        while let Some((before, rest)) = filled.split_once('{') {
            let (name, after) = rest.split_once('}').unwrap_or((rest, ""));
            let variables = part_variables(id, provider, name);
            let value = |name: &String| Some((self.variables.get(name)?, name.clone()));
            let Some((value, variable)) = variables.iter().find_map(value) else {
                let variable = Some(format!("{} to your {name}", alternatives(&variables)));
                return Err(Error::NoBaseUrl { provider: id.to_owned(), variable });
            };
            from.push(format!("`{variable}`"));
            filled = format!("{before}{value}{after}");
        }
        Ok((filled, from.join(" and ")))
    }

    /// Returns the key, and what to do if it is not accepted.
    fn key(
        &self,
        id: &str,
        known: &Known,
        is_usual_url: bool,
    ) -> Result<(TargetKey, String), Error> {
        let built_in = known.built_in;
        let given = self.keys.get(id).or_else(|| self.keys.get(built_in.id)).cloned();
        let variables = built_in.key_variables;
        let found = given.map(|key| (key, "the setting `key`".to_owned())).or_else(|| {
            let of =
                |name: &&str| Some((Secret::new(self.variables.get(name)?), format!("`{name}`")));
            variables.iter().find_map(of)
        });
        let advice = match &found {
            Some((_, origin)) => format!("check the key (from {origin}) and what it may do"),
            None if variables.is_empty() => "no key was sent".to_owned(),
            None => format!("no key was sent: set {}", alternatives(variables)),
        };
        let header = |name, prefix, (key, origin): (Secret, String)| {
            if key.expose().chars().any(char::is_control) {
                return Err(Error::Key { provider: id.to_owned(), origin });
            }
            let key = Secret::new(key.expose().trim());
            Ok(TargetKey::Header { name, prefix, key })
        };
        let key = match (built_in.auth, found) {
            (Auth::Open, None) => Ok(TargetKey::None),
            (Auth::SigV4 { .. }, Some((_, origin))) if origin == format!("`{ID_VARIABLE}`") => {
                let missing = |what: String| Error::Credentials {
                    provider: id.to_owned(),
                    what: format!("set {what}"),
                };
                let regions = part_variables(id, built_in, REGION);
                let region = regions.iter().find_map(|name| self.variables.get(name));
                let region = region.ok_or_else(|| missing(alternatives(&regions)))?;
                let credentials = Credentials::from_variables(|name| self.variables.get(name));
                let credentials = credentials.map_err(|name| missing(format!("`{name}`")))?;
                Ok(TargetKey::Signed { credentials, region })
            }
            (Auth::Bearer | Auth::SigV4 { .. } | Auth::Open, Some(found)) => {
                header("authorization", "Bearer ", found)
            }
            (Auth::Header(name) | Auth::HeaderOrQuery(name, _), Some(found)) => {
                header(name, "", found)
            }
            // A server of one's own, such as a gateway with keys, needs none.
            (_, None) if !is_usual_url || is_loopback(built_in.base_url) => Ok(TargetKey::None),
            (_, None) => {
                Err(Error::NoKey { provider: id.to_owned(), variables: alternatives(variables) })
            }
        };
        Ok((key?, advice))
    }
}

/// Part of a base URL that a signature is for.
const REGION: &str = "region";

/// Returns the variables that hold a part of a provider's base URL: one named after the provider and the
/// part, and those that its own SDKs read.
fn part_variables(id: &str, provider: &Provider, part: &str) -> Vec<String> {
    let own = format!("{}_{}", id.to_uppercase().replace('-', "_"), part.to_uppercase());
    let usual = match provider.auth {
        Auth::SigV4 { region_variables } if part == REGION => region_variables,
        Auth::SigV4 { .. }
        | Auth::Bearer
        | Auth::Header(_)
        | Auth::HeaderOrQuery(..)
        | Auth::Open => &[],
    };
    std::iter::once(own).chain(usual.iter().map(|name| (*name).to_owned())).collect()
}

/// Returns the names as alternatives: `` `A` or `B` ``.
fn alternatives(names: &[impl AsRef<str>]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(" or ")
}

/// A known provider: built in, or added by the user.
struct Known {
    like: Like,
    built_in: &'static Provider,
    base_url: Option<String>,
}

/// Returns the wire with this name, or the first one whose requests can be written.
fn wire_of(known: &Known, wanted: &str) -> Result<Profile, Error> {
    let writable = || known.like.wires().filter(|wire| wire.request_shape.writer.is_some());
    let is_wanted = |wire: &&Profile| {
        let id = wire.dialect.id;
        id == wanted || id.strip_suffix(wanted).is_some_and(|rest| rest.ends_with('-'))
    };
    let found = if wanted.is_empty() { writable().next() } else { writable().find(is_wanted) };
    found.copied().ok_or_else(|| Error::UnknownWire {
        provider: known.built_in.id.to_owned(),
        wire: wanted.to_owned(),
        known: writable()
            .map(|wire| format!("`{}`", wire.dialect.id))
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// Returns the URL without a slash at its end.
fn checked(provider: &str, url: &str, origin: &str) -> Result<String, Error> {
    let url = url.trim();
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if host.is_empty() || url.contains(char::is_whitespace) || host.contains('@') {
        let hidden = if host.contains('@') { "…".to_owned() } else { url.to_owned() };
        let (provider, origin) = (provider.to_owned(), origin.to_owned());
        return Err(Error::BaseUrl { provider, url: hidden, origin });
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Returns the path of a URL, without a slash at its end.
fn path_of(url: &str) -> &str {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    after.find('/').and_then(|at| after.get(at..)).unwrap_or_default().trim_end_matches('/')
}

fn is_loopback(url: &str) -> bool {
    ["http://127.0.0.1", "http://localhost", "http://[::1]"]
        .iter()
        .any(|start| url.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: fn(&str) -> Option<String>) -> Settings {
        Settings {
            registry: Registry::default(),
            keys: BTreeMap::new(),
            base_urls: BTreeMap::new(),
            gateway: None,
            variables: Variables(variables),
        }
    }

    fn some_keys(name: &str) -> Option<String> {
        name.ends_with("_KEY").then(|| "canary-key".to_owned())
    }

    #[test]
    fn a_model_leads_to_its_wire_and_host() {
        let settings = settings(some_keys);
        for (model, dialect, base_url) in [
            ("openai/gpt-5", "openai-chat", "https://api.openai.com/v1"),
            ("openai:responses/gpt-5", "openai-responses", "https://api.openai.com/v1"),
            ("anthropic/claude-sonnet-5", "anthropic-messages", "https://api.anthropic.com/v1"),
            ("gemini/gemini-4-pro", "gemini-generate", "https://generativelanguage.googleapis.com"),
            ("groq/meta/llama", "openai-chat", "https://api.groq.com/openai/v1"),
            ("ollama/llama3", "ollama-chat", "http://127.0.0.1:11434"),
        ] {
            let target = settings.target(model).unwrap();
            assert_eq!((target.profile().dialect.id, &*target.base_url), (dialect, base_url));
            assert!(!format!("{target:?}").contains("canary"));
        }
        assert_eq!(settings.target("groq/meta/llama").unwrap().model, "meta/llama");
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = settings(|_| None);
        let error = |model: &str| none.target(model).unwrap_err().to_string();
        assert_eq!(
            error("openai/gpt-5"),
            "no key for `openai`: set `OPENAI_API_KEY`, or pass one to `ClientBuilder::key`"
        );
        assert_eq!(error("opnai/gpt-5"), "unknown provider `opnai`: did you mean `openai`?");
        assert_eq!(
            error("gpt-5"),
            "invalid model `gpt-5`: expected `provider/model`, such as `openai/gpt-5`"
        );
        assert_eq!(
            error("bedrock/nova"),
            "no base URL for `bedrock`: set `BEDROCK_REGION` or `AWS_REGION` or `AWS_DEFAULT_REGION` to your \
             region, or pass one to `ClientBuilder::base_url`"
        );
        assert!(error("watsonx/m").contains("set `WATSONX_REGION` to your region"));
        assert!(error("azure/gpt-5").contains("`AZURE_RESOURCE`"));
        assert!(error("openai:cohere/gpt-5").contains("expected one of `openai-chat`"));
        assert!(error("openai-compatible/x").contains("ClientBuilder::base_url"));
    }

    #[test]
    fn a_signature_is_for_the_region_of_the_base_url() {
        fn aws(name: &str) -> Option<String> {
            let value = match name {
                "AWS_ACCESS_KEY_ID" => "id",
                "AWS_SECRET_ACCESS_KEY" => "canary",
                "BEDROCK_REGION" => "eu-west-1",
                "AWS_REGION" => "us-east-1",
                _ => return None,
            };
            Some(value.to_owned())
        }
        let region_of = |variables: fn(&str) -> Option<String>| {
            let target = settings(variables).target("bedrock/m").unwrap();
            let TargetKey::Signed { region, .. } = target.key else { panic!("{:?}", target.key) };
            (target.base_url, region)
        };
        let url = |region: &str| format!("https://bedrock-runtime.{region}.amazonaws.com");
        assert_eq!(region_of(aws), (url("eu-west-1"), "eu-west-1".to_owned()));
        let usual = |name: &str| aws(name).filter(|_| name != "BEDROCK_REGION");
        assert_eq!(region_of(usual), (url("us-east-1"), "us-east-1".to_owned()));
        let no_secret = |name: &str| aws(name).filter(|_| name != "AWS_SECRET_ACCESS_KEY");
        let error = settings(no_secret).target("bedrock/m").unwrap_err().to_string();
        assert_eq!(error, "no AWS credentials for `bedrock`: set `AWS_SECRET_ACCESS_KEY`");
    }

    #[test]
    fn variables_of_sdks_and_gateways_count() {
        let both = settings(|name| match name {
            "ANTHROPIC_BASE_URL" => Some("http://127.0.0.1:4100/anthropic/".to_owned()),
            "OPENAI_BASE_URL" => Some("http://127.0.0.1:4100/openai/v1".to_owned()),
            _ => None,
        });
        let url = |model: &str| both.target(model).unwrap().base_url;
        assert_eq!(url("anthropic/m"), "http://127.0.0.1:4100/anthropic/v1");
        assert_eq!(url("openai/m"), "http://127.0.0.1:4100/openai/v1");
        let gateway = Some(("http://127.0.0.1:4100".to_owned(), "`V`".to_owned()));
        let gateway = Settings { gateway, ..both };
        let url = |model: &str| gateway.target(model).unwrap().base_url;
        assert_eq!(url("anthropic/m"), "http://127.0.0.1:4100/anthropic/v1");
        assert_eq!(url("google/m"), "http://127.0.0.1:4100/gemini");
        assert_eq!(url("groq/m"), "http://127.0.0.1:4100/groq/openai/v1");
    }

    #[test]
    fn what_a_setting_comes_from_is_named() {
        let odd = settings(|name| (name == "OPENAI_BASE_URL").then(|| "foo".to_owned()));
        assert_eq!(
            odd.target("openai/m").unwrap_err().to_string(),
            "invalid base URL `foo` for `openai` (from `OPENAI_BASE_URL`): expected `http://` or `https://` and a host"
        );
        let gateway = Some(("foo".to_owned(), "`ENDSTOP_BASE_URL`".to_owned()));
        let error = Settings { gateway, ..odd }.target("openai/m").unwrap_err().to_string();
        assert!(error.contains("(from `ENDSTOP_BASE_URL`)"), "{error}");
        let both = settings(|name| match name {
            "OPENAI_BASE_URL" => Some("http://127.0.0.1:1/v1".to_owned()),
            "OPENAI_API_KEY" => Some("canary".to_owned()),
            _ => None,
        });
        let Origin { base_url, key } = both.target("openai/m").unwrap().origin;
        assert_eq!(base_url, "`http://127.0.0.1:1/v1` (from `OPENAI_BASE_URL`)");
        assert_eq!(key, "check the key (from `OPENAI_API_KEY`) and what it may do");
        let none = settings(|name| (name == "OPENAI_BASE_URL").then(|| "http://h/v1".to_owned()));
        let Origin { key, .. } = none.target("openai/m").unwrap().origin;
        assert_eq!(key, "no key was sent: set `OPENAI_API_KEY`");
        let usual = settings(some_keys).target("openai/m").unwrap().origin;
        assert_eq!(usual.base_url, "`https://api.openai.com/v1`");
    }

    #[test]
    fn odd_urls_and_keys_are_refused_without_being_shown() {
        let odd = settings(|name| (name == "OPENAI_API_KEY").then(|| "can\nary".to_owned()));
        let error = odd.target("openai/m").unwrap_err().to_string();
        assert!(error.contains("OPENAI_API_KEY") && !error.contains("ary"), "{error}");
        for url in ["", "api.example", "ftp://x", "http://", "http://a b", "http://k:canary@h/"] {
            let error = checked("p", url, "`V`").unwrap_err().to_string();
            assert!(error.contains("expected `http://`") && !error.contains("canary"), "{error}");
        }
    }
}
