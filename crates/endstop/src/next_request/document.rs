//! JSON text that is edited in place. Bytes that an edit does not concern stay unchanged.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::Text;

/// Position of a value in the text.
pub(super) type Span = Range<usize>;

/// A JSON object as text.
#[derive(Clone, Debug)]
pub(super) struct Document {
    text: String,
    /// Whether `camelCase` names match `snake_case` names too.
    either_case: bool,
}

impl Document {
    /// Takes the text of a JSON object. Returns `None` for any other text.
    pub(super) fn new(text: &str, either_case: bool) -> Option<Self> {
        let whole: &RawValue = serde_json::from_str(text).ok()?;
        whole.get().starts_with('{').then(|| Self { text: whole.get().to_owned(), either_case })
    }

    /// Returns the edited text.
    pub(super) fn finish(self) -> Option<Box<RawValue>> {
        RawValue::from_string(self.text).ok()
    }

    fn root(&self) -> Span {
        0..self.text.len()
    }

    /// Returns the text of a value.
    pub(super) fn raw(&self, span: &Span) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// Returns a value; null if it cannot be parsed.
    pub(super) fn value(&self, span: &Span) -> Value {
        serde_json::from_str(self.raw(span)).unwrap_or_default()
    }

    /// Finds the value at a path of names separated by dots.
    pub(super) fn find(&self, path: &str) -> Option<Span> {
        path.split('.').try_fold(self.root(), |span, name| self.member(&span, name))
    }

    /// Finds a member of an object. If a name occurs several times, the last one applies.
    pub(super) fn member(&self, object: &Span, name: &str) -> Option<Span> {
        let members = self.members(object);
        let name = self.spelled(&members, name);
        members.into_iter().rev().find(|(key, _)| *key == *name).map(|(_, span)| span)
    }

    fn members(&self, object: &Span) -> Vec<(String, Span)> {
        let Members(members) = serde_json::from_str(self.raw(object)).unwrap_or_default();
        let span = |value: &RawValue| self.span_of(value);
        members.into_iter().map(|(Text(key), value)| (key.into_owned(), span(value))).collect()
    }

    /// Returns the elements of a list, or `None` if the value is not a list.
    pub(super) fn items(&self, list: &Span) -> Option<Vec<Span>> {
        let items: Vec<&RawValue> = serde_json::from_str(self.raw(list)).ok()?;
        Some(items.into_iter().map(|item| self.span_of(item)).collect())
    }

    /// Returns the position of a value that was borrowed from the text.
    fn span_of(&self, value: &RawValue) -> Span {
        let start = value.get().as_ptr().addr().saturating_sub(self.text.as_ptr().addr());
        start..start + value.get().len()
    }

    /// Returns the spelling of the name in this object.
    fn spelled<'n>(&self, members: &[(String, Span)], name: &'n str) -> Cow<'n, str> {
        let has = |name: &str| members.iter().any(|(key, _)| key == name);
        if !self.either_case || has(name) {
            return Cow::Borrowed(name);
        }
        let snake = name.chars().fold(String::new(), |mut snake, letter| {
            if letter.is_ascii_uppercase() {
                snake.push('_');
            }
            snake.push(letter.to_ascii_lowercase());
            snake
        });
        if has(&snake) { Cow::Owned(snake) } else { Cow::Borrowed(name) }
    }

    /// Sets the value at a path, and creates the objects on the path. Returns `None` if a value of
    /// another type is in the way.
    pub(super) fn put(&mut self, path: &str, json: &str) -> Option<()> {
        self.put_in(&self.root(), path, json)
    }

    /// Sets the value at a path below this object.
    pub(super) fn put_in(&mut self, object: &Span, path: &str, json: &str) -> Option<()> {
        if self.raw(object) == "null" {
            self.replace(object, &nested(path, json));
            return Some(());
        }
        if !self.raw(object).starts_with('{') {
            return None;
        }
        let (name, rest) =
            path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        match (self.member(object, name), rest) {
            (Some(span), Some(rest)) => return self.put_in(&span, rest, json),
            (Some(span), None) => self.replace(&span, json),
            (None, rest) => {
                let value = rest.map_or_else(|| json.to_owned(), |rest| nested(rest, json));
                let last = self.members(object).pop().map(|(_, span)| span);
                self.insert(object, last, &format!("{}:{value}", quoted(name)));
            }
        }
        Some(())
    }

    /// Removes a member of the outermost object, each time that it occurs and in either spelling.
    pub(super) fn remove(&mut self, name: &str) {
        loop {
            let members = self.members(&self.root());
            let name = self.spelled(&members, name);
            let Some(at) = members.iter().rposition(|(key, _)| *key == *name) else { return };
            let spans: Vec<Span> = members.into_iter().map(|(_, span)| span).collect();
            self.cut(&self.root(), &spans, at);
        }
    }

    /// Appends a value to a list.
    pub(super) fn push(&mut self, list: &Span, json: &str) {
        let last = self.items(list).and_then(|items| items.last().cloned());
        self.insert(list, last, json);
    }

    /// Removes the last element of a list.
    pub(super) fn pop(&mut self, list: &Span) {
        if let Some(items) = self.items(list)
            && let Some(last) = items.len().checked_sub(1)
        {
            self.cut(list, &items, last);
        }
    }

    /// Appends to a string. Returns `None` if the value is not a string.
    pub(super) fn append(&mut self, text: &Span, more: &str) -> Option<()> {
        let raw = self.raw(text);
        let open = raw.strip_suffix('"').filter(|_| raw.starts_with('"'))?;
        let added = quoted(more);
        let joined = format!("{open}{}", added.strip_prefix('"').unwrap_or_default());
        self.replace(text, &joined);
        Some(())
    }

    /// Replaces a value.
    pub(super) fn replace(&mut self, span: &Span, json: &str) {
        self.text.replace_range(span.clone(), json);
    }

    /// Inserts after the last element, else after the opening bracket.
    fn insert(&mut self, container: &Span, last: Option<Span>, json: &str) {
        match last {
            Some(last) => self.text.insert_str(last.end, &format!(",{json}")),
            None => self.text.insert_str(container.start + 1, json),
        }
    }

    /// Removes one of the elements, with its comma.
    fn cut(&mut self, container: &Span, elements: &[Span], at: usize) {
        let end_of = |index: Option<usize>| index.and_then(|index| elements.get(index));
        let before = end_of(at.checked_sub(1)).map(|span| span.end);
        let Some(end) = end_of(Some(at)).map(|span| span.end) else { return };
        let (start, end) = match before {
            Some(before) => (before, end),
            None => {
                let comma = self.text.get(end..).and_then(|rest| rest.find(','));
                let more = elements.len() > 1;
                (container.start + 1, end + comma.filter(|_| more).map_or(0, |comma| comma + 1))
            }
        };
        self.text.replace_range(start..end, "");
    }
}

