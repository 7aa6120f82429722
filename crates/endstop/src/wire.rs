//! Field types for wire structs. They borrow if they can and accept any value.
//!
//! Providers send strings instead of numbers, and objects instead of strings. A struct of these
//! types fails only if the bytes are not JSON. A value of the wrong type becomes the default, and
//! the fields beside it are still read.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use crate::event::Word;
use crate::json::is_space;
use crate::text::{WORD_CAP, clean};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// Reports whether a value is null, false or empty, with or without white space inside.
pub(crate) fn is_nothing(raw: &RawValue) -> bool {
    let mut bytes = raw.get().bytes().filter(|byte| !is_space(*byte));
    let start: [u8; 6] = std::array::from_fn(|_| bytes.next().unwrap_or(0));
    matches!(&start, b"null\0\0" | b"false\0" | b"{}\0\0\0\0" | b"[]\0\0\0\0" | b"\"\"\0\0\0\0")
}

/// Returns the default for kinds of values that a visitor does not use.
macro_rules! nothing_for {
    ($lifetime:lifetime: $($method:ident),*) => {
        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("any value")
        }
        $(nothing_for!(@ $lifetime $method);)*
    };
    (@ $l:lifetime unit) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ $l:lifetime bool) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ $l:lifetime number) => {
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok(Default::default()) }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok(Default::default()) }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ $l:lifetime str) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ $l:lifetime seq) => {
        fn visit_seq<A: SeqAccess<$l>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Default::default())
        }
    };
    (@ $l:lifetime map) => {
        fn visit_map<A: MapAccess<$l>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Default::default())
        }
    };
}

/// A string, borrowed unless it has escapes; empty if the value is not a string.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Text<'de>;
            nothing_for!('de: unit, bool, number, seq, map);
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A piece of the arguments of a tool call. It records whether the value was not a string.
#[derive(Clone, Debug, Default)]
pub(crate) struct Argument<'a> {
    pub(crate) text: Text<'a>,
    /// Whether the value was not a string.
    pub(crate) odd: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Argument<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visit {
            fn odd<'a, E>() -> Result<Argument<'a>, E> {
                Ok(Argument { text: Text::default(), odd: true })
            }
        }
        impl<'de> Visitor<'de> for Visit {
            type Value = Argument<'de>;
            nothing_for!('de: unit);
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Argument<'de>, E> {
                Ok(Argument { text: Text(Cow::Borrowed(text)), odd: false })
            }
            fn visit_str<E>(self, text: &str) -> Result<Argument<'de>, E> {
                Ok(Argument { text: Text(Cow::Owned(text.to_owned())), odd: false })
            }
            fn visit_bool<E>(self, _: bool) -> Result<Argument<'de>, E> {
                Self::odd()
            }
            fn visit_i64<E>(self, _: i64) -> Result<Argument<'de>, E> {
                Self::odd()
            }
            fn visit_u64<E>(self, _: u64) -> Result<Argument<'de>, E> {
                Self::odd()
            }
            fn visit_f64<E>(self, _: f64) -> Result<Argument<'de>, E> {
                Self::odd()
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Argument<'de>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Self::odd()
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Argument<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Self::odd()
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A finish reason or a code. Null and false count as absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scalar<'a>(pub(crate) Option<Word<'a>>);

impl<'a> Scalar<'a> {
    /// Returns the value as text, for messages and lookups.
    pub(crate) fn to_text(&self) -> Option<Cow<'_, str>> {
        self.0.as_ref().map(Word::to_text)
    }

    /// Returns the value, unless it is the empty string or the string `null`.
    pub(crate) fn said(&self) -> Option<&Word<'a>> {
        self.0
            .as_ref()
            .filter(|word| !matches!(word, Word::Text(text) if text.is_empty() || text == "null"))
    }
}

