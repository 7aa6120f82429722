//! The fast path: reads events that differ from an earlier one only in their text.
//!
//! In a stream, nearly every event equals the one before it except for a piece of text, and perhaps
//! padding. Such an event is recognised by comparing bytes with a template, and read without
//! parsing. The template has holes for the text, the padding and the token counts. Outside the
//! holes, the bytes equal those that the parser has already read. Inside, only a string, a number
//! or spaces that the parser would accept are accepted. Any other event is a miss, and the parser
//! reads it. A differential test and a fuzz target compare the two.

use std::borrow::Cow;

use memchr::memchr;

use crate::dialect::{CountOf, Dialect};
use crate::ending::Usage;
use crate::event::Event;
use crate::frame::Frame;
use crate::json::integer_length;

/// Maximum number of templates learned in a row without a hit.
const PATIENCE: u32 = 16;

/// Maximum number of digits of an integer. More might not fit into 64 bits.
const MAX_DIGITS: usize = 18;

/// The last event that only carries text, as a template.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeat {
    data: Vec<u8>,
    name: String,
    holes: Vec<Hole>,
    piece: Option<Piece>,
    /// Order of the token counts and the text, if the event carries both.
    counts: Option<Order>,
    /// Token counts of the last hit.
    usage: Usage,
    unused: u32,
}

#[derive(Clone, Copy, Debug)]
struct Hole {
    start: usize,
    end: usize,
    kind: HoleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HoleKind {
    /// Content of the string with the text.
    Text,
    /// Content of a string that is not read.
    Padding,
    /// An integer that is not read.
    Number,
    /// A token count.
    Count(CountOf),
    /// Spaces before the last brace, which some providers pad with.
    Space,
}

/// Order of the token counts and the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Before,
    After,
}

/// The event that a hit yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text { choice: u32 },
    Reasoning { choice: u32 },
    Arguments { choice: u32, call: u32 },
}

impl Piece {
    /// Reports whether the ending depends on the content of the text, and not only on its presence.
    pub(crate) fn is_followed(self) -> bool {
        matches!(self, Self::Arguments { .. })
    }

    /// Returns the event with this text.
    pub(crate) fn event(self, text: &str) -> Event<'_> {
        match self {
            Self::Text { choice } => Event::Text { choice, text },
            Self::Reasoning { choice } => Event::Reasoning { choice, text },
            Self::Arguments { choice, call } => {
                Event::ToolCallDelta { choice, call, arguments: text }
            }
        }
    }
}

/// The string with the text. The parser would accept it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit<'a> {
    /// The string with its quotes.
    quoted: &'a [u8],
    escaped: bool,
}

impl<'a> Hit<'a> {
    /// Returns the text.
    pub(crate) fn text(&self) -> Option<Cow<'a, str>> {
        if self.escaped {
            return serde_json::from_slice::<String>(self.quoted).ok().map(Cow::Owned);
        }
        let inside = self.quoted.get(1..self.quoted.len() - 1)?;
        std::str::from_utf8(inside).ok().map(Cow::Borrowed)
    }
}

/// Events that the parser found in a frame, as far as a template needs them.
#[derive(Debug, Default)]
pub(crate) struct Lesson {
    piece: Option<(Piece, usize, usize)>,
    counts: Option<(Order, Usage)>,
    spoiled: bool,
    rated: bool,
}

impl Lesson {
    /// Adds an event. Its text is a hole only if it lies in `data`.
    pub(crate) fn note(&mut self, event: &Event<'_>, data: &[u8]) {
        let (piece, text) = match *event {
            Event::Begin { .. } => return,
            Event::Usage(usage) if self.counts.is_none() => {
                let order = if self.piece.is_none() { Order::Before } else { Order::After };
                self.counts = Some((order, usage));
                return;
            }
            Event::Text { choice, text } => (Piece::Text { choice }, text),
            Event::Reasoning { choice, text } => (Piece::Reasoning { choice }, text),
            Event::ToolCallDelta { choice, call, arguments } => {
                (Piece::Arguments { choice, call }, arguments)
            }
            Event::Refusal { .. }
            | Event::OtherContent { .. }
            | Event::ToolCallStart { .. }
            | Event::ToolCallTakesText { .. }
            | Event::ToolCallByProvider { .. }
            | Event::ToolCallEnd { .. }
            | Event::Usage(_)
            | Event::Word { .. }
            | Event::Pending { .. }
            | Event::ResumeToken { .. }
            | Event::Proof
            | Event::Fault(_)
            | Event::Detail { .. } => return self.spoil(),
            Event::Safety(_) => {
                self.rated = true;
                return self.spoil();
            }
        };
        let start = (text.as_ptr() as usize).wrapping_sub(data.as_ptr() as usize);
        let end = start.wrapping_add(text.len());
        let inside = start > 0 && end < data.len() && !text.is_empty();
        let quoted = inside && data.get(start - 1) == Some(&b'"') && data.get(end) == Some(&b'"');
        if quoted && self.piece.is_none() {
            self.piece = Some((piece, start, end));
        } else {
            self.spoil();
        }
    }