/// Members of an object, in order.
#[derive(Default)]
struct Members<'a>(Vec<(Text<'a>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

/// Returns a string as JSON.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns the nested objects of a path, with the value in the innermost.
fn nested(path: &str, json: &str) -> String {
    path.rsplit('.').fold(json.to_owned(), |inner, name| format!("{{{}:{inner}}}", quoted(name)))
}

/// Builds an object from these bytes, applies random edits to it, and checks each of them: the text
/// stays JSON, and members of other names keep their bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(data: &[u8]) {
    const NAMES: [&str; 4] = ["a", "b", "oneName", "c"];
    let mut bytes = data.iter();
    let mut roll = || bytes.next().map_or(0, |byte| usize::from(*byte));
    let either_case = roll() % 2 == 0;
    let Some(mut document) = Document::new(&random_object(&mut roll, 0), either_case) else {
        return;
    };
    for _ in 0..6 {
        let name = NAMES.get(roll() % NAMES.len()).copied().unwrap_or_default();
        let json = random_value(&mut roll, 1);
        let members = |document: &Document| {
            let members = document.members(&document.root()).into_iter();
            let others = members.filter(|(key, _)| *key != name && key.replace("_n", "N") != name);
            others.map(|(key, span)| (key, document.raw(&span).to_owned())).collect::<Vec<_>>()
        };
        let (before, text) = (members(&document), document.text.clone());
        let found = document.find(name);
        let set = |document: &mut Document, path: &str| {
            if document.put(path, &json).is_some() {
                let span = document.find(path);
                assert_eq!(span.map(|span| document.raw(&span).to_owned()), Some(json.clone()));
            } else {
                assert_eq!(document.text, text);
            }
        };
        match (roll() % 6, found) {
            (0, _) => set(&mut document, name),
            (1, _) => {
                document.remove(name);
                assert_eq!(document.find(name), None);
            }
            (2, _) => set(&mut document, &format!("{name}.x")),
            (3, Some(list)) if document.items(&list).is_some() => document.push(&list, &json),
            (4, Some(list)) => document.pop(&list),
            (_, Some(text)) => drop(document.append(&text, "\"é\n")),
            (_, None) => {}
        }
        assert_eq!(members(&document), before, "{text}");
        let parsed = serde_json::from_str::<Value>(&document.text);
        assert!(parsed.is_ok(), "{text} became {}", document.text);
    }
}

