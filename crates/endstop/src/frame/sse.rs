//! Server-sent events, by the HTML standard and as providers send them.
//!
//! Lines end in LF, CR or CRLF, in any mixture. A byte-order mark may come first, and `data` may
//! span several lines. The framer goes beyond the standard in two ways. Bare JSON between events
//! becomes an event, since Google sends errors that way. If the bytes end inside an event, the
//! event counts if its data is complete; otherwise [`Rest::CutFrame`] reports it.

use memchr::memchr2;

use super::{Broken, Frame, FrameKind, Rest, is_bracketed_word, is_whole_json};
use crate::json::{JsonState, Scanner};

/// Splits a stream of server-sent events into frames.
#[derive(Clone, Debug)]
pub struct Sse {
    limit: usize,
    /// Whether the last byte was a CR, so that a following LF belongs to the same line end.
    after_cr: bool,
    /// Whether a line was read, so that no byte-order mark can follow.
    started: bool,
    /// Length of the part of the last chunk before anything unfinished.
    whole: usize,
    /// Beginning of an incomplete line.
    line: Vec<u8>,
    /// Part of the current event from earlier chunks or lines.
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Scanner of bare JSON, whose lines are collected in `data`.
    bare: Option<Scanner>,
}

/// Part of the current event that lies in the current chunk.
#[derive(Default)]
struct Borrowed<'a> {
    name: Option<&'a [u8]>,
    data: Option<&'a [u8]>,
}

impl Borrowed<'_> {
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.data.is_none()
    }
}

