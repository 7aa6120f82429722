//! Splits one JSON array that is streamed element by element.

use super::{Broken, Frame, Rest};
use crate::json::{JsonState, Scanner, integer_length, is_space, string_length};

/// Maximum number of templates learned in a row without a match.
const PATIENCE: u32 = 16;

/// Splits a streamed JSON array into its elements.
#[derive(Clone, Debug)]
pub struct Array {
    limit: usize,
    at: At,
    /// Beginning of an element whose end has not arrived yet.
    carry: Vec<u8>,
    /// Number of bytes of the last chunk up to the last complete element or the closing bracket.
    whole: usize,
    template: Template,
}

/// The last element that was scanned. In a stream, nearly every element equals the one before it
/// except for texts and numbers, so comparing the two finds its end faster than scanning.
#[derive(Clone, Debug, Default)]
struct Template {
    data: Vec<u8>,
    holes: Vec<Hole>,
    unused: u32,
}

/// The inside of a string, or an integer.
#[derive(Clone, Copy, Debug)]
struct Hole {
    start: usize,
    end: usize,
    is_string: bool,
}

impl Template {
    /// Returns the length of the element at the start of these bytes, if it is complete and differs
    /// from the template only in texts and integers.
    fn length(&mut self, bytes: &[u8]) -> Option<usize> {
        let (mut at, mut known) = (0, 0);
        let mut holes = self.holes.iter();
        loop {
            let (rest, template) = (bytes.get(at..)?, self.data.get(known..)?);
            let same = common(rest, template);
            (at, known) = (at + same, known + same);
            if known == self.data.len() {
                self.unused = 0;
                return (known > 0).then_some(at);
            }
            let hole = holes.find(|hole| hole.end >= known).filter(|hole| hole.start <= known)?;
            let start = at - (known - hole.start);
            let value = bytes.get(start..)?;
            let length =
                if hole.is_string { string_length(value)? } else { integer_length(value)? };
            (at, known) = (start + length, hole.end);
        }
    }

    /// Makes an element that was scanned the template.
    fn learn(&mut self, element: &[u8]) {
        if self.unused >= PATIENCE || !element.starts_with(b"{") {
            return;
        }
        self.unused += 1;
        self.data.clear();
        self.data.extend_from_slice(element);
        self.holes.clear();
        let mut at = 0;
        while let Some(byte) = element.get(at) {
            let is_string = *byte == b'"';
            let start = at + usize::from(is_string);
            let value = element.get(start..).unwrap_or_default();
            let length = if is_string { string_length(value) } else { integer_length(value) };
            match length {
                Some(length) => {
                    let end = start + length;
                    // A fraction or an exponent after an integer makes it another number.
                    let plain = is_string || self.is_integer(element, start, end);
                    if plain {
                        self.holes.push(Hole { start, end, is_string });
                    }
                    at = end + usize::from(is_string);
                }
                None => at += 1,
            }
        }
    }

    fn is_integer(&self, element: &[u8], start: usize, end: usize) -> bool {
        let before = start.checked_sub(1).and_then(|at| element.get(at));
        let after = element.get(end);
        let part = |byte: Option<&u8>| matches!(byte, Some(b'-' | b'+' | b'.' | b'e' | b'E'));
        !part(before) && !part(after)
    }
}

/// Returns the length of the common prefix.
fn common(one: &[u8], other: &[u8]) -> usize {
    let (blocks, _) = one.as_chunks::<16>();
    let (others, _) = other.as_chunks::<16>();
    let same = blocks.iter().zip(others).take_while(|(one, other)| one == other).count() * 16;
    let rest = |bytes: &'_ [u8]| bytes.get(same..).map_or(0, <[u8]>::len);
    let least = rest(one).min(rest(other)).min(16);
    let tail = (0..least).take_while(|at| one.get(same + at) == other.get(same + at)).count();
    same + tail
}

#[derive(Clone, Copy, Debug)]
enum At {
    Opening,
    Element,
    Inside(Scanner),
    After,
    Closed,
    Garbage,
}

