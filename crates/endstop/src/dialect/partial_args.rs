//! Tool call arguments that are streamed as values at JSON paths, by Gemini and Vertex.
//!
//! Each piece has a path (`$.items[0].name`) and a value. A string that continues is marked, and
//! its next piece is appended. Nothing is guessed: a path that cannot be followed, or a string
//! whose end never came, leaves the arguments unfinished.
//!
//! Source: recorded streams of gemini-3 with streamed arguments; `google-genai` 3.1.0 `PartialArg`.

use serde_json::value::RawValue;

/// Maximum depth of a path.
const MAX_DEPTH: usize = 64;
/// Maximum size of the arguments of one call, and of all calls of one response, in bytes.
pub(crate) const MAX_BYTES: usize = 16 << 20;

/// Maximum number of pieces of one call. A string has one piece per token. Keys are searched
/// linearly, and this limits their number.
const MAX_PIECES: usize = 1 << 16;
/// Maximum number of keys of one object.
const MAX_KEYS: usize = 1 << 12;

/// Arguments of one call so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartialArgs {
    root: Node,
    /// Path of the string that continues.
    open: Option<String>,
    bytes: usize,
    pieces: usize,
    broken: bool,
}

/// One piece of the arguments.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) path: &'a str,
    pub(crate) value: Value<'a>,
    pub(crate) continues: bool,
}

impl Piece<'_> {
    /// Returns the number of bytes that the piece needs at most.
    pub(crate) fn size(&self) -> usize {
        let value = match self.value {
            Value::Text(text) => text.len(),
            Value::Raw(raw) => raw.get().len(),
            Value::Null | Value::Missing => 4,
        };
        value + self.path.len()
    }
}

