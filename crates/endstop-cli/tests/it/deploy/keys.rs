//! Keys of the configuration, as the source of its types has them: names, types, explanations.
//!
//! The explanation of a key is its doc comment. It gives an example after the words "such as" where there
//! is no default, and says "instead of" with the key that it excludes.

use std::path::{Path, PathBuf};

use syn::parse::{Parse, ParseBuffer, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Field, Fields, GenericArgument, Item, Lit, PathArguments, Token, Type};

use super::defaults::Defaults;

/// A key and its explanation.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) name: String,
    /// Other spellings.
    pub(super) aliases: Vec<String>,
    pub(super) explanation: String,
    pub(super) kind: Kind,
    /// Value if the key is left out, in TOML.
    pub(super) default: Option<String>,
    /// The file may leave it out, and nothing takes its place.
    pub(super) is_optional: bool,
    /// Its table must have it.
    pub(super) is_required: bool,
}

#[derive(Clone)]
pub(super) enum Kind {
    /// A value, with the words that it may have; any if there are none.
    Value(Form, Vec<Choice>),
    /// An array of values.
    List(Form),
    /// A table with these keys; of this type.
    Table(String, Vec<Key>),
    /// Tables or values by names that the user chooses.
    Map(Box<Self>),
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// In quotes.
    Text,
    /// A time, in quotes.
    Time,
    /// A number.
    Number,
    /// A number of bytes, which may have a unit in quotes.
    Size,
    /// True or false.
    Flag,
}

#[derive(Clone)]
pub(super) struct Choice {
    variant: String,
    pub(super) word: String,
    pub(super) explanation: String,
    is_default: bool,
}

/// Types whose keys are read from elsewhere: a field of such a type has the type of the field of the same
/// name in that struct.
const ELSEWHERE: [(&str, &str, &str); 2] = [
    ("PolicyTable", "endstop-turn/src/policy/file.rs", "Within"),
    ("Registry", "endstop/src/registry/file.rs", "File"),
];

/// A macro that declares the fields of a struct, and the struct whose defaults it has.
const DECLARED: (&str, &str, &str) = ("limits", "AgentChange", "AgentLimits");

/// The source of all crates.
pub(super) struct Sources {
    files: Vec<(PathBuf, String)>,
    defaults: Defaults,
}

impl Sources {
    pub(super) fn new(defaults: Defaults) -> Self {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(crates()).unwrap() {
            read_folder(&entry.unwrap().path().join("src"), &mut files);
        }
        files.sort();
        Self { files, defaults }
    }

    /// Returns the keys of a struct, which is looked for near this file first.
    pub(super) fn keys_of(&self, name: &str, near: &Path) -> Result<Vec<Key>, String> {
        if name == DECLARED.1 {
            return self.declared(near);
        }
        let (file, item) = self.find(name, near)?;
        let Item::Struct(found) = item else { return Err(format!("{name} is not a struct")) };
        let Fields::Named(fields) = found.fields else {
            return Err(format!("{name} has fields without names"));
        };
        let has_default = Serde::of(&found.attrs).has("default");
        let mut keys = Vec::new();
        for field in fields.named {
            let serde = Serde::of(&field.attrs);
            if serde.has("skip") {
                continue;
            }
            if serde.has("flatten") {
                let (inner, _) = without_option(&field.ty);
                keys.extend(self.keys_of(&type_name(inner)?, file)?);
                continue;
            }
            let key = self.key(name, &field, file).map_err(|error| {
                let field = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                format!("{name}.{field}, in {}: {error}", shown(file))
            })?;
            keys.push(Key { is_required: key.is_required && !has_default, ..key });
        }
        Ok(keys)
    }

    /// Returns the keys that the macro declares.
    fn declared(&self, near: &Path) -> Result<Vec<Key>, String> {
        let (name, _, defaults) = DECLARED;
        for (file, text) in self.files.iter().filter(|(file, _)| crate_of(file) == crate_of(near)) {
            if !text.contains(&format!("\n{name}! {{")) {
                continue;
            }
            for item in parse(text)?.items {
                let Item::Macro(found) = item else { continue };
                if !found.mac.path.is_ident(name) {
                    continue;
                }
                let fields =
                    found.mac.parse_body_with(Punctuated::<Declared, Token![,]>::parse_terminated);
                let fields = fields.map_err(|error| error.to_string())?;
                let key = |field: &Declared| self.key(defaults, &field.0, file);
                let optional = |key: Key| Key { is_required: false, ..key };
                return fields.iter().map(|field| key(field).map(optional)).collect();
            }
        }
        Err(format!("the macro {name}! is missing in {}", crate_of(near)))
    }