impl Scalar<'_> {
    /// Returns the value as cleaned text, unless it is empty.
    pub(crate) fn kept(&self) -> Option<String> {
        self.to_text().filter(|text| !text.is_empty()).map(|text| clean(&text, WORD_CAP))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Scalar<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Scalar<'de>;
            nothing_for!('de: unit);
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Scalar<'de>, E> {
                Ok(Scalar(Some(Word::Text(Cow::Borrowed(text)))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar<'de>, E> {
                Ok(Scalar(Some(Word::Text(Cow::Owned(text.to_owned())))))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Scalar<'de>, E> {
                Ok(Scalar(value.then_some(Word::Odd("true"))))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Scalar<'de>, E> {
                Ok(Scalar(Some(Word::Number(number))))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Scalar<'de>, E> {
                let number = i64::try_from(number).map_or(Word::Odd("number"), Word::Number);
                Ok(Scalar(Some(number)))
            }
            fn visit_f64<E>(self, _: f64) -> Result<Scalar<'de>, E> {
                Ok(Scalar(Some(Word::Odd("number"))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar(Some(Word::Odd("array"))))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar(Some(Word::Odd("object"))))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A token count or an index; `None` if the value is not such a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl Count {
    /// Returns the index. Zero if absent, since some wires omit it for a single item.
    pub(crate) fn index(self) -> u32 {
        self.0.map_or(0, |number| u32::try_from(number).unwrap_or(u32::MAX))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Count;
            nothing_for!('de: unit, bool, str, seq, map);
            fn visit_u64<E>(self, number: u64) -> Result<Count, E> {
                Ok(Count(Some(number)))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Count, E> {
                Ok(Count(u64::try_from(number).ok()))
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "Cohere counts tokens in floats; the cast saturates"
            )]
            fn visit_f64<E>(self, number: f64) -> Result<Count, E> {
                Ok(Count((number >= 0.0).then_some(number as u64)))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// The number of an item in a list. It records whether the value was another number: clients would
/// tell such items apart, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) count: Count,
    /// Whether the number is negative, not whole or too large.
    pub(crate) odd: bool,
}

impl Place {
    /// Stands for -1, which some hosts send for a single call.
    const MINUS_ONE: u64 = u32::MAX as u64 - 1;
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Place;
            nothing_for!('de: unit, bool, str, seq, map);
            fn visit_u64<E>(self, number: u64) -> Result<Place, E> {
                let odd = number >= Place::MINUS_ONE;
                Ok(Place { count: Count(Some(number)), odd })
            }
            fn visit_i64<E>(self, number: i64) -> Result<Place, E> {
                let minus_one = (number == -1).then_some(Place::MINUS_ONE);
                let count = Count(u64::try_from(number).ok().or(minus_one));
                Ok(Place { count, odd: count.0.is_none() })
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a number that is cast to another one is marked as odd"
            )]
            fn visit_f64<E>(self, number: f64) -> Result<Place, E> {
                let whole = number as u32;
                let odd = f64::from(whole) != number || u64::from(whole) >= Place::MINUS_ONE;
                Ok(Place { count: Count(Some(whole.into())), odd })
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A number that is kept unchanged; `None` if the value is not a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure(pub(crate) Option<Number>);

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Measure;
            nothing_for!('de: unit, bool, str, seq, map);
            fn visit_u64<E>(self, number: u64) -> Result<Measure, E> {
                Ok(Measure(Some(number.into())))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Measure, E> {
                Ok(Measure(Some(number.into())))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Measure, E> {
                Ok(Measure(Number::from_f64(number)))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// A flag that is set only by `true`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flag(pub(crate) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Flag;
            nothing_for!('de: unit, number, str, seq, map);
            fn visit_bool<E>(self, value: bool) -> Result<Flag, E> {
                Ok(Flag(value))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// Whether the key is present, even with a null value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Present(pub(crate) bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(true))
    }
}

/// Maximum number of values in a list. An event with a longer list is malformed.
const MAX_FEW: usize = 1 << 14;

/// A list that does not allocate for a single element, which is the usual case.
#[derive(Clone, Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
    /// Whether the value was a list, possibly empty.
    pub(crate) present: bool,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, rest: Vec::new(), present: false }
    }
}

impl<T> Few<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }

    /// Returns the values with their own numbers, or with their positions if the numbers are not
    /// distinct.
    pub(crate) fn numbered<'s>(
        &'s self,
        number: impl Fn(&T) -> Count + 's,
    ) -> impl Iterator<Item = (u32, &'s T)> {
        let by_place = !self.rest.is_empty() && {
            let fits = |value: &T| number(value).0.and_then(|number| u32::try_from(number).ok());
            let own: BTreeSet<u32> = self.iter().filter_map(fits).collect();
            own.len() <= self.rest.len()
        };
        (0..).zip(self.iter()).map(move |(place, value)| {
            (if by_place { place } else { number(value).index() }, value)
        })
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = Few<T>;
            nothing_for!('de: unit, bool, number, str, map);
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few<T>, A::Error> {
                let first = seq.next_element()?;
                let mut rest = Vec::new();
                while let Some(next) = seq.next_element()? {
                    if rest.len() >= MAX_FEW {
                        return Err(A::Error::custom("a list has too many values"));
                    }
                    rest.push(next);
                }
                Ok(Few { first, rest, present: true })
            }
        }
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

/// A list of which some hosts send a single value without the list.
#[derive(Clone, Debug)]
pub(crate) struct Listed<T> {
    list: Few<T>,
    /// Whether the value was neither a list nor an object, nor empty.
    pub(crate) odd: bool,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { list: Few::default(), odd: false }
    }
}

impl<T> std::ops::Deref for Listed<T> {
    type Target = Few<T>;

    fn deref(&self) -> &Few<T> {
        &self.list
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Listed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<T> Visit<T> {
            fn odd<E>(odd: bool) -> Result<Listed<T>, E> {
                Ok(Listed { odd, ..Listed::default() })
            }
        }
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = Listed<T>;
            nothing_for!('de: unit);
            fn visit_bool<E>(self, value: bool) -> Result<Listed<T>, E> {
                Self::odd(value)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Listed<T>, E> {
                Self::odd(true)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Listed<T>, E> {
                Self::odd(true)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Listed<T>, E> {
                Self::odd(true)
            }
            fn visit_str<E>(self, text: &str) -> Result<Listed<T>, E> {
                Self::odd(!text.is_empty())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Listed<T>, A::Error> {
                let list = Few::deserialize(serde::de::value::SeqAccessDeserializer::new(seq))?;
                Ok(Listed { list, odd: false })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Listed<T>, A::Error> {
                let first = Some(T::deserialize(MapAccessDeserializer::new(map))?);
                Ok(Listed { list: Few { first, rest: Vec::new(), present: true }, odd: false })
            }
        }
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

/// A struct, or its default if the value is not an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loose<T>(pub(crate) T);

impl<T> std::ops::Deref for Loose<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Loose<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Visit<T> {
            type Value = Loose<T>;
            nothing_for!('de: unit, bool, number, str, seq);
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loose<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Loose)
            }
        }
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

/// A string or a list of parts, since wires use both for content.
#[derive(Clone, Debug)]
pub(crate) enum Content<'a, T> {
    Text(Text<'a>),
    Parts(Few<T>),
}

impl<T> Default for Content<'_, T> {
    fn default() -> Self {
        Self::Text(Text::default())
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Content<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = Content<'de, T>;
            nothing_for!('de: unit, bool, number);
            // Some hosts send structured output as an object.
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content<'de, T>, A::Error> {
                let object = Value::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Content::Text(Text(Cow::Owned(object.to_string()))))
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Content<'de, T>, E> {
                Ok(Content::Text(Text(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Content<'de, T>, E> {
                Ok(Content::Text(Text(Cow::Owned(text.to_owned()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Content<'de, T>, A::Error> {
                let parts = serde::de::value::SeqAccessDeserializer::new(seq);
                Few::deserialize(parts).map(Content::Parts)
            }
        }
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Default, Debug)]
    #[serde(default)]
    struct Every<'a> {
        #[serde(borrow)]
        text: Text<'a>,
        #[serde(borrow)]
        scalar: Scalar<'a>,
        count: Count,
        measure: Measure,
        flag: Flag,
        few: Few<Count>,
        loose: Loose<Inner>,
        #[serde(borrow)]
        content: Content<'a, Count>,
        last: Count,
    }

    #[derive(Deserialize, Default, Debug, Clone)]
    #[serde(default)]
    struct Inner {
        x: Count,
    }

    #[test]
    fn no_kind_of_value_hides_its_neighbours() {
        for value in [
            "null",
            "true",
            "-1",
            "1.5",
            "18446744073709551615",
            "\"a\\n\"",
            "\"b\"",
            "[]",
            "[1,[2]]",
            "{}",
            "{\"x\":{\"y\":1}}",
        ] {
            let json = format!(
                r#"{{"text":{value},"scalar":{value},"count":{value},"measure":{value},"flag":{value},"few":{value},"loose":{value},"content":{value},"unknown":{value},"last":7}}"#
            );
            let every: Every<'_> = serde_json::from_str(&json).unwrap();
            assert_eq!(every.last, Count(Some(7)), "{json}");
        }
    }

    #[test]
    fn right_values_are_read() {
        let json = r#"{"text":"t","scalar":"s","count":3.0,"flag":true,"few":[1,2],"loose":{"x":5},"content":[9]}"#;
        let every: Every<'_> = serde_json::from_str(json).unwrap();
        assert_eq!((&*every.text, every.count, every.flag.0), ("t", Count(Some(3)), true));
        assert!(matches!(every.text.0, Cow::Borrowed(_)));
        assert_eq!(every.scalar, Scalar(Some(Word::Text("s".into()))));
        assert_eq!(every.few.iter().count(), 2);
        assert_eq!(every.loose.x, Count(Some(5)));
        assert!(matches!(every.content, Content::Parts(parts) if parts.first().is_some()));
    }
}