    /// Marks the frame as one that cannot be a template.
    pub(crate) fn spoil(&mut self) {
        self.spoiled = true;
    }
}

impl Repeat {
    /// Creates one that never learns a template.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn disabled() -> Self {
        Self { unused: PATIENCE, ..Self::default() }
    }

    /// Returns the text of a frame that matches the template, and its kind.
    pub(crate) fn hit<'a>(&mut self, frame: &Frame<'a>) -> Option<(Piece, Hit<'a>)> {
        let piece = self.piece?;
        if frame.name.len() != self.name.len() || !frame.name.is_empty() && frame.name != self.name
        {
            return None;
        }
        let hit = self.compare(frame.data)?;
        self.unused = 0;
        Some((piece, hit))
    }

    /// Returns the order of the token counts and the text, and the counts of the last hit.
    pub(crate) fn counts(&self) -> Option<(Order, &Usage)> {
        self.counts.map(|order| (order, &self.usage))
    }

    fn compare<'a>(&mut self, data: &'a [u8]) -> Option<Hit<'a>> {
        let mut rest = data;
        let mut at = 0;
        let mut hit = None;
        for hole in &self.holes {
            rest = rest.strip_prefix(self.data.get(at..hole.start)?)?;
            at = hole.end;
            let length = match hole.kind {
                HoleKind::Text => {
                    let start = data.len() - rest.len();
                    let inside = string_inside(rest)?;
                    let quoted = data.get(start.checked_sub(1)?..=start + inside.length)?;
                    if inside.length == 0
                        || !quoted.is_ascii() && std::str::from_utf8(quoted).is_err()
                    {
                        return None;
                    }
                    hit = Some(Hit { quoted, escaped: inside.escaped });
                    inside.length
                }
                HoleKind::Padding if hole.end - hole.start > 16 => long_string_inside(rest)?.length,
                HoleKind::Padding => string_inside(rest)?.length,
                HoleKind::Number => integer(rest)?.0,
                HoleKind::Count(of) => {
                    let (length, value) = integer(rest)?;
                    *slot(&mut self.usage, of) = Some(value);
                    length
                }
                HoleKind::Space => rest.iter().take_while(|byte| **byte == b' ').count(),
            };
            rest = rest.get(length..)?;
        }
        if rest == self.data.get(at..)? { hit } else { None }
    }

    /// Drops the template if the frame that was just parsed had new safety ratings, since those of
    /// the template would be new again after them.
    pub(crate) fn heed(&mut self, lesson: &Lesson) {
        if lesson.rated {
            self.piece = None;
        }
    }

    /// Makes the frame that was just parsed the template, if it can be one.
    pub(crate) fn learn(&mut self, frame: &Frame<'_>, lesson: &Lesson, dialect: &Dialect) {
        let Some((piece, start, end)) = lesson.piece.filter(|_| !lesson.spoiled) else { return };
        if self.unused >= PATIENCE {
            return;
        }
        self.unused += 1;
        self.data.clear();
        self.data.extend_from_slice(frame.data);
        frame.name.clone_into(&mut self.name);
        self.piece = Some(piece);
        self.holes.clear();
        self.holes.push(Hole { start, end, kind: HoleKind::Text });
        find_values(frame.data, dialect, lesson.counts.is_some(), &mut self.holes);
        self.counts = lesson.counts.map(|(order, _)| order);
        self.usage = Usage::default();
        if !self.counts_agree(lesson) {
            self.piece = None;
        }
        self.holes.extend(space_before_brace(frame.data));
        self.holes.sort_unstable_by_key(|hole| hole.start);
    }
}

impl Repeat {
    /// Reports whether the holes for token counts contain exactly the counts that the parser read.
    fn counts_agree(&self, lesson: &Lesson) -> bool {
        let mut found = Usage::default();
        for hole in &self.holes {
            let HoleKind::Count(of) = hole.kind else { continue };
            let digits = self
                .data
                .get(hole.start..hole.end)
                .and_then(|digits| std::str::from_utf8(digits).ok());
            let slot = slot(&mut found, of);
            if slot.is_some() {
                return false;
            }
            *slot = digits.and_then(|digits| digits.parse().ok());
        }
        found == lesson.counts.map(|(_, usage)| usage).unwrap_or_default()
    }
}

