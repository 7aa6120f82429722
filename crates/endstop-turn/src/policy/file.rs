//! Policy files in TOML, with errors that name the line and the key.
//!
//! ```toml
//! based_on = "careful"
//! [agent]
//! continuation_max_attempts = 2
//! turn_max_cost = 0.50
//! [rules.output_limit]
//! action = "raise_budget"
//! [providers.acme.rules.cut]
//! action = "stop"
//! [wording]
//! hint = "Go on exactly where you stopped."
//! [prices]
//! "gpt-4.1" = { input = 2.00, output = 8.00 }
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::{AgentChange, Override, Policy, Price, Rule, RuleChange};
use endstop::Reason;
use endstop::next_request::Wording;
use endstop::text::{plain_error, toml_key_at, toml_keys};

/// An error in a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyFileError {
    /// The file.
    pub file: String,
    /// The line number, starting at one.
    pub line: usize,
    /// The key with its tables, or an empty string if the line has no key.
    pub key: String,
    /// The message with the mistake and the allowed values.
    pub message: String,
}

impl fmt::Display for PolicyFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, key, message } = self;
        match key.as_str() {
            "" => write!(formatter, "{file}:{line}: {message}"),
            key => write!(formatter, "{file}:{line}: `{key}`: {message}"),
        }
    }
}

impl std::error::Error for PolicyFileError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default = "usual")]
    based_on: String,
    name: Option<String>,
    #[serde(default)]
    agent: AgentChange,
    #[serde(default)]
    rules: BTreeMap<Reason, RuleChange>,
    #[serde(default)]
    providers: BTreeMap<String, Override>,
    #[serde(default)]
    wording: Wording,
    #[serde(default)]
    prices: BTreeMap<String, Price>,
    #[serde(default)]
    fallback_models: Vec<String>,
}

/// Keys of a policy in a file that has others, too. Its `name` is not that of the policy.
#[derive(Deserialize)]
struct Within {
    #[serde(default = "usual")]
    based_on: String,
    #[serde(default)]
    agent: AgentChange,
    #[serde(default)]
    rules: BTreeMap<Reason, RuleChange>,
    #[serde(default)]
    providers: BTreeMap<String, Override>,
    #[serde(default)]
    wording: Wording,
    #[serde(default)]
    prices: BTreeMap<String, Price>,
    #[serde(default)]
    fallback_models: Vec<String>,
    /// Providers that the same file adds.
    #[serde(default)]
    provider: BTreeMap<String, serde::de::IgnoredAny>,
}

impl From<Within> for Written {
    fn from(within: Within) -> Self {
        let Within { based_on, agent, rules, providers, wording, prices, fallback_models, .. } =
            within;
        let name = None;
        Self { based_on, name, agent, rules, providers, wording, prices, fallback_models }
    }
}

fn usual() -> String {
    "default".to_owned()
}

fn misread(file: &str, text: &str, error: &toml::de::Error) -> PolicyFileError {
    let offset = error.span().map_or(0, |span| span.start);
    let (line, key) = toml_key_at(text, offset);
    let noun = match key.rsplit('.').next() {
        Some("action") => "action",
        Some("min_confidence") => "confidence",
        _ if key.starts_with("rules.") || key.contains(".rules.") => "reason",
        _ => "value",
    };
    let mut message = plain_error(error.message(), noun);
    // Two tables differ in one letter: this one changes how a provider's responses are read.
    if key == "provider" || key.starts_with("provider.") {
        message.push_str("; the rules of a provider are in `[providers.NAME]`");
    } else if key.starts_with("providers.") {
        message.push_str("; its wire and finish reasons are in `[provider.NAME]`");
    }
    PolicyFileError { file: file.to_owned(), line, key, message }
}

