//! Choice of the scenario for a request.

use crate::request::Request;
use crate::scenario::{self, Scenario};

/// Chosen scenario.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// Text that chose it, with the value.
    pub(crate) text: String,
    pub(crate) scenario: &'static Scenario,
    pub(crate) value: Option<String>,
    /// Whether it also applies if the last message is a tool result.
    pub(crate) insists: bool,
    /// Header or model name with the list that it was taken from, if there was one.
    pub(crate) list: Option<String>,
}

/// Chooses by the header, else by the model, else by the script, else `complete`. The header and the
/// model may hold a list, of which `played` says how many are over.
pub(crate) fn choose(
    request: &Request,
    model: &str,
    script: impl FnOnce() -> Option<String>,
    played: impl FnOnce(&str) -> usize,
) -> Result<Chosen, String> {
    let header = request.header("x-sim-scenario");
    match header.map(str::to_owned).or_else(|| in_model(model)) {
        Some(list) if list.contains(',') => {
            let from = header.unwrap_or(model);
            let names: Vec<&str> = list.split(',').collect();
            // A mistake in a later name is told at once.
            names.iter().try_for_each(|name| named(name).map(drop))?;
            let name = names.get(played(from)).or(names.last()).copied().unwrap_or_default();
            Ok(Chosen { list: Some(from.to_owned()), ..named(name)? })
        }
        Some(name) => named(&name),
        None => named(&script().unwrap_or_else(|| "complete".to_owned())),
    }
}

/// Parses a scenario name with an optional value, and an optional `!` at the end.
pub(crate) fn named(text: &str) -> Result<Chosen, String> {
    let text = text.trim();
    let (bare, insists) = match text.strip_suffix('!') {
        Some(bare) => (bare, true),
        None => (text, false),
    };
    let (scenario, value) = scenario::parse(bare).ok_or_else(|| unknown(bare))?;
    let value = value.map(str::to_owned);
    Ok(Chosen { text: text.to_owned(), scenario, value, insists, list: None })
}

/// Returns the error message for an unknown scenario.
pub(crate) fn unknown(name: &str) -> String {
    if let Some((known, _)) = name.split_once('=')
        && scenario::by_name(known).is_some()
    {
        return format!("scenario `{known}` takes no value");
    }
    let known = name.split('=').next().unwrap_or_default();
    let meant = endstop::nearest(known, scenario::ALL.iter().map(|scenario| scenario.name));
    let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
    format!("unknown scenario `{name}`: `endstop sim --list` lists all{meant}")
}

/// Returns the scenario that a model name contains.
fn in_model(model: &str) -> Option<String> {
    let tail = model.rsplit('/').next().unwrap_or(model);
    let bare = ["us.anthropic.", "eu.anthropic.", "global.anthropic.", "anthropic."]
        .iter()
        .find_map(|prefix| tail.strip_prefix(prefix))
        .unwrap_or(tail);
    if is_list(bare) {
        return Some(bare.to_owned());
    }
    let marks = ["sim:", "sim-"].iter();
    let Some(at) = marks.filter_map(|mark| Some(model.find(mark)? + mark.len())).min() else {
        return after_colon(model);
    };
    let rest = model.get(at..)?;
    if is_list(rest) {
        return Some(rest.to_owned());
    }
    // A version may follow the name, as in `anthropic.sim-length-v1:0`.
    let starts = |scenario: &&Scenario| {
        rest.strip_prefix(scenario.name)
            .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let longest = scenario::ALL.iter().filter(starts).max_by_key(|scenario| scenario.name.len());
    Some(longest.map_or(rest, |scenario| scenario.name).to_owned())
}

/// Returns the scenarios after a colon, as in `claude-haiku-4-5:story=500`, also if they are unknown, so that
/// a typing error is told. Tags such as those of `llama3:latest` and `ft:gpt-4o:acme::A1` are the model's own.
fn after_colon(model: &str) -> Option<String> {
    let mut tails = model.match_indices(':').filter_map(|(at, _)| model.get(at + 1..));
    let first = tails.clone().next()?;
    if let Some(list) = tails.find(|tail| is_list(tail)) {
        return Some(list.to_owned());
    }
    let last = model.rsplit(':').next()?;
    let own = if last == first { is_tag(last) } else { !resembles_scenario(last) };
    (!own).then(|| last.to_owned())
}

/// Tags after a colon that are part of real model names.
const TAGS: [&str; 18] = [
    "beta",
    "chat",
    "cheapest",
    "cloud",
    "code",
    "exacto",
    "extended",
    "fastest",
    "floor",
    "free",
    "instruct",
    "latest",
    "nitro",
    "online",
    "preferred",
    "text",
    "thinking",
    "vision",
];

/// Reports whether this is a tag of a model: a well-known one, a version or size, or a provider.
fn is_tag(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
        || TAGS.contains(&text)
        || endstop::provider::ALL.iter().any(|provider| provider.id == text)
}

/// Reports whether the first name of a list is a scenario or nearly one.
fn resembles_scenario(list: &str) -> bool {
    let name = list.split([',', '=', '!']).next().unwrap_or_default();
    endstop::nearest(name, scenario::ALL.iter().map(|scenario| scenario.name)).is_some()
}

/// Reports whether the text is one scenario or a list of them.
fn is_list(text: &str) -> bool {
    text.split(',').all(|name| scenario::parse(name.trim_end_matches('!')).is_some())
}

/// Reads the names in a script: TOML (`scenarios = ["…"]`), or one per line.
pub(crate) fn script(text: &str) -> Result<Vec<String>, String> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Script {
        scenarios: Vec<String>,
    }
    let is_toml = text.lines().any(|line| line.trim_start().starts_with("scenarios"));
    let names = if is_toml {
        toml::from_str::<Script>(text).map_err(|error| error.to_string())?.scenarios
    } else {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    };
    for name in &names {
        named(name)?;
    }
    Ok(names)
}
