//! Writes the example configuration from its keys.

use super::keys::{Form, Key, Kind};

/// Lines that are longer are broken.
const WIDTH: usize = 110;

const HEAD: &str = "\
# All keys of the configuration of `endstop serve`, with their explanations. Every key is optional.
#
# A line such as `#key = value` shows the default of a key, or an example for a key that is not set by
# default. Remove the `#` to set it, and that of the header of its table. A line that begins with `#or` is an
# alternative to the key that its explanation names: set one of them. SIGHUP applies all changes, except
# those of keys that need a restart.
#
# This file is generated from the source. `endstop serve --config FILE --check` checks yours.
";

/// Form in which keys are written.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Style {
    /// As comments.
    Example,
    /// All in force; the second of two keys that exclude each other.
    Second,
}

/// The text, and the tables that are written already.
pub(super) struct Example<'a> {
    text: String,
    style: Style,
    /// Keys that need a restart.
    restart: &'a [&'a str],
    /// Types of tables, and where their keys are.
    written: Vec<(String, String)>,
    /// Tables with their keys, for tests.
    pub(super) tables: Vec<(String, Vec<Key>)>,
}

impl<'a> Example<'a> {
    pub(super) fn new(keys: &[Key], restart: &'a [&'a str], style: Style) -> Result<Self, String> {
        let (text, written) = (HEAD.to_owned(), Vec::new());
        let mut example = Self { text, style, restart, written, tables: Vec::new() };
        example.table("", keys)?;
        Ok(example)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Writes values first: what follows a header belongs to its table.
    fn table(&mut self, path: &str, keys: &[Key]) -> Result<(), String> {
        self.tables.push((path.to_owned(), keys.to_vec()));
        let is_value = |key: &&Key| matches!(key.kind, Kind::Value(..) | Kind::List(_));
        for key in keys.iter().filter(is_value) {
            self.value(path, key, keys)
                .map_err(|error| format!("`{}`: {error}", join(path, &key.name)))?;
        }
        for key in keys.iter().filter(|key| !is_value(key)) {
            let own = join(path, &key.name);
            self.section(&own, key).map_err(|error| format!("`{own}`: {error}"))?;
        }
        Ok(())
    }

    fn value(&mut self, path: &str, key: &Key, siblings: &[Key]) -> Result<(), String> {
        let is_sibling = |name: &&str| siblings.iter().any(|key| key.name == *name);
        let other = |key: &Key| instead_of(&key.explanation).map(str::to_owned);
        let excluded = instead_of(&key.explanation).filter(is_sibling);
        let is_replaced = siblings.iter().any(|known| other(known).as_deref() == Some(&key.name));
        self.text.push('\n');
        self.comment(&key.explanation);
        if let Kind::Value(_, choices) = &key.kind {
            for choice in choices {
                self.comment(&format!("- \"{}\": {}", choice.word, choice.explanation));
            }
        }
        let tells = ["default", "without it"].iter().any(|words| key.explanation.contains(words));
        if key.is_required {
            self.comment("Required in this table.");
        } else if key.default.is_none() && !tells {
            self.comment("Not set by default.");
        }
        let is_fixed = |name: &str| self.restart.contains(&name);
        if is_fixed(&join(path, &key.name)) {
            self.comment("A change needs a restart.");
        }
        let value = key.default.clone().map_or_else(|| example(key), Ok)?;
        let line = format!("{} = {value}\n", key.name);
        match (self.style, excluded) {
            (Style::Example, Some(_)) => self.text.push_str(&format!("#or {line}")),
            (Style::Example, None) => self.text.push_str(&format!("#{line}")),
            (Style::Second, _) if is_replaced => {}
            (Style::Second, _) => self.text.push_str(&line),
        }
        Ok(())
    }

    fn section(&mut self, path: &str, key: &Key) -> Result<(), String> {
        self.text.push('\n');
        self.comment(&key.explanation);
        if self.restart.contains(&path) {
            self.comment("A change of any of its keys needs a restart.");
        }
        match &key.kind {
            Kind::Table(of, keys) => {
                // Without its header, a key would belong to another table.
                let is_empty = !key.is_optional && !path.contains('.');
                self.header(path, is_empty);
                self.keys(path, of, keys)
            }
            Kind::Map(entry) => self.entries(path, key, entry),
            Kind::Value(..) | Kind::List(_) => Err("not a table".to_owned()),
        }
    }

    fn entries(&mut self, path: &str, key: &Key, entry: &Kind) -> Result<(), String> {
        let names = such_as(&key.explanation);
        let name = names.first().ok_or_else(|| missing("a name for an entry"))?;
        match entry {
            Kind::Table(of, keys) => {
                let path = join(path, name);
                self.header(&path, false);
                self.keys(&path, of, keys)
            }
            Kind::Value(..) => {
                self.header(path, false);
                let hash = if self.style == Style::Example { "#" } else { "" };
                names.iter().for_each(|name| self.text.push_str(&format!("{hash}{name}\n")));
                Ok(())
            }
            Kind::List(_) | Kind::Map(_) => Err("a map of lists or maps has no form".to_owned()),
        }
    }

    /// Writes the keys of a type once, and after that where they are.
    fn keys(&mut self, path: &str, of: &str, keys: &[Key]) -> Result<(), String> {
        if let Some((_, known)) = self.written.iter().find(|(known, _)| known == of) {
            let line = format!("The keys of `[{known}]`.");
            self.comment(&line);
            return Ok(());
        }
        self.written.push((of.to_owned(), path.to_owned()));
        self.table(path, keys)
    }

    fn header(&mut self, path: &str, is_empty: bool) {
        let hash = if self.style == Style::Example && !is_empty { "#" } else { "" };
        self.text.push_str(&format!("{hash}[{path}]\n"));
    }

    fn comment(&mut self, text: &str) {
        let mut line = String::from("#");
        for word in text.split(' ') {
            if line.chars().count() + word.chars().count() >= WIDTH {
                self.text.push_str(&format!("{line}\n"));
                line = if text.starts_with("- ") { "#  ".to_owned() } else { "#".to_owned() };
            }
            line.push(' ');
            line.push_str(word);
        }
        self.text.push_str(&format!("{line}\n"));
    }
}