/// Returns the field for a count of this kind.
fn slot(usage: &mut Usage, of: CountOf) -> &mut Option<u64> {
    match of {
        CountOf::Input => &mut usage.input,
        CountOf::Output => &mut usage.output,
        CountOf::Reasoning => &mut usage.reasoning,
        CountOf::CacheRead => &mut usage.cache_read,
    }
}

struct Inside {
    length: usize,
    escaped: bool,
}

/// Bytes that JSON does not allow in a string unescaped: control characters, quote and backslash.
#[expect(clippy::indexing_slicing, reason = "checked when it is compiled")]
static SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        special[byte] = true;
        byte += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};

/// Returns the length of the prefix, in blocks of eight, that a string can contain unescaped.
fn plain_blocks(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // Sets the high bit of each byte that is smaller than `than`, which is at most 128. It may set
    // it for others too, but only above one that is smaller.
    let below = |block: u64, than: u64| block.wrapping_sub(ONES * than) & !block & HIGH;
    let is_plain = |block: &&[u8; 8]| {
        let block = u64::from_le_bytes(**block);
        let quote = below(block ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(block ^ (ONES * u64::from(b'\\')), 1);
        below(block, 0x20) | quote | backslash == 0
    };
    let (blocks, _) = bytes.as_chunks::<8>();
    blocks.iter().take_while(is_plain).count() * 8
}

/// Returns the content of a string, up to its quote. Returns `None` unless the parser would accept
/// it.
fn string_inside(bytes: &[u8]) -> Option<Inside> {
    inside_from(bytes, 0)
}

/// Does the same, faster for long strings.
fn long_string_inside(bytes: &[u8]) -> Option<Inside> {
    inside_from(bytes, plain_blocks(bytes))
}

/// Returns the content of a string whose first `plain` bytes need no check.
#[expect(clippy::indexing_slicing, reason = "a byte always indexes a table of 256")]
fn inside_from(bytes: &[u8], plain: usize) -> Option<Inside> {
    let mut rest = bytes.get(plain..)?;
    let mut escaped = false;
    loop {
        let special = rest.iter().position(|byte| SPECIAL[usize::from(*byte)])?;
        match rest.get(special..)? {
            [b'"', ..] => {
                return Some(Inside { length: bytes.len() - rest.len() + special, escaped });
            }
            // Only the parser checks surrogates.
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', after @ ..] => {
                rest = after;
            }
            _ => return None,
        }
        escaped = true;
    }
}

/// Returns the length and the value of an integer without a sign, unless it is too large.
fn integer(bytes: &[u8]) -> Option<(usize, u64)> {
    let mut value = 0;
    let mut length = 0;
    while let Some(digit) =
        bytes.get(length).map(|byte| byte.wrapping_sub(b'0')).filter(|it| *it < 10)
    {
        value = value * 10 + u64::from(digit);
        length += 1;
        if length > MAX_DIGITS {
            return None;
        }
    }
    let leading_zero = length > 1 && bytes.first() == Some(&b'0');
    (length > 0 && !leading_zero).then_some((length, value))
}

/// Adds holes for the values of keys that are not read, and for token counts.
fn find_values(data: &[u8], dialect: &Dialect, counted: bool, holes: &mut Vec<Hole>) {
    let mut at = 0;
    while let Some(quote) = memchr(b'"', data.get(at..).unwrap_or_default()) {
        let start = at + quote + 1;
        let Some(key) = string_inside(data.get(start..).unwrap_or_default()) else { return };
        let end = start + key.length;
        at = end + 1;
        if data.get(at) != Some(&b':') {
            continue;
        }
        let key = data.get(start..end);
        let is_padding = dialect.padding.iter().any(|known| key == Some(known.as_bytes()));
        let count =
            dialect.counts.iter().find(|(known, _)| counted && key == Some(known.as_bytes()));
        if !is_padding && count.is_none() {
            continue;
        }
        let spaces =
            data.get(at + 1..).unwrap_or_default().iter().take_while(|b| **b == b' ').count();
        let value = at + 1 + spaces;
        let rest = data.get(value..).unwrap_or_default();
        if let Some(number) = integer_length(rest) {
            let kind = count.map_or(HoleKind::Number, |(_, of)| HoleKind::Count(*of));
            holes.push(Hole { start: value, end: value + number, kind });
            at = value + number;
        } else if let Some(inside) =
            rest.strip_prefix(b"\"").filter(|_| is_padding).and_then(string_inside)
        {
            let start = value + 1;
            holes.push(Hole { start, end: start + inside.length, kind: HoleKind::Padding });
            at = start + inside.length + 1;
        }
    }
}