/// Value of a piece.
#[derive(Debug)]
pub(crate) enum Value<'a> {
    Text(&'a str),
    /// A number or a boolean, as written.
    Raw(&'a RawValue),
    Null,
    /// No value, or one of an unknown type.
    Missing,
}

#[derive(Clone, Debug, Default)]
enum Node {
    #[default]
    Empty,
    Object(Vec<(String, Self)>),
    List(Vec<Self>),
    Text(String),
    Raw(String),
}

enum Step {
    Key(String),
    Index(usize),
}

impl PartialArgs {
    /// Adds a piece.
    pub(crate) fn push(&mut self, piece: &Piece<'_>) {
        if self.broken {
            return;
        }
        if self.put(piece).is_none() {
            return self.spoil();
        }
        self.open = piece.continues.then(|| piece.path.to_owned());
    }

    /// Drops the arguments, which can no longer become complete.
    pub(crate) fn spoil(&mut self) {
        *self = Self { broken: true, ..Self::default() };
    }

    fn put(&mut self, piece: &Piece<'_>) -> Option<()> {
        let steps = steps(piece.path)?;
        self.bytes += piece.size();
        self.pieces += 1;
        if self.bytes > MAX_BYTES || self.pieces > MAX_PIECES {
            return None;
        }
        let appends = self.open.as_deref() == Some(piece.path);
        if !appends && self.open.is_some() {
            return None;
        }
        let node = steps.iter().try_fold(&mut self.root, |node, step| node.at(step))?;
        match (&piece.value, &mut *node) {
            (Value::Text(text), Node::Text(known)) if appends => known.push_str(text),
            (Value::Text(text), Node::Empty) => *node = Node::Text((*text).to_owned()),
            (Value::Raw(raw), Node::Empty) => *node = Node::Raw(raw.get().to_owned()),
            (Value::Null, Node::Empty) => *node = Node::Raw("null".to_owned()),
            (Value::Text(_) | Value::Raw(_) | Value::Null | Value::Missing, _) => return None,
        }
        Some(())
    }

    /// Returns the arguments as JSON, or `None` if they are unfinished.
    pub(crate) fn finish(&self) -> Option<String> {
        if self.broken || self.open.is_some() || !matches!(self.root, Node::Object(_)) {
            return None;
        }
        let mut json = String::new();
        self.root.write(&mut json)?;
        crate::work::count(json.len());
        Some(json)
    }
}

impl Node {
    /// Returns the node at the next step. Creates it if it is missing.
    fn at(&mut self, step: &Step) -> Option<&mut Self> {
        match (step, self) {
            (Step::Key(key), node @ Self::Empty) => {
                *node = Self::Object(vec![(key.clone(), Self::Empty)]);
                node.last()
            }
            (Step::Index(0), node @ Self::Empty) => {
                *node = Self::List(vec![Self::Empty]);
                node.last()
            }
            (Step::Key(key), Self::Object(entries)) => {
                let known = entries.iter().position(|(known, _)| known == key);
                if known.is_none() && entries.len() < MAX_KEYS {
                    entries.push((key.clone(), Self::Empty));
                    return entries.last_mut().map(|(_, node)| node);
                }
                entries.get_mut(known?).map(|(_, node)| node)
            }
            (Step::Index(index), Self::List(nodes)) => {
                if *index == nodes.len() {
                    nodes.push(Self::Empty);
                }
                nodes.get_mut(*index)
            }
            (Step::Key(_), Self::List(_) | Self::Text(_) | Self::Raw(_))
            | (Step::Index(_), Self::Empty | Self::Object(_) | Self::Text(_) | Self::Raw(_)) => {
                None
            }
        }
    }

    fn last(&mut self) -> Option<&mut Self> {
        match self {
            Self::Object(entries) => entries.last_mut().map(|(_, node)| node),
            Self::List(nodes) => nodes.last_mut(),
            Self::Empty | Self::Text(_) | Self::Raw(_) => None,
        }
    }

    fn write(&self, json: &mut String) -> Option<()> {
        match self {
            Self::Empty => return None,
            Self::Raw(raw) => json.push_str(raw),
            Self::Text(text) => json.push_str(&serde_json::to_string(text).ok()?),
            Self::Object(entries) => {
                json.push('{');
                for (position, (key, node)) in entries.iter().enumerate() {
                    json.push_str(if position > 0 { "," } else { "" });
                    json.push_str(&serde_json::to_string(key).ok()?);
                    json.push(':');
                    node.write(json)?;
                }
                json.push('}');
            }
            Self::List(nodes) => {
                json.push('[');
                for (position, node) in nodes.iter().enumerate() {
                    json.push_str(if position > 0 { "," } else { "" });
                    node.write(json)?;
                }
                json.push(']');
            }
        }
        Some(())
    }
}

/// Returns the steps of a path, or `None` if its form is not like `$.key[0]['other key']`.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = if let Some(name) = rest.strip_prefix('.') {
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at_checked(end)?;
            (Step::Key(name.to_owned()), after)
        } else {
            bracket(rest.strip_prefix('[')?)?
        };
        if matches!(&step, Step::Key(key) if key.is_empty()) || steps.len() == MAX_DEPTH {
            return None;
        }
        steps.push(step);
        rest = after;
    }
    (!steps.is_empty()).then_some(steps)
}