impl Array {
    /// Creates a framer for elements of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, at: At::Opening, carry: Vec::new(), whole: 0, template: Template::default() }
    }

    /// Reports whether the closing bracket was read.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.at, At::Closed)
    }

    /// Disables the comparison with the last element, to compare against it.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn without_template(mut self) -> Self {
        self.template.unused = PATIENCE;
        self
    }

    /// Reads a chunk.
    ///
    /// # Errors
    /// Returns [`Broken::Oversize`] if an element is larger than the limit, and
    /// [`Broken::Corrupt`] if the bytes are not an array.
    pub fn push(&mut self, chunk: &[u8], mut sink: impl FnMut(Frame<'_>)) -> Result<(), Broken> {
        let mut rest = chunk;
        self.whole = 0;
        while !rest.is_empty() {
            if let At::Inside(scanner) = self.at {
                rest = self.read_element(rest, scanner, chunk.len(), &mut sink)?;
                continue;
            }
            let Some((&byte, after)) = rest.split_first() else { break };
            self.at = match (self.at, byte) {
                (at, byte) if is_space(byte) => at,
                (At::Opening, b'[') => At::Element,
                (At::After, b',') => At::Element,
                (At::Element | At::After, b']') => At::Closed,
                (At::Element, _) => {
                    let length = self.template.length(rest).filter(|length| *length <= self.limit);
                    if let Some((element, after)) =
                        length.and_then(|length| rest.split_at_checked(length))
                    {
                        self.at = At::After;
                        self.whole = chunk.len() - after.len();
                        sink(Frame { end: self.whole, ..Frame::event(element) });
                        rest = after;
                    } else {
                        self.at = At::Inside(Scanner::lenient());
                    }
                    continue;
                }
                // Another reader may find events after the list.
                (At::Opening | At::After | At::Inside(_) | At::Closed | At::Garbage, _) => {
                    self.at = At::Garbage;
                    return Err(Broken::Corrupt);
                }
            };
            rest = after;
            if self.is_closed() {
                self.whole = chunk.len() - rest.len();
            }
        }
        Ok(())
    }

    /// Returns the number of bytes of the last chunk up to the last complete element or the closing
    /// bracket.
    pub(crate) fn whole(&self) -> usize {
        self.whole
    }

    /// Ends the stream.
    #[must_use]
    pub fn finish(self) -> Rest {
        match self.at {
            At::Closed => Rest::Nothing,
            At::Opening | At::Element | At::Inside(_) | At::After | At::Garbage => Rest::CutFrame,
        }
    }

    fn read_element<'a>(
        &mut self,
        bytes: &'a [u8],
        mut scanner: Scanner,
        length: usize,
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<&'a [u8], Broken> {
        let read = scanner.push_until_end(bytes);
        let (piece, after) = bytes.split_at_checked(read).unwrap_or((bytes, &[]));
        if self.carry.len() + piece.len() > self.limit {
            return Err(Broken::Oversize);
        }
        if scanner.state() == JsonState::Broken {
            self.at = At::Garbage;
            return Err(Broken::Corrupt);
        }
        if !scanner.has_ended() {
            self.carry.extend_from_slice(piece);
            self.at = At::Inside(scanner);
            return Ok(after);
        }
        self.at = At::After;
        self.whole = length - after.len();
        let end = self.whole;
        if self.carry.is_empty() {
            self.template.learn(piece);
            sink(Frame { end, ..Frame::event(piece) });
        } else {
            self.carry.extend_from_slice(piece);
            sink(Frame { end, ..Frame::event(&self.carry) });
            self.carry.clear();
        }
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::testing::{Owned, cuttings};

    #[track_caller]
    fn check(bytes: &str, want: &[&str], rest: Rest) {
        let want: Vec<Owned> =
            want.iter().map(|data| Frame::event(data.as_bytes()).into()).collect();
        for cutting in cuttings(bytes.as_bytes()) {
            let mut frames = Vec::<Owned>::new();
            let mut array = Array::new(1 << 20);
            for chunk in &cutting {
                array.push(chunk, |frame| frames.push(frame.into())).unwrap();
            }
            assert_eq!(array.finish(), rest, "{cutting:?}");
            assert_eq!(frames, want, "{cutting:?}");
        }
    }

    #[test]
    fn elements_come_one_by_one() {
        check(
            "[{\"a\":[1,\"]\"]}\n,\r\n{\"b\":2}\n]\n",
            &["{\"a\":[1,\"]\"]}", "{\"b\":2}"],
            Rest::Nothing,
        );
        check(" [ ] ", &[], Rest::Nothing);
        // Found by fuzzing: a number ends only where something else begins.
        check("[77,8 ]", &["77", "8"], Rest::Nothing);
    }

    /// Elements that differ from the first in texts and numbers, and those that differ otherwise.
    #[test]
    fn elements_that_repeat_are_found_by_comparing() {
        let first = r#"{"k":"hello","n":12,"x":[1.5,{"a":"b"}],"e":-3}"#;
        let others = [
            r#"{"k":"","n":7,"x":[1.5,{"a":"b"}],"e":-3}"#,
            r#"{"k":"a\"}],","n":123456,"x":[1.5,{"a":"\u003cb"}],"e":-3}"#,
            r#"{"k":"helloween","n":1,"x":[1.5,{"a":"c"}],"e":-3}"#,
            r#"{"k":"hello\\","n":0,"x":[1.5,{"a":""}],"e":-3}"#,
            r#"{"k":"hell","n":12,"x":[1.25,{"a":"b"}],"e":-3}"#,
            r#"{"k":"hello","n":12.5,"x":[1.5,{"a":"b"}],"e":-34}"#,
            r#"{"k":"hello","n":12e3,"x":[]}"#,
            r#"{"k":"hello"}"#,
            // What lenient parsers accept.
            "{\"k\":\"a\nb\",\"n\":NaN}",
            r#"[1]"#,
        ];
        for other in others {
            let bytes = format!("[{first},{first}\n,\r\n{other},{other} ,{first}]");
            check(&bytes, &[first, first, other, other, first], Rest::Nothing);
        }
        for broken in
            ["[{\"k\":\"a\"},{\"k\":\"\\x\"}]", "[{\"k\":1},{\"k\":012}]", "[{\"k\":1},{\"k\":1}}]"]
        {
            let mut array = Array::new(1 << 20);
            assert_eq!(array.push(broken.as_bytes(), |_| ()), Err(Broken::Corrupt), "{broken}");
        }
        // The limit holds for elements that match the template, too.
        let mut array = Array::new(9);
        assert_eq!(array.push(b"[{\"k\":1},{\"k\":123456}]", |_| ()), Err(Broken::Oversize));
    }

    #[test]
    fn without_the_bracket_it_is_cut() {
        check("[{\"a\":1},{\"b\":2}", &["{\"a\":1}", "{\"b\":2}"], Rest::CutFrame);
        check("[{\"a\":1},{\"b\":", &["{\"a\":1}"], Rest::CutFrame);
    }

    #[test]
    fn other_bytes_are_corrupt_and_elements_are_bounded() {
        assert_eq!(Array::new(99).push(b"{\"a\":1}", |_| ()), Err(Broken::Corrupt));
        assert_eq!(Array::new(99).push(b"[1 2]", |_| ()), Err(Broken::Corrupt));
        assert_eq!(Array::new(9).push(b"[\"0123456789\"]", |_| ()), Err(Broken::Oversize));
    }
}