impl Policy {
    /// Reads a policy. Values that the file does not set come from the preset named by `based_on`.
    /// A policy without a `name` gets the file's name.
    ///
    /// # Errors
    /// Returns the first mistake, with its line and key.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, PolicyFileError> {
        let written = toml::from_str(text).map_err(|error| misread(file, text, &error))?;
        Self::written(file, text, written)
    }

    /// Reads the keys of a policy (`based_on`, `agent`, `rules`, `providers`, `wording` and `prices`) in
    /// a file that has others, too.
    ///
    /// # Errors
    /// Returns the first mistake in these tables, with its line and key.
    pub fn from_toml_within(file: &str, text: &str) -> Result<Self, PolicyFileError> {
        let within: Within = toml::from_str(text).map_err(|error| misread(file, text, &error))?;
        let is_own = |id: &str| within.provider.contains_key(id);
        let names = within.fallback_models.iter();
        let unknown = names.filter_map(|name| unknown_provider(name, is_own)).next();
        if let Some(message) = unknown {
            return Err(of_key(file, text, "fallback_models".to_owned(), message));
        }
        Self::written(file, text, within.into())
    }

    fn written(file: &str, text: &str, written: Written) -> Result<Self, PolicyFileError> {
        let wrong = |key: String, message: String| of_key(file, text, key, message);
        let Some(base) = Self::preset(&written.based_on) else {
            let known = one_of(&Self::PRESETS);
            let message = format!("unknown preset `{}`: expected {known}", written.based_on);
            return Err(wrong("based_on".to_owned(), message));
        };
        if let Some(name) = written.fallback_models.iter().find(|name| model_of(name).is_none()) {
            let message = format!(
                "invalid model `{name}`: expected `provider/model`, such as `openai/gpt-5`"
            );
            return Err(wrong("fallback_models".to_owned(), message));
        }
        check(&written.rules, "").map_err(|(key, message)| wrong(key, message))?;
        for (provider, own) in &written.providers {
            let below = format!("providers.{provider}.");
            check(&own.rules, &below).map_err(|(key, message)| wrong(key, message))?;
        }
        for (key, text) in [("hint", &written.wording.hint), ("repair", &written.wording.repair)] {
            if text.trim().is_empty() {
                let message = "invalid text: it must not be empty".to_owned();
                return Err(wrong(format!("wording.{key}"), message));
            }
        }
        let mut rules = base.rules;
        for (reason, change) in written.rules {
            let known = rules.entry(reason).or_default();
            *known = RuleChange {
                action: change.action.or(known.action),
                min_confidence: change.min_confidence.or(known.min_confidence),
                max_attempts: change.max_attempts.or(known.max_attempts),
            };
        }
        Ok(Self {
            name: written.name.unwrap_or_else(|| file_name(file).to_owned()),
            agent: written.agent.apply(base.agent),
            rules,
            providers: written.providers,
            wording: written.wording,
            prices: written.prices,
            fallback_models: written.fallback_models,
        })
    }
}

fn of_key(file: &str, text: &str, key: String, message: String) -> PolicyFileError {
    let line = line_of_key(text, &key);
    PolicyFileError { file: file.to_owned(), line, key, message }
}

/// Splits `provider/model` or `provider:wire/model` into the provider and the model.
fn model_of(name: &str) -> Option<(&str, &str)> {
    let (before, model) = name.split_once('/').filter(|(_, model)| !model.is_empty())?;
    let provider = before.split(':').next().filter(|id| !id.is_empty())?;
    Some((provider, model))
}

/// Returns the mistake in the name of a model whose provider is neither built in nor the file's own.
fn unknown_provider(name: &str, is_own: impl Fn(&str) -> bool) -> Option<String> {
    let (id, _) = model_of(name)?;
    if is_own(id) || endstop::provider::by_id(id).is_some() {
        return None;
    }
    let known = endstop::provider::ALL.iter();
    let known =
        known.flat_map(|known| std::iter::once(known.id).chain(known.aliases.iter().copied()));
    let meant = endstop::nearest(id, known.collect::<Vec<_>>());
    let meant = meant.map_or_else(String::new, |meant| format!(": did you mean `{meant}`?"));
    Some(format!("unknown provider `{id}` in `{name}`{meant}"))
}