impl Sse {
    /// Creates a framer for events of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            after_cr: false,
            started: false,
            whole: 0,
            line: Vec::new(),
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            bare: None,
        }
    }

    /// Reads a chunk.
    ///
    /// # Errors
    /// Returns [`Broken::Oversize`] if an event is larger than the limit, complete or not.
    pub fn push(&mut self, chunk: &[u8], mut sink: impl FnMut(Frame<'_>)) -> Result<(), Broken> {
        let mut rest = chunk;
        self.whole = 0;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        if !self.line.is_empty() {
            rest = self.finish_carried_line(rest, chunk.len(), &mut sink)?;
            if rest.is_empty() {
                return Ok(());
            }
        }
        if self.is_between_events() {
            rest = self.read_plain_events(rest, chunk.len(), &mut sink)?;
            self.whole = chunk.len() - rest.len();
        }
        let mut event = Borrowed::default();
        while let Some((line, after)) = self.split_line(rest) {
            rest = after;
            let end = chunk.len() - rest.len();
            self.read_line(line, end, &mut event, &mut sink)?;
            if event.is_empty() && self.is_between_events() {
                self.whole = end;
            }
        }
        self.line.extend_from_slice(rest);
        self.keep(event);
        self.check_size(self.line.len() + self.data.len())
    }

    /// Returns the length of the part of the last chunk before anything unfinished.
    pub(crate) fn whole(&self) -> usize {
        self.whole
    }

    /// Ends the stream.
    pub fn finish(mut self, mut sink: impl FnMut(Frame<'_>)) -> Rest {
        let line = std::mem::take(&mut self.line);
        let known_line = line.is_empty() || is_field(&line) || is_bare_start(&line);
        let mut event = Borrowed::default();
        if !line.is_empty() && self.read_line(&line, 0, &mut event, &mut sink).is_err() {
            return Rest::CutFrame;
        }
        self.keep(event);
        if self.has_data && (is_whole_json(&self.data) || is_bracketed_word(&self.data)) {
            self.dispatch_kept(0, &mut sink);
            return Rest::Nothing;
        }
        let pending = self.has_data || !self.name.is_empty() || self.bare.is_some();
        if pending || !known_line { Rest::CutFrame } else { Rest::Nothing }
    }

    fn is_between_events(&self) -> bool {
        self.started && !self.has_data && self.name.is_empty() && self.bare.is_none()
    }

    /// Reads events with a single data line that lie wholly in the chunk, which most do. Returns
    /// the rest, from the first other event on.
    fn read_plain_events<'a>(
        &mut self,
        mut rest: &'a [u8],
        length: usize,
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<&'a [u8], Broken> {
        loop {
            let (name, line) = plain_name(rest);
            let Some(line) = line.strip_prefix(b"data: ") else { return Ok(rest) };
            let end = memchr2(b'\n', b'\r', line).and_then(|end| line.split_at_checked(end));
            let Some((data, [b'\n', b'\n', after @ ..])) = end else { return Ok(rest) };
            // Most have no name, and need no check.
            let name = if name.is_empty() { Ok("") } else { std::str::from_utf8(name) };
            let Some(name) = name.ok().filter(|_| !data.is_empty()) else { return Ok(rest) };
            self.check_size(data.len())?;
            sink(Frame { kind: FrameKind::Event, name, data, end: length - after.len() });
            rest = after;
        }
    }

    /// Completes a line from earlier chunks. Returns the bytes after it.
    fn finish_carried_line<'a>(
        &mut self,
        chunk: &'a [u8],
        length: usize,
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<&'a [u8], Broken> {
        let Some((line, after)) = self.split_line(chunk) else {
            self.line.extend_from_slice(chunk);
            self.check_size(self.line.len() + self.data.len())?;
            return Ok(&[]);
        };
        let mut whole = std::mem::take(&mut self.line);
        whole.extend_from_slice(line);
        let mut event = Borrowed::default();
        let end = length - after.len();
        self.read_line(&whole, end, &mut event, sink)?;
        self.keep(event);
        whole.clear();
        self.line = whole;
        if self.is_between_events() {
            self.whole = end;
        }
        Ok(after)
    }

    fn split_line<'a>(&mut self, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        // Every second line is empty, so that this must be cheap.
        if let [b'\n', after @ ..] = bytes {
            return Some((&[], after));
        }
        let end = if bytes.len() < 16 {
            bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?
        } else {
            memchr2(b'\n', b'\r', bytes)?
        };
        let (line, after) = bytes.split_at_checked(end)?;
        let (end, after) = after.split_first()?;
        if *end == b'\n' {
            return Some((line, after));
        }
        self.after_cr = after.is_empty();
        Some((line, after.strip_prefix(b"\n").unwrap_or(after)))
    }

    fn read_line<'a>(
        &mut self,
        mut line: &'a [u8],
        end: usize,
        event: &mut Borrowed<'a>,
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<(), Broken> {
        if !self.started {
            self.started = true;
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if self.bare.is_some() {
            return self.read_bare(line, end, sink);
        }
        if let Some(value) = field(line, b"data") {
            self.read_data(value, event);
        } else if line.is_empty() {
            return self.dispatch(event, end, sink);
        } else if let Some(value) = field(line, b"event") {
            event.name = Some(value);
        } else if is_bare_start(line) {
            self.keep(std::mem::take(event));
            self.has_data = false;
            self.data.clear();
            self.bare = Some(Scanner::lenient());
            return self.read_bare(line, end, sink);
        } else if is_disguised(line) {
            // Some clients read it. Here it is an event that cannot be read.
            self.keep(std::mem::take(event));
            sink(Frame { kind: FrameKind::Event, name: "", data: line, end });
        }
        Ok(())
    }

    fn read_data<'a>(&mut self, value: &'a [u8], event: &mut Borrowed<'a>) {
        if event.data.is_none() && !self.has_data {
            event.data = Some(value);
            return;
        }
        self.keep(std::mem::take(event));
        self.data.push(b'\n');
        self.data.extend_from_slice(value);
    }

    fn dispatch<'a>(
        &mut self,
        event: &mut Borrowed<'a>,
        end: usize,
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<(), Broken> {
        if self.has_data || !self.name.is_empty() {
            self.keep(std::mem::take(event));
            self.check_size(self.data.len())?;
            self.dispatch_kept(end, sink);
            return Ok(());
        }
        let event = std::mem::take(event);
        // By the standard, an event without data is discarded.
        if let Some(data) = event.data.filter(|data| !data.is_empty()) {
            self.check_size(data.len())?;
            let name = event.name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or("");
            sink(Frame { kind: FrameKind::Event, name, data, end });
        }
        Ok(())
    }

    fn dispatch_kept(&mut self, end: usize, sink: &mut impl FnMut(Frame<'_>)) {
        if self.has_data && !self.data.is_empty() {
            let name = std::str::from_utf8(&self.name).unwrap_or("");
            sink(Frame { kind: FrameKind::Event, name, data: &self.data, end });
        }
        self.name.clear();
        self.data.clear();
        self.has_data = false;
    }

    fn read_bare(
        &mut self,
        line: &[u8],
        end: usize,
        sink: &mut impl FnMut(Frame<'_>),
    ) -> Result<(), Broken> {
        let Some(mut scanner) = self.bare.take() else { return Ok(()) };
        scanner.push(line);
        scanner.push(b"\n");
        self.data.extend_from_slice(line);
        self.data.push(b'\n');
        self.has_data = true;
        match scanner.state() {
            JsonState::Open | JsonState::Empty => self.bare = Some(scanner),
            JsonState::Whole | JsonState::Broken => self.dispatch_kept(end, sink),
        }
        self.check_size(self.data.len())
    }

    /// Copies the borrowed parts, since the chunk is about to go.
    fn keep(&mut self, event: Borrowed<'_>) {
        if let Some(name) = event.name {
            self.name.clear();
            self.name.extend_from_slice(name);
        }
        if let Some(data) = event.data {
            self.data.extend_from_slice(data);
            self.has_data = true;
        }
    }

    fn check_size(&self, size: usize) -> Result<(), Broken> {
        if size > self.limit { Err(Broken::Oversize) } else { Ok(()) }
    }
}

/// Returns the name at the beginning of an event, if any, and the bytes after it.
fn plain_name(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some(line) = bytes.strip_prefix(b"event: ") else { return (&[], bytes) };
    match memchr2(b'\n', b'\r', line).and_then(|end| line.split_at_checked(end)) {
        Some((name, [b'\n', after @ ..])) => (name, after),
        _ => (&[], bytes),
    }
}

/// Returns the value of this field, if the line has it.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    match line.strip_prefix(name)? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

/// Reports whether a line is a complete field or comment, not just the beginning of one.
fn is_field(line: &[u8]) -> bool {
    line.starts_with(b":")
        || [b"data".as_slice(), b"event", b"id", b"retry"]
            .iter()
            .any(|name| line.strip_prefix(*name).is_some_and(|rest| rest.starts_with(b":")))
}

fn is_bare_start(line: &[u8]) -> bool {
    let first = line.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
    matches!(first, Some(b'{' | b'['))
}

/// Reports whether some clients find data in a line that is not a field: they trim it (`@google/genai` 2.32.0), or
/// end lines at more characters (`google-genai` 3.1.0, by Python's `splitlines`).
fn is_disguised(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let is_blank = |character: char| {
        character.is_whitespace() || character.is_control() || character == '\u{feff}'
    };
    let is_end = |character: char| {
        matches!(
            character,
            '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let begins = |part: &str| {
        let part = part.trim_start_matches(is_blank);
        ["data", "{", "["].iter().any(|start| part.starts_with(start))
    };
    let mut parts = line.split(is_end);
    let first = parts.next().unwrap_or_default();
    first.starts_with(is_blank) && begins(first) || parts.any(begins)
}

/// Returns how much of an unfinished event no client can act on. Some act on a line, so the end of a
/// data line does not count. `is_start` says that the first part begins with a line.
pub(super) fn inert(is_start: bool, held: &[u8], chunk: &[u8]) -> usize {
    let (mut is_data, mut line) = (!is_start, 0);
    for (at, byte) in held.iter().chain(chunk).enumerate() {
        match byte {
            b'\r' | b'\n' if is_data => return at,
            b'\r' | b'\n' => (is_data, line) = (false, at + 1),
            // Some clients trim a line.
            0..=b' ' | 0x7f.. if at == line => line = at + 1,
            // No other field of an event begins with this letter. Bare JSON is an event, too.
            b'd' | b'{' | b'[' if at == line => is_data = true,
            _ => {}
        }
    }
    held.len() + chunk.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::testing::{Owned, cuttings};

    fn read(chunks: &[&[u8]], limit: usize) -> (Vec<Owned>, Result<Rest, Broken>) {
        let mut frames = Vec::new();
        let mut sse = Sse::new(limit);
        for chunk in chunks {
            if let Err(broken) = sse.push(chunk, |frame| frames.push(frame.into())) {
                return (frames, Err(broken));
            }
        }
        let rest = sse.finish(|frame| frames.push(frame.into()));
        (frames, Ok(rest))
    }

    fn event(name: &str, data: &str) -> Owned {
        Owned(FrameKind::Event, name.to_owned(), data.as_bytes().to_vec())
    }

    #[track_caller]
    fn check(bytes: &str, want: &[(&str, &str)], rest: Rest) {
        let want: Vec<Owned> = want.iter().map(|(name, data)| event(name, data)).collect();
        for cutting in cuttings(bytes.as_bytes()) {
            assert_eq!(read(&cutting, 1 << 20), (want.clone(), Ok(rest)), "{cutting:?}");
        }
    }

    #[test]
    fn clients_can_act_on_the_end_of_a_data_line() {
        for (text, leaves) in [
            ("data: {}\n", 8),
            ("data: {}\r\n", 8),
            ("data: {}\r", 8),
            ("event: x\r\ndata: {}\r\n", 18),
            ("event: x\rdata: {}\r", 17),
            ("\u{feff}data: {}\n", 11),
            (": comment\n\n", 11),
            ("event: x\n{}\n", 11),
        ] {
            assert_eq!(inert(true, b"", text.as_bytes()), leaves, "{text:?}");
            let (held, chunk) = text.split_at(3);
            assert_eq!(inert(true, held.as_bytes(), chunk.as_bytes()), leaves, "{text:?}");
        }
        assert_eq!(inert(false, b"", b"of a data line}\r\n"), 15);
    }

    #[test]
    fn line_ends_may_be_mixed() {
        check(
            "data: 1\n\ndata: 2\r\n\r\ndata: 3\r\rdata:4\r\n\n",
            &[("", "1"), ("", "2"), ("", "3"), ("", "4")],
            Rest::Nothing,
        );
    }

    #[test]
    fn fields_comments_and_the_byte_order_mark() {
        check(
            "\u{feff}: hello\nid: 7\nretry: 9\nevent: delta\ndata: {\"a\":1}\n\n:\n\nevent: x\n\n",
            &[("delta", "{\"a\":1}")],
            Rest::Nothing,
        );
    }

    #[test]
    fn several_data_lines_are_one_event() {
        check(
            "data: {\ndata: \"a\": 1\ndata\ndata:}\n\n",
            &[("", "{\n\"a\": 1\n\n}")],
            Rest::Nothing,
        );
    }

    #[test]
    fn bare_json_between_events_is_an_event() {
        check(
            "data: 1\n\n{\n  \"error\": {\n\n    \"code\": 503\n  }\n}\ndata: 2\n\n",
            &[("", "1"), ("", "{\n  \"error\": {\n\n    \"code\": 503\n  }\n}\n"), ("", "2")],
            Rest::Nothing,
        );
    }

    #[test]
    fn the_last_event_counts_only_if_it_is_whole() {
        check("data: 1\n\ndata: {\"a\":1}", &[("", "1"), ("", "{\"a\":1}")], Rest::Nothing);
        check("data: 1\n\ndata: [DONE]", &[("", "1"), ("", "[DONE]")], Rest::Nothing);
        check("data: 1\n\ndata: {\"a\":", &[("", "1")], Rest::CutFrame);
        check("data: 1\n\ndata: [DON", &[("", "1")], Rest::CutFrame);
        check("data: 1\n\nda", &[("", "1")], Rest::CutFrame);
        check("data: 1\n\nevent: message_stop\n", &[("", "1")], Rest::CutFrame);
        check("data: 1\n\n{\"error\":", &[("", "1")], Rest::CutFrame);
        check("data: 1\n\n: ping", &[("", "1")], Rest::Nothing);
    }

    #[test]
    fn events_are_bounded_whole_or_not() {
        let long = format!("data: {}", "x".repeat(100));
        assert_eq!(read(&[long.as_bytes()], 50).1, Err(Broken::Oversize));
        assert_eq!(read(&[format!("{long}\n\n").as_bytes()], 50).1, Err(Broken::Oversize));
        let pieces: Vec<&[u8]> = long.as_bytes().chunks(7).collect();
        assert_eq!(read(&pieces, 50).1, Err(Broken::Oversize));
        let lines = "data: 12345678\n".repeat(10);
        assert_eq!(read(&[lines.as_bytes(), b"\n"], 50).1, Err(Broken::Oversize));
        assert_eq!(read(&[b"data: ok\n\n"], 50).0, [event("", "ok")]);
    }
}