fn space_before_brace(data: &[u8]) -> Option<Hole> {
    let end = data.strip_suffix(b"}")?.len();
    let spaces = data.get(..end)?.iter().rev().take_while(|byte| **byte == b' ').count();
    (spaces > 0).then_some(Hole { start: end - spaces, end, kind: HoleKind::Space })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(data: &str, text: &str, padding: &'static [&'static str]) -> Repeat {
        let dialect = Dialect { padding, ..crate::dialect::openai_chat::DIALECT };
        let (before, rest) = data.split_once(text).unwrap();
        let inside = data.strip_prefix(before).and_then(|after| after.strip_suffix(rest)).unwrap();
        let mut lesson = Lesson::default();
        let event = Event::Text { choice: 0, text: inside };
        lesson.note(&event, data.as_bytes());
        let mut repeat = Repeat::default();
        repeat.learn(&Frame::event(data.as_bytes()), &lesson, &dialect);
        repeat
    }

    const FIRST: &str = r#"{"id":"a","d":{"t":"hello"},"seq":12,"obf":"xyz"  }"#;

    #[track_caller]
    fn check(data: &str, want: Option<&str>) {
        let mut repeat = template(FIRST, "hello", &["seq", "obf"]);
        let hit = repeat.hit(&Frame::event(data.as_bytes())).and_then(|(_, hit)| hit.text());
        assert_eq!(hit.as_deref(), want, "{data}");
    }

    /// A rating in between makes the rating of the template new again.
    #[test]
    fn ratings_are_told_as_if_every_event_were_parsed() {
        let event = |probability: &str| {
            format!(
                "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"Hi\"}}]}},\
                 \"safetyRatings\":[{{\"category\":\"X\",\"probability\":\"{probability}\"}}]}}]}}\n\n"
            )
        };
        let told = |mut reader: crate::Reader| {
            let mut ratings = Vec::new();
            for probability in ["LOW", "LOW", "LOW", "HIGH", "LOW", "LOW"] {
                reader.read(event(probability).as_bytes(), |event| {
                    if let Event::Safety(rating) = event {
                        ratings.push(rating.clone());
                    }
                });
            }
            ratings
        };
        let reader = || {
            crate::Reader::new(
                &crate::provider::GOOGLE,
                crate::Head::default(),
                crate::RequestInfo::default(),
            )
        };
        assert_eq!(told(reader()).len(), 3);
        assert_eq!(told(reader()), told(reader().without_repeats()));
    }

    #[test]
    fn repeats_are_hits() {
        check(FIRST, Some("hello"));
        check(r#"{"id":"a","d":{"t":"wörld"},"seq":7,"obf":""}"#, Some("wörld"));
        check(r#"{"id":"a","d":{"t":"a\"b"},"seq":0,"obf":"\\"    }"#, Some("a\"b"));
    }

    #[test]
    fn anything_else_is_a_miss() {
        for data in [
            r#"{"id":"b","d":{"t":"hello"},"seq":12,"obf":"xyz"  }"#,
            r#"{"id":"a","d":{"t":""},"seq":12,"obf":"xyz"  }"#,
            r#"{"id":"a","d":{"t":"hello","x":1},"seq":12,"obf":"xyz"  }"#,
            r#"{"id":"a","d":{"t":"\ud800"},"seq":12,"obf":"xyz"  }"#,
            r#"{"id":"a","d":{"t":"\x"},"seq":12,"obf":"xyz"  }"#,
            "{\"id\":\"a\",\"d\":{\"t\":\"a\tb\"},\"seq\":12,\"obf\":\"xyz\"  }",
            r#"{"id":"a","d":{"t":"hello"},"seq":012,"obf":"xyz"  }"#,
            r#"{"id":"a","d":{"t":"hello"},"seq":1.5,"obf":"xyz"  }"#,
            r#"{"id":"a","d":{"t":"hello"},"seq":12,"obf":"xyz"  }}"#,
            r#"{"id":"a","d":{"t":"hello"},"seq":12,"obf":"xyz"  "#,
            "",
        ] {
            check(data, None);
        }
    }

    #[test]
    fn text_that_is_not_utf8_is_a_miss() {
        let mut repeat = template(FIRST, "hello", &[]);
        let data = FIRST.replace("hello", "~").into_bytes();
        let data: Vec<u8> =
            data.into_iter().map(|byte| if byte == b'~' { 0xff } else { byte }).collect();
        assert_eq!(repeat.hit(&Frame::event(&data)), None);
    }
}