    fn key(&self, of: &str, field: &Field, file: &Path) -> Result<Key, String> {
        let serde = Serde::of(&field.attrs);
        let own = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        let name = serde.first("rename").unwrap_or_else(|| own.clone());
        let explanation = explanation(&field.attrs);
        if explanation.is_empty() {
            return Err("write a doc comment that explains the key".to_owned());
        }
        let (inner, is_optional) = without_option(&field.ty);
        let reads = serde.first("deserialize_with").unwrap_or_default();
        let kind = self.kind(&name, inner, &reads, file)?;
        // A type that is read elsewhere shows its own name.
        let shown = type_name(inner)?;
        let raw = self.defaults.get(of, &own).filter(|raw| *raw != shown);
        let default = raw.map_or_else(|| implied(&kind, is_optional), |raw| written(&kind, raw));
        let aliases = serde.all("alias");
        let is_required = !is_optional && !serde.has("default");
        Ok(Key { name, aliases, explanation, kind, default, is_optional, is_required })
    }

    fn kind(&self, key: &str, of: &Type, reads: &str, near: &Path) -> Result<Kind, String> {
        let (of, _) = without_option(of);
        let name = type_name(of)?;
        let form = match name.as_str() {
            "String" | "str" | "PathBuf" | "SocketAddr" => Form::Text,
            "Duration" => Form::Time,
            "bool" => Form::Flag,
            "usize" if reads == "size" => Form::Size,
            "u16" | "u32" | "u64" | "usize" | "f64" | "NonZeroU64" => Form::Number,
            "Spanned" | "Box" => return self.kind(key, argument(of, 0)?, reads, near),
            "Cow" => return self.kind(key, argument(of, 1)?, reads, near),
            "Vec" => {
                let Kind::Value(form, _) = self.kind(key, argument(of, 0)?, "", near)? else {
                    return Err("an array of tables has no form in the example".to_owned());
                };
                return Ok(Kind::List(form));
            }
            "BTreeMap" => {
                let entry = self.kind(key, argument(of, 1)?, "", near)?;
                return Ok(Kind::Map(Box::new(entry)));
            }
            _ => return self.named(key, &name, near),
        };
        Ok(Kind::Value(form, Vec::new()))
    }

    /// Returns the kind of a type of this workspace.
    fn named(&self, key: &str, name: &str, near: &Path) -> Result<Kind, String> {
        if let Some((_, file, within)) = ELSEWHERE.iter().find(|(of, ..)| *of == name) {
            return self.kind_of_field(within, &crates().join(file), key);
        }
        if name == DECLARED.1 {
            return Ok(Kind::Table(name.to_owned(), self.keys_of(name, near)?));
        }
        let (file, item) = self.find(name, near)?;
        if let Item::Type(alias) = &item {
            return self.kind(key, &alias.ty, "", file);
        }
        if let Item::Enum(found) = item {
            // Others have a reader of their own.
            let is_derived = derives(&found.attrs, "Deserialize");
            let rename = Serde::of(&found.attrs).first("rename_all").unwrap_or_default();
            let choices = found.variants.iter().filter(|_| is_derived).map(|variant| Choice {
                word: renamed(&variant.ident.to_string(), &rename),
                variant: variant.ident.to_string(),
                explanation: explanation(&variant.attrs),
                is_default: variant.attrs.iter().any(|known| known.path().is_ident("default")),
            });
            return Ok(Kind::Value(Form::Text, choices.collect()));
        }
        let Item::Struct(found) = item else {
            return Err(format!("the type {name} has no form in the example"));
        };
        if matches!(found.fields, Fields::Unnamed(_)) {
            // A number with a name.
            return Ok(Kind::Value(Form::Number, Vec::new()));
        }
        Ok(Kind::Table(name.to_owned(), self.keys_of(name, file)?))
    }

