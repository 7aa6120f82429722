//! One JSON array, streamed element by element.

use super::{Broken, Frame, Rest};
use crate::json::{JsonState, Scanner, is_space};

/// Cuts a streamed JSON array into its elements.
#[derive(Clone, Debug)]
pub struct Array {
    limit: usize,
    at: At,
    /// The beginning of an element whose end has not come yet.
    carry: Vec<u8>,
    /// How much of the last chunk ended in a whole element or the closing bracket.
    whole: usize,
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
    /// A framer that takes elements of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, at: At::Opening, carry: Vec::new(), whole: 0 }
    }

    /// Whether the closing bracket has come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.at, At::Closed)
    }

    /// Reads a chunk.
    ///
    /// # Errors
    /// [`Broken::Oversize`] if an element is larger than the limit, [`Broken::Corrupt`] if the
    /// bytes are no array.
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
                    self.at = At::Inside(Scanner::default());
                    continue;
                }
                (At::Closed, _) => At::Closed,
                (At::Opening | At::After | At::Inside(_) | At::Garbage, _) => {
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

    /// How much of the last chunk ended in a whole element or the closing bracket.
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

    #[test]
    fn without_the_bracket_it_is_cut() {
        check("[{\"a\":1},{\"b\":2}", &["{\"a\":1}", "{\"b\":2}"], Rest::CutFrame);
        check("[{\"a\":1},{\"b\":", &["{\"a\":1}"], Rest::CutFrame);
    }

    #[test]
    fn what_is_no_array_is_corrupt_and_elements_are_bounded() {
        assert_eq!(Array::new(99).push(b"{\"a\":1}", |_| ()), Err(Broken::Corrupt));
        assert_eq!(Array::new(99).push(b"[1 2]", |_| ()), Err(Broken::Corrupt));
        assert_eq!(Array::new(9).push(b"[\"0123456789\"]", |_| ()), Err(Broken::Oversize));
    }
}
