//! Newline-delimited JSON: one value per line.
//!
//! A value that spans several lines, as in pretty-printed errors, is joined.

use memchr::memchr;

use super::{Broken, Frame, Rest, is_whole_json, trim};
use crate::json::{JsonState, Scanner};

/// Splits newline-delimited JSON into frames.
#[derive(Clone, Debug)]
pub struct Lines {
    limit: usize,
    /// Beginning of an incomplete value.
    carry: Vec<u8>,
    /// Scanner of a value that spans several lines. It has read `scanned` bytes of `carry`.
    spread: Option<Scanner>,
    scanned: usize,
    /// Length of the part of the last chunk that ends with a complete value.
    whole: usize,
}

impl Lines {
    /// Creates a framer for values of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, carry: Vec::new(), spread: None, scanned: 0, whole: 0 }
    }

    /// Reads a chunk.
    ///
    /// # Errors
    /// Returns [`Broken::Oversize`] if a value is larger than the limit.
    pub fn push(&mut self, chunk: &[u8], mut sink: impl FnMut(Frame<'_>)) -> Result<(), Broken> {
        let mut rest = chunk;
        self.whole = 0;
        while let Some((line, after)) =
            memchr(b'\n', rest).and_then(|end| rest.split_at_checked(end + 1))
        {
            rest = after;
            let end = chunk.len() - rest.len();
            if self.carry.is_empty() {
                self.read(line, end, &mut sink)?;
            } else {
                self.carry.extend_from_slice(line);
                self.check_size(self.carry.len())?;
                self.read_carried(end, &mut sink)?;
            }
            if self.carry.is_empty() {
                self.whole = end;
            }
        }
        self.carry.extend_from_slice(rest);
        self.check_size(self.carry.len())
    }

    /// Returns the length of the part of the last chunk that ends with a complete value.
    pub(crate) fn whole(&self) -> usize {
        self.whole
    }

    /// Ends the stream.
    pub fn finish(self, mut sink: impl FnMut(Frame<'_>)) -> Rest {
        let last = trim(&self.carry);
        if last.is_empty() {
            return Rest::Nothing;
        }
        if !is_whole_json(last) {
            return Rest::CutFrame;
        }
        sink(Frame::event(last));
        Rest::Nothing
    }

    /// Reads a line that lies wholly in the chunk.
    fn read(
        &mut self,
        line: &[u8],
        end: usize,
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<(), Broken> {
        self.check_size(line.len())?;
        let value = trim(line);
        if value.is_empty() {
            return Ok(());
        }
        // Most lines begin and end like an object. Only the others need a scan.
        if !(value.starts_with(b"{") && value.ends_with(b"}")) {
            let mut scanner = Scanner::lenient();
            scanner.push(value);
            if scanner.state() == JsonState::Open {
                self.carry.extend_from_slice(line);
                self.scanned = self.carry.len();
                self.spread = Some(scanner);
                return Ok(());
            }
        }
        sink(Frame { end, ..Frame::event(value) });
        Ok(())
    }

    /// Reads the carried bytes after a line end.
    fn read_carried(&mut self, end: usize, sink: &mut impl FnMut(Frame<'_>)) -> Result<(), Broken> {
        let Some(mut scanner) = self.spread.take() else {
            let mut line = std::mem::take(&mut self.carry);
            self.read(&line, end, sink)?;
            if self.carry.is_empty() {
                line.clear();
                self.carry = line;
            }
            return Ok(());
        };
        scanner.push(self.carry.get(self.scanned..).unwrap_or_default());
        self.scanned = self.carry.len();
        if scanner.state() == JsonState::Open {
            self.spread = Some(scanner);
            return Ok(());
        }
        sink(Frame { end, ..Frame::event(trim(&self.carry)) });
        self.carry.clear();
        Ok(())
    }

    fn check_size(&self, size: usize) -> Result<(), Broken> {
        if size > self.limit { Err(Broken::Oversize) } else { Ok(()) }
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
            let mut lines = Lines::new(1 << 20);
            for chunk in &cutting {
                lines.push(chunk, |frame| frames.push(frame.into())).unwrap();
            }
            assert_eq!(lines.finish(|frame| frames.push(frame.into())), rest, "{cutting:?}");
            assert_eq!(frames, want, "{cutting:?}");
        }
    }

    #[test]
    fn a_value_a_line() {
        check("{\"a\":1}\n\r\n{\"b\":2}\r\n", &["{\"a\":1}", "{\"b\":2}"], Rest::Nothing);
    }

    #[test]
    fn a_value_over_several_lines_is_put_together() {
        check(
            "{\n  \"error\": \"x\"\n}\n{\"b\":2}\n",
            &["{\n  \"error\": \"x\"\n}", "{\"b\":2}"],
            Rest::Nothing,
        );
    }

    #[test]
    fn the_last_line_counts_only_if_it_is_whole() {
        check("{\"a\":1}\n{\"b\":2}", &["{\"a\":1}", "{\"b\":2}"], Rest::Nothing);
        check("{\"a\":1}\n{\"b\":", &["{\"a\":1}"], Rest::CutFrame);
    }

    #[test]
    fn values_are_bounded() {
        let mut lines = Lines::new(10);
        assert_eq!(lines.push(b"{\"a\":\"0123456789\"}\n", |_| ()), Err(Broken::Oversize));
        assert_eq!(Lines::new(10).push(b"{\"a\":\"0123456789", |_| ()), Err(Broken::Oversize));
    }
}