/// Returns an example with every line in force, and the first of two keys that exclude each other.
pub(super) fn uncommented(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("#or ")).map(|line| {
        let is_text = line == "#" || line.starts_with("# ");
        if is_text { line } else { line.strip_prefix('#').unwrap_or(line) }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn join(path: &str, name: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let name = if name.chars().all(is_plain) { name.to_owned() } else { format!("\"{name}\"") };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

fn missing(what: &str) -> String {
    format!("the doc comment gives no example of {what}: add \"such as `…`\"")
}

/// Returns the value of the example in an explanation, in TOML.
fn example(key: &Key) -> Result<String, String> {
    let examples = such_as(&key.explanation);
    let quoted = |form: Form, text: &str| match form {
        Form::Text | Form::Time => format!("\"{text}\""),
        Form::Number | Form::Size | Form::Flag => text.to_owned(),
    };
    match (&key.kind, examples.as_slice()) {
        (Kind::Value(form, _), [first, ..]) => Ok(quoted(*form, first)),
        (Kind::Value(Form::Flag, _), []) => Ok("true".to_owned()),
        (Kind::List(form), [_, ..]) => {
            let all: Vec<String> = examples.iter().map(|text| quoted(*form, text)).collect();
            Ok(format!("[{}]", all.join(", ")))
        }
        (Kind::Value(..) | Kind::List(_) | Kind::Table(..) | Kind::Map(_), _) => {
            Err(missing("its value"))
        }
    }
}

/// Returns the examples after "such as".
fn such_as(explanation: &str) -> Vec<&str> {
    let mut rest = explanation.split_once("such as `").map_or("", |(_, rest)| rest);
    let mut found = Vec::new();
    while let Some((example, after)) = rest.split_once('`') {
        found.push(example);
        rest = after.strip_prefix(", `").or_else(|| after.strip_prefix(" and `")).unwrap_or("");
    }
    found
}

/// Returns the key after "instead of".
fn instead_of(explanation: &str) -> Option<&str> {
    explanation.split_once("instead of `")?.1.split('`').next()
}