    /// Returns the kind of one field of a struct. Its explanation may be elsewhere.
    fn kind_of_field(&self, of: &str, file: &Path, key: &str) -> Result<Kind, String> {
        let (file, Item::Struct(found)) = self.find(of, file)? else {
            return Err(format!("{of} is not a struct"));
        };
        let field =
            found.fields.iter().find(|field| field.ident.as_ref().is_some_and(|name| name == key));
        let field = field.ok_or_else(|| format!("{of} has no field `{key}`"))?;
        self.kind(key, &field.ty, "", file)
    }

    /// Returns a type: of this file, else of the crate that it is imported from, else of this crate.
    fn find(&self, name: &str, near: &Path) -> Result<(&Path, Item), String> {
        let text = self.files.iter().find(|(file, _)| file == near).map_or("", |(_, text)| text);
        let imports: Vec<&str> = text.split(';').filter(|part| part.contains(name)).collect();
        let rank = |file: &Path| match crate_of(file).replace('-', "_") {
            _ if file == near => 0,
            from if imports.iter().any(|part| part.contains(&format!("\nuse {from}::"))) => 1,
            _ if crate_of(file) == crate_of(near) => 2,
            _ => 3,
        };
        let mentions = |text: &str| {
            ["struct", "enum", "type"].iter().any(|kind| text.contains(&format!("{kind} {name}")))
        };
        let mut found: Vec<(usize, &Path, Item)> = Vec::new();
        for (file, text) in self.files.iter().filter(|(_, text)| mentions(text)) {
            let items = parse(text)?.items.into_iter();
            let items = items.filter(|item| item_name(item).is_some_and(|known| known == name));
            found.extend(items.map(|item| (rank(file), file.as_path(), item)));
        }
        found.sort_by_key(|(rank, ..)| *rank);
        match found.as_slice() {
            [] => Err(format!("no crate has a type {name}")),
            [(first, one, _), (second, other, _), ..] if first == second => {
                Err(format!("{} and {} both have a type {name}", shown(one), shown(other)))
            }
            [(_, file, item), ..] => Ok((file, item.clone())),
        }
    }
}

pub(super) fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn shown(file: &Path) -> String {
    file.strip_prefix(crates()).unwrap_or(file).display().to_string()
}

fn crate_of(file: &Path) -> String {
    shown(file).split('/').next().unwrap_or_default().to_owned()
}

fn read_folder(folder: &Path, files: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_folder(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
}

fn parse(text: &str) -> Result<syn::File, String> {
    syn::parse_file(text).map_err(|error| error.to_string())
}

fn item_name(item: &Item) -> Option<String> {
    let name = if let Item::Struct(found) = item {
        &found.ident
    } else if let Item::Enum(found) = item {
        &found.ident
    } else if let Item::Type(found) = item {
        &found.ident
    } else {
        return None;
    };
    Some(name.to_string())
}

/// A field in the macro: `name: type = value`.
struct Declared(Field);

impl Parse for Declared {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let field = input.call(Field::parse_named)?;
        input.parse::<Token![=]>()?;
        input.parse::<Expr>()?;
        Ok(Self(field))
    }
}

/// Returns the last part of the name of a type.
fn type_name(of: &Type) -> Result<String, String> {
    let Type::Path(path) = of else { return Err("a type without a name".to_owned()) };
    Ok(path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default())
}

/// Returns a parameter of a type, without lifetimes.
fn argument(of: &Type, number: usize) -> Result<&Type, String> {
    let Type::Path(path) = of else { return Err("a type without parameters".to_owned()) };
    let last = path.path.segments.last().map(|last| &last.arguments);
    let Some(PathArguments::AngleBracketed(list)) = last else {
        return Err("a type without parameters".to_owned());
    };
    let mut types = list
        .args
        .iter()
        .map(|argument| if let GenericArgument::Type(of) = argument { Some(of) } else { None });
    types.nth(number).flatten().ok_or_else(|| "a type without parameters".to_owned())
}

