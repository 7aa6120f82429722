//! Defaults of the configuration, from the form in which Rust shows it (`{:?}`).

use std::collections::BTreeMap;

/// Values of fields, by the names of the struct and the field.
#[derive(Default)]
pub(super) struct Defaults(BTreeMap<(String, String), String>);

impl Defaults {
    pub(super) fn new(shown: &str) -> Self {
        let mut defaults = Self::default();
        defaults.value(&mut Rest(shown));
        defaults
    }

    pub(super) fn get(&self, of: &str, field: &str) -> Option<&str> {
        self.0.get(&(of.to_owned(), field.to_owned())).map(String::as_str)
    }

    /// Reads a value, and returns its text; that of its content if it is in parentheses.
    fn value(&mut self, rest: &mut Rest<'_>) -> String {
        if rest.0.starts_with('"') {
            return rest.string();
        }
        if rest.0.starts_with(['[', '{']) {
            return self.list(rest);
        }
        let name = rest.until(&[',', '(', ')', '{', '}', '[', ']']).trim().to_owned();
        if rest.skip("(") {
            let mut inside = Vec::new();
            while !rest.skip(")") && !rest.0.is_empty() {
                inside.push(self.value(rest));
                rest.skip(", ");
            }
            return inside.join(", ");
        }
        if rest.skip("{ ") {
            while !rest.skip("}") && !rest.0.is_empty() {
                let field = rest.until(&[':', '}']).trim().to_owned();
                if rest.skip(": ") {
                    let value = self.value(rest);
                    self.0.entry((name.clone(), field)).or_insert(value);
                }
                let _ = rest.skip(", ") || rest.skip(" ");
            }
        }
        name
    }

    /// Reads the entries of a list or a map.
    fn list(&mut self, rest: &mut Rest<'_>) -> String {
        let (open, close) = if rest.0.starts_with('[') { ("[", "]") } else { ("{", "}") };
        rest.skip(open);
        while !rest.skip(close) && !rest.0.is_empty() {
            self.value(rest);
            let _ = rest.skip(", ") || rest.skip(": ");
        }
        "None".to_owned()
    }
}

/// Text that is not read yet.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn until(&mut self, ends: &[char]) -> &'a str {
        let (text, rest) = self.0.split_at(self.0.find(ends).unwrap_or(self.0.len()));
        self.0 = rest;
        text
    }

    fn string(&mut self) -> String {
        let mut escaped = false;
        let mut end = self.0.len();
        for (at, letter) in self.0.char_indices().skip(1) {
            match letter {
                '"' if !escaped => {
                    end = at + 1;
                    break;
                }
                '\\' => escaped = !escaped,
                _ => escaped = false,
            }
        }
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        text.to_owned()
    }
}