#[cfg(any(test, fuzzing))]
fn random_object(roll: &mut impl FnMut() -> usize, depth: usize) -> String {
    let keys = [r#""a""#, r#""b""#, r#""oneName""#, r#""one_name""#, r#""\u0061""#, r#""x""#];
    let spaces = ["", " ", "\n\t"];
    let space = |roll: usize| spaces.get(roll % spaces.len()).copied().unwrap_or_default();
    let members = (0..roll() % 5).map(|_| {
        let key = keys.get(roll() % keys.len()).copied().unwrap_or(r#""a""#);
        let (before, after) = (space(roll()), space(roll()));
        format!("{before}{key}{after}:{before}{}{after}", random_value(roll, depth + 1))
    });
    let members = members.collect::<Vec<_>>().join(",");
    format!("{{{members}}}")
}

#[cfg(any(test, fuzzing))]
fn random_value(roll: &mut impl FnMut() -> usize, depth: usize) -> String {
    let plain = ["null", "-1.50e3", r#""\u0041 é,]}""#, "[ ]", "{ }", "\"\"", "0"];
    match roll() % 10 {
        7 if depth < 3 => random_object(roll, depth),
        8 if depth < 3 => {
            let items: Vec<String> =
                (0..roll() % 4).map(|_| random_value(roll, depth + 1)).collect();
            format!("[ {}]", items.join(" ,"))
        }
        other => plain.get(other % plain.len()).copied().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document::new(text, true).unwrap()
    }

    #[track_caller]
    fn check(text: &str, edit: impl FnOnce(&mut Document), want: &str) {
        let mut document = document(text);
        edit(&mut document);
        assert_eq!(document.finish().unwrap().get(), want);
    }

    #[test]
    fn what_is_not_concerned_stays_to_the_byte() {
        let text = "{ \"z\" : 1.50, \"a\":{\"k\":\"\\u0041\"} ,\"z\":1e3 }";
        check(text, |_| {}, text);
        check(text, |it| it.put("z", "2").unwrap(), &text.replace("1e3", "2"));
        check(text, |it| it.put("n", "[]").unwrap(), &text.replace("1e3", "1e3,\"n\":[]"));
        check(text, |it| it.put("a.k", "0").unwrap(), &text.replace("\"\\u0041\"", "0"));
        let deep = text.replace("\"\\u0041\"}", "\"\\u0041\",\"x\":{\"y\":0}}");
        check(text, |it| it.put("a.x.y", "0").unwrap(), &deep);
        assert!(document(text).put("z.b", "0").is_none());
        check("{}", |it| it.put("a.b", "0").unwrap(), "{\"a\":{\"b\":0}}");
        check("{\"a\":null}", |it| it.put("a.b", "0").unwrap(), "{\"a\":{\"b\":0}}");
    }

    #[test]
    fn names_are_found_in_either_case() {
        let text = "{\"generation_config\":{}}";
        let want = "{\"generation_config\":{\"topK\":1}}";
        check(text, |it| it.put("generationConfig.topK", "1").unwrap(), want);
        let mut strict = Document::new(text, false).unwrap();
        assert!(strict.find("generationConfig").is_none());
        strict.put("generationConfig", "1").unwrap();
        assert_eq!(strict.raw(&strict.root()), "{\"generation_config\":{},\"generationConfig\":1}");
    }

    #[test]
    fn lists_grow_and_shrink_at_their_end() {
        let list = |it: &Document| it.find("l").unwrap();
        check("{\"l\":[ ]}", |it| it.push(&list(it), "1"), "{\"l\":[1 ]}");
        check("{\"l\":[1 ]}", |it| it.push(&list(it), "2"), "{\"l\":[1,2 ]}");
        check("{\"l\":[1, 2 ]}", |it| it.pop(&list(it)), "{\"l\":[1 ]}");
        check("{\"l\":[1 ]}", |it| it.pop(&list(it)), "{\"l\":[ ]}");
        check("{\"l\":[]}", |it| it.pop(&list(it)), "{\"l\":[]}");
    }

    #[test]
    fn members_go_with_their_comma() {
        check("{\"a\":1,\"b\":2}", |it| it.remove("a"), "{\"b\":2}");
        check("{\"a\":1,\"b\":2}", |it| it.remove("b"), "{\"a\":1}");
        check("{\"a\":1}", |it| it.remove("a"), "{}");
        check("{\"a\":1}", |it| it.remove("c"), "{\"a\":1}");
        check("{\"a\":1,\"b\":2,\"a\":3}", |it| it.remove("a"), "{\"b\":2}");
        let both = "{\"tool_config\":1,\"b\":2,\"toolConfig\":3,\"tool_config\":4}";
        check(both, |it| it.remove("toolConfig"), "{\"b\":2}");
    }

    #[test]
    fn texts_grow() {
        let text = "{\"t\":\"\\u00e9\"}";
        check(
            text,
            |it| it.append(&it.find("t").unwrap(), "\"\n").unwrap(),
            "{\"t\":\"\\u00e9\\\"\\n\"}",
        );
        let mut number = document("{\"t\":1}");
        assert!(number.append(&number.find("t").unwrap(), "x").is_none());
    }

    #[test]
    fn only_objects_are_taken() {
        for text in ["", "[1]", "null", "{\"a\":", "{\"a\":1}}"] {
            assert!(Document::new(text, false).is_none(), "{text}");
        }
        check(" {\"a\":1}\n", |_| {}, "{\"a\":1}");
    }
}