/// Parses the text after `[`. Returns the step and the text after `]`.
fn bracket(text: &str) -> Option<(Step, &str)> {
    let quote = text.chars().next().filter(|quote| "'\"".contains(*quote));
    let Some(quote) = quote else {
        let (index, after) = text.split_once(']')?;
        return Some((Step::Index(index.parse().ok()?), after));
    };
    let mut key = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => key.push(chars.next()?.1),
            _ if char == quote => {
                let after = text.get(at + 1..)?.strip_prefix(']')?;
                return Some((Step::Key(key), after));
            }
            _ => key.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(pieces: &[(&str, &str, bool)]) -> Option<String> {
        let mut partial = PartialArgs::default();
        for (path, text, continues) in pieces {
            let raw: Option<&RawValue> = serde_json::from_str(text).ok();
            let value = match raw.map(RawValue::get) {
                Some(json) if json.starts_with('"') => Value::Text(json.trim_matches('"')),
                Some(_) => raw.map_or(Value::Missing, Value::Raw),
                None if *text == "null" => Value::Null,
                None => Value::Missing,
            };
            partial.push(&Piece { path, value, continues: *continues });
        }
        partial.finish()
    }

    #[test]
    fn pieces_are_put_where_their_paths_say() {
        let whole = assemble(&[
            ("$.operations[0].action", "\"a\"", true),
            ("$.operations[0].action", "\"dd\"", true),
            ("$.operations[0].action", "\"\"", false),
            ("$.operations[0].price", "0.5", false),
            ("$.operations[1].done", "true", false),
            ("$['odd key.x'][0][0]", "\"y\"", false),
            ("$[\"it's\"]", "1e3", false),
        ]);
        assert_eq!(
            whole.as_deref(),
            Some(
                r#"{"operations":[{"action":"add","price":0.5},{"done":true}],"odd key.x":[["y"]],"it's":1e3}"#
            )
        );
    }

    #[test]
    fn what_cannot_be_followed_is_unfinished() {
        for pieces in [
            &[][..],
            &[("$.a", "\"x\"", true)],
            &[("$.a", "\"x\"", true), ("$.b", "1", false)],
            &[("$.a[5]", "1", false)],
            &[("$.a[0]", "1", false), ("$.a[2]", "1", false)],
            &[("$.a", "1", false), ("$.a.b", "1", false)],
            &[("$.a", "1", false), ("$.a", "2", false)],
            &[("$.a", "\"x\"", false), ("$.a", "\"y\"", false)],
            &[("$.a", "nonsense", false)],
            &[("$", "1", false)],
            &[("a", "1", false)],
            &[("$..a", "1", false)],
            &[("$[*]", "1", false)],
            &[("$.a[", "1", false)],
            &[("$['a", "1", false)],
            &[("$[0]", "1", false)],
            &[("$[99999999999999999999]", "1", false)],
        ] {
            assert_eq!(assemble(pieces), None, "{pieces:?}");
        }
        let deep = format!("$.a{}", ".a".repeat(100));
        assert_eq!(assemble(&[(&deep, "1", false)]), None);
    }

    /// What was broken once is never whole again, whatever follows.
    #[test]
    fn broken_pieces_stay_broken() {
        let bad = ("no path", "1", false);
        assert_eq!(assemble(&[bad, ("$.a", "1", false)]), None);
        assert_eq!(assemble(&[("$.a", "1", false), bad, ("$.a", "1", false)]), None);
    }

    #[test]
    fn keys_in_brackets_are_unescaped() {
        let whole = assemble(&[("$['a\\'b']", "1", false)]);
        assert_eq!(whole.as_deref(), Some("{\"a'b\":1}"));
    }

    /// Pieces, their bytes and keys are bounded, at the bound and one beyond it.
    #[test]
    fn pieces_are_bounded() {
        let path = "$.a";
        let piece = |text| Piece { path, value: Value::Text(text), continues: true };
        let finish = |mut partial: PartialArgs| {
            partial.push(&Piece { path, value: Value::Text(""), continues: false });
            partial.finish().is_some()
        };
        let mut full = PartialArgs::default();
        // The last piece ends the text.
        (1..MAX_PIECES).for_each(|_| full.push(&piece("")));
        assert!(finish(full.clone()));
        full.push(&piece(""));
        assert!(!finish(full));
        let room = MAX_BYTES - 2 * path.len();
        for (length, fits) in [(room, true), (room + 1, false)] {
            let mut partial = PartialArgs::default();
            let text = "x".repeat(length);
            partial.push(&Piece { path, value: Value::Text(&text), continues: true });
            assert_eq!(finish(partial), fits, "{length}");
        }
        for (keys, fits) in [(MAX_KEYS, true), (MAX_KEYS + 1, false)] {
            let mut partial = PartialArgs::default();
            for key in 0..keys {
                let path = format!("$.{key}");
                partial.push(&Piece { path: &path, value: Value::Null, continues: false });
            }
            assert_eq!(partial.finish().is_some(), fits, "{keys}");
        }
    }
}