fn without_option(of: &Type) -> (&Type, bool) {
    match (type_name(of).as_deref(), argument(of, 0)) {
        (Ok("Option"), Ok(inner)) => (inner, true),
        _ => (of, false),
    }
}

/// Attributes for serde, as name and value.
struct Serde(Vec<(String, String)>);

impl Serde {
    fn of(attributes: &[Attribute]) -> Self {
        let mut found = Vec::new();
        for attribute in attributes.iter().filter(|known| known.path().is_ident("serde")) {
            let _ = attribute.parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                let value = match meta.value().and_then(ParseBuffer::parse::<Lit>) {
                    Ok(Lit::Str(text)) => text.value(),
                    _ => String::new(),
                };
                found.push((name, value));
                Ok(())
            });
        }
        Self(found)
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
    }

    fn first(&self, name: &str) -> Option<String> {
        self.all(name).into_iter().next()
    }
}

fn derives(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().filter(|known| known.path().is_ident("derive")).any(|known| {
        let mut found = false;
        let _ = known.parse_nested_meta(|meta| {
            found |= meta.path.is_ident(name);
            Ok(())
        });
        found
    })
}

/// Returns the text of doc comments in one line, with the names of links alone.
fn explanation(attributes: &[Attribute]) -> String {
    let lines =
        attributes.iter().filter(|known| known.path().is_ident("doc")).filter_map(|known| {
            let Expr::Lit(value) = &known.meta.require_name_value().ok()?.value else {
                return None;
            };
            let Lit::Str(text) = &value.lit else { return None };
            Some(text.value().trim().to_owned())
        });
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut parts = text.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once("`]").unwrap_or((part, ""));
        let name = link.rsplit("::").next().unwrap_or(link);
        plain.push_str(&format!("`{name}`{rest}"));
    }
    plain
}

/// Returns the name of a variant as serde spells it.
fn renamed(variant: &str, rule: &str) -> String {
    let dash = match rule {
        "snake_case" => "_",
        "kebab-case" => "-",
        "lowercase" => "",
        _ => return variant.to_owned(),
    };
    let mut word = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push_str(dash);
        }
        word.extend(letter.to_lowercase());
    }
    word
}

/// Returns the value that a type has by itself.
fn implied(kind: &Kind, is_optional: bool) -> Option<String> {
    match kind {
        Kind::Value(Form::Flag, _) if !is_optional => Some("false".to_owned()),
        Kind::Value(_, choices) if !is_optional => {
            let choice = choices.iter().find(|choice| choice.is_default)?;
            Some(format!("\"{}\"", choice.word))
        }
        Kind::Value(..) | Kind::List(_) | Kind::Table(..) | Kind::Map(_) => None,
    }
}

/// Returns a value in TOML, from the form in which Rust shows it.
fn written(kind: &Kind, raw: &str) -> Option<String> {
    if raw == "None" {
        return None;
    }
    match kind {
        Kind::Value(Form::Text, choices) if !choices.is_empty() => {
            let choice = choices.iter().find(|choice| choice.variant == raw)?;
            Some(format!("\"{}\"", choice.word))
        }
        Kind::Value(Form::Text, _) if raw.starts_with('"') => Some(raw.to_owned()),
        Kind::Value(Form::Text, _) => Some(format!("\"{raw}\"")),
        Kind::Value(Form::Time, _) => {
            let seconds = raw.strip_suffix('s').and_then(|number| number.parse::<u64>().ok());
            let minutes = seconds.filter(|seconds| *seconds >= 300 && seconds.is_multiple_of(60));
            Some(minutes.map_or_else(|| format!("\"{raw}\""), |s| format!("\"{}m\"", s / 60)))
        }
        Kind::Value(Form::Size, _) => {
            let number: u64 = raw.parse().ok()?;
            let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
            let unit = units
                .iter()
                .find(|(shift, _)| number >= 1 << shift && number.is_multiple_of(1 << shift));
            Some(unit.map_or_else(
                || raw.to_owned(),
                |(shift, unit)| format!("\"{} {unit}\"", number >> shift),
            ))
        }
        Kind::Value(Form::Number | Form::Flag, _) => Some(raw.to_owned()),
        Kind::List(_) | Kind::Table(..) | Kind::Map(_) => None,
    }
}