/// Returns the last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Joins the names: `a, b or c`.
fn one_of(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Rejects rules whose action is unsafe or cannot help.
fn check(rules: &BTreeMap<Reason, RuleChange>, below: &str) -> Result<(), (String, String)> {
    for (reason, rule) in rules {
        let permitted = Rule::permitted(*reason);
        let Some(action) = rule.action.filter(|action| !permitted.contains(action)) else {
            continue;
        };
        let names: Vec<&str> = permitted.iter().map(|action| action.name()).collect();
        let message = format!(
            "invalid action `{}` for {}: expected {}",
            action.name(),
            reason.name(),
            one_of(&names)
        );
        return Err((format!("{below}rules.{}.action", reason.name()), message));
    }
    Ok(())
}

fn line_of_key(text: &str, key: &str) -> usize {
    let found = toml_keys(text).find(|(_, known)| known == key);
    found.map_or(1, |(line, _)| line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Action, AgentLimits, Money};
    use endstop::Confidence;

    #[test]
    fn fallback_models_are_checked_when_a_file_is_read() {
        let within = |text: &str| Policy::from_toml_within("p.toml", text);
        let of = |names: &str| within(&format!("\nfallback_models = [{names}]\n[provider.acme]\n"));
        assert!(of("'openai/gpt-5', 'openai:responses/gpt-5', 'acme/m'").is_ok());
        assert_eq!(
            of("'gemini/m', 'opnai/m'").unwrap_err().to_string(),
            "p.toml:2: `fallback_models`: unknown provider `opnai` in `opnai/m`: did you mean `openai`?"
        );
        assert_eq!(
            Policy::from_toml("p.toml", "fallback_models = ['m']").unwrap_err().to_string(),
            "p.toml:1: `fallback_models`: invalid model `m`: expected `provider/model`, such as `openai/gpt-5`"
        );
    }

    #[test]
    fn a_file_changes_what_it_names_and_nothing_else() {
        let policy = Policy::from_toml(
            "p.toml",
            r#"
                based_on = "careful"
                name = "mine"
                [agent]
                continuation_max_attempts = 2
                continuation_max_total_completion_tokens = 16_384
                continuation_max_output_chars = 120_000
                continuation_tool_repair_attempts = 0
                turn_max_cost = 0.50
                [rules.output_limit]
                action = "raise_budget"
                [providers.acme.agent]
                cut_max_attempts = 9
                [providers.acme.rules.cut]
                action = "stop"
            "#,
        )
        .unwrap();
        let careful = Policy::careful();
        let agent = AgentLimits {
            continuation_max_attempts: 2,
            continuation_max_total_completion_tokens: Some(16_384),
            continuation_max_output_chars: 120_000,
            continuation_tool_repair_attempts: 0,
            turn_max_cost: Some(Money::from_micros(500_000)),
            ..careful.agent
        };
        assert_eq!((policy.name.as_str(), policy.agent), ("mine", agent));
        let rule = policy.terms("x", Reason::OutputLimit).rule;
        assert_eq!(
            (rule.action, rule.min_confidence),
            (Some(Action::RaiseBudget), Confidence::Medium)
        );
        assert_eq!(policy.terms("acme", Reason::Cut).rule.action, Some(Action::Stop));
        assert_eq!(policy.terms("acme", Reason::Cut).limits.cut_max_attempts, 9);
        assert_eq!(policy.terms("x", Reason::Cut).rule.action, None);
        assert_eq!(policy.terms("x", Reason::Cut).limits, agent);
    }

    #[test]
    fn the_empty_file_is_the_default() {
        let named = |policy: Policy| Policy { name: "p.toml".to_owned(), ..policy };
        assert_eq!(Policy::from_toml("p.toml", "").unwrap(), named(Policy::default()));
        for name in Policy::PRESETS {
            let policy = Policy::from_toml("p.toml", &format!("based_on = \"{name}\"")).unwrap();
            assert_eq!(Some(policy), Policy::preset(name).map(named));
        }
        assert_eq!(Policy::preset("bold"), None);
    }

    #[test]
    fn a_policy_from_a_file_is_called_by_the_file_or_by_itself() {
        let name = |file: &str, text: &str| Policy::from_toml(file, text).unwrap().name;
        assert_eq!(name("agent.toml", ""), "agent.toml");
        assert_eq!(name("/etc/endstop/agent.toml", "based_on = \"careful\""), "agent.toml");
        assert_eq!(name("C:\\policies\\agent.toml", ""), "agent.toml");
        assert_eq!(name("agent.toml", "name = \"ours\""), "ours");
    }

    #[test]
    fn wording_prices_and_the_length_of_a_conversation_are_configuration() {
        let policy = Policy::from_toml(
            "p.toml",
            r#"
                [agent]
                conversation_max_messages = 40
                conversation_max_tokens = 100_000
                [wording]
                hint = "Go on."
                [prices]
                "gpt-4.1" = { input = 2, output = 8.5 }
                "acme/gpt-4.1" = { input = 0.000001, output = 0 }
            "#,
        )
        .unwrap();
        assert_eq!(policy.agent.conversation_max_messages, Some(40));
        assert_eq!(policy.agent.conversation_max_tokens, Some(100_000));
        assert_eq!(policy.wording, Wording { hint: "Go on.".into(), ..Wording::default() });
        let price = |input, output| {
            Some(Price { input: Money::from_micros(input), output: Money::from_micros(output) })
        };
        assert_eq!(policy.price_of("openai", "gpt-4.1"), price(2_000_000, 8_500_000));
        assert_eq!(policy.price_of("acme", "gpt-4.1"), price(1, 0));
        let agent = Policy::default().agent;
        assert_eq!((agent.conversation_max_messages, agent.conversation_max_tokens), (None, None));
    }

    #[test]
    fn a_file_with_other_tables_has_the_same_policy() {
        let text = "based_on = \"careful\"\n[agent]\ncontinuation_max_attempts = 2\n\
                    [rules.output_limit]\naction = \"raise_budget\"\n\
                    [providers.acme.rules.cut]\naction = \"stop\"\n";
        let alone = Policy::from_toml("p.toml", text).unwrap();
        let other = format!("listen = \"127.0.0.1:1\"\n{text}[upstream.x]\nname = \"y\"\n");
        assert_eq!(Policy::from_toml_within("p.toml", &other).unwrap(), alone);
        assert_eq!(alone.terms("acme", Reason::Cut).rule.action, Some(Action::Stop));
        let error = Policy::from_toml_within("p.toml", "based_on = \"bold\"").unwrap_err();
        assert_eq!((error.line, error.key.as_str()), (1, "based_on"));
    }

    #[track_caller]
    fn wrong(text: &str, line: usize, key: &str, says: &str) {
        let error = Policy::from_toml("p.toml", text).unwrap_err();
        assert_eq!((error.line, error.key.as_str()), (line, key), "{error}");
        assert!(error.message.contains(says), "{error}");
        assert!(error.to_string().starts_with(&format!("p.toml:{line}: ")), "{error}");
    }

    #[test]
    fn errors_name_the_line_and_the_key() {
        wrong("[agent]\n\nmax_attempts = 3\n", 3, "agent.max_attempts", "unknown field");
        wrong(
            "[agent]\ncontinuation_max_attempts = \"three\"",
            2,
            "agent.continuation_max_attempts",
            "expected a whole number",
        );
        wrong("agent.turn_max_cost = -1.0", 1, "agent.turn_max_cost", "0 or more");
        wrong("# base\nbased_on = \"bold\"", 2, "based_on", "careful, default or persistent");
        wrong(
            "[rules.context_limit]\naction = \"continue\"",
            2,
            "rules.context_limit.action",
            "expected compact or stop",
        );
        wrong(
            "name = \"x\"\n[providers.acme.rules.refused]\nmax_attempts = 1\naction = \"retry\"",
            4,
            "providers.acme.rules.refused.action",
            "expected change_prompt, other_model or stop",
        );
        wrong(
            "[rules.tired]\naction = \"stop\"",
            1,
            "rules.tired",
            "unknown reason `tired`: expected one of `complete`",
        );
        wrong(
            "[rules.cut]\naction = \"hope\"",
            2,
            "rules.cut.action",
            "unknown action `hope`: expected one of",
        );
        wrong("[wording]\nhint = \" \"", 2, "wording.hint", "must not be empty");
        wrong("[wording]\nrepair = \"\"", 2, "wording.repair", "must not be empty");
        wrong("[wording]\nhints = \"x\"", 2, "wording.hints", "unknown field");
        wrong("[prices]\nm = { input = -1, output = 0 }", 2, "prices.m", "0 or more");
        wrong("[prices.m]\ninput = 1", 1, "prices.m", "missing field `output`");
        wrong(
            "[provider.acme.rules.cut]\naction = \"stop\"",
            1,
            "provider.acme.rules.cut",
            "`[providers.NAME]`",
        );
        wrong("[providers.acme]\nlike = \"openai\"", 2, "providers.acme.like", "`[provider.NAME]`");
        wrong(
            "[agent]\ncontinuation_max_attempts = -3",
            2,
            "agent.continuation_max_attempts",
            "0 or more",
        );
        wrong("[agent", 1, "agent", "");
        wrong("nonsense", 1, "", "");
    }
}
