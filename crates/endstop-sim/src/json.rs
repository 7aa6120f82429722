//! JSON values that keep the order of keys as the providers write them.

use std::fmt;

/// JSON value to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(u64),
    Float(f64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
    /// Text written as it is: encoded JSON, or something invalid in its place.
    Raw(String),
}

/// Builds an object: `obj! { "key": value, … }`.
macro_rules! obj {
    ($($key:literal : $value:expr),* $(,)?) => {
        $crate::json::Json::Object(vec![
            $(($key.to_owned(), $crate::json::Json::from($value))),*
        ])
    };
}

/// Builds a list: `list![value, …]`.
macro_rules! list {
    ($($value:expr),* $(,)?) => {
        $crate::json::Json::List(vec![$($crate::json::Json::from($value)),*])
    };
}

pub(crate) use {list, obj};

impl Json {
    /// Sets a key of an object; a new key goes to the end.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Self>) {
        let Self::Object(pairs) = self else { return };
        let value = value.into();
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value,
            None => pairs.push((key.to_owned(), value)),
        }
    }

    /// Sets a key of an object, unless the value is null.
    pub(crate) fn set_some(&mut self, key: &str, value: Self) {
        if value != Self::Null {
            self.set(key, value);
        }
    }

    /// Returns the object with this key set.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Self>) -> Self {
        self.set(key, value);
        self
    }
}

impl fmt::Display for Json {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => out.write_str("null"),
            Self::Bool(value) => write!(out, "{value}"),
            Self::Number(value) => write!(out, "{value}"),
            Self::Float(value) => write!(out, "{value:?}"),
            Self::Text(text) => out.write_str(&quoted(text)),
            Self::Raw(text) => out.write_str(text),
            Self::List(items) => {
                out.write_str("[")?;
                for (at, item) in items.iter().enumerate() {
                    write!(out, "{}{item}", if at == 0 { "" } else { "," })?;
                }
                out.write_str("]")
            }
            Self::Object(pairs) => {
                out.write_str("{")?;
                for (at, (key, value)) in pairs.iter().enumerate() {
                    write!(out, "{}{}:{value}", if at == 0 { "" } else { "," }, quoted(key))?;
                }
                out.write_str("}")
            }
        }
    }
}

/// Returns the text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Json {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Number(value)
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Self {
        Self::Number(value as u64)
    }
}

impl From<u16> for Json {
    fn from(value: u16) -> Self {
        Self::Number(value.into())
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Vec<Self>> for Json {
    fn from(items: Vec<Self>) -> Self {
        Self::List(items)
    }
}

impl<T: Into<Self>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
