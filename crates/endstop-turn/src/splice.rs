//! Joins the pieces of an answer: no character lost, none invented.
//!
//! A model that is asked to go on often begins by repeating the end of what it had said. This module
//! finds that repetition and says how much of the continuation to leave out. What is left out is always
//! the beginning of the continuation, and always stands, but for white space, at the end of what was
//! delivered; nothing is ever inserted or changed.
//!
//! # When is it a repetition?
//!
//! Let the longest end of the delivered text that also begins the continuation, white space aside, be
//! the *overlap*. The model may have repeated it, or the text may really say it twice, the cut falling
//! between. Nobody can know, so the second has the benefit of the doubt: losing text is worse than a
//! duplicate. The overlap is left out only if all of this holds.
//!
//! | rule | why |
//! |---|---|
//! | it has at least 4 characters and 6 bytes; white space, marks and joiners do not count | short ends meet by chance |
//! | it carries at least 20 bits, by how common its characters are in the last 8 KiB | `-----` says less than `kjqxz`, four ideographs more than four letters |
//! | it is not periodic: read as a unit that the text says twice, the unit does not go on for half a unit more, before or after | `aaaa`, repeated rows, periodic code: what comes twice may come thrice |
//! | so read, the unit is not made of whole lines or sentences, unless it carries 160 bits, more follows it, and the text has said no group of them twice in a row, in 32 of them, where those in the overlap count sevenfold if all are different | rows, items, verses do come twice |
//! | so read, it does not begin and end after punctuation, unless it carries 128 bits (160 at the end of a line or sentence, 96 if it begins after a word) | cells and JSON members come twice |
//! | so read, it does not begin and end at the edges of words, unless it carries 64 bits (32 where words are written together, or it begins inside one) | "very, very", 恭喜发财恭喜发财, "every very" |
//!
//! The third and the fourth rule are asked for every unit that the overlap allows: the whole of it, which
//! is a continuation that repeats nothing, and shorter ones, which is a continuation that repeats less. The
//! last four are asked for every place in the unit where the cut may have fallen. Where any but the first
//! two keep an overlap, the seam is [`Seam::Doubtful`] and says how long the overlap is.
//!
//! What can still be lost is text that says the same twice, and no more than twice, cut exactly
//! between: in the middle of words, or long, or several whole lines, after others that did not come twice.
//!
//! White space is not compared, so that a repetition is found though the model dropped a space, added a
//! line or changed its line ends. Where the repetition is exact, what is left out is exact too, white
//! space with it. Where it is not, what is left out may differ in white space from what was
//! delivered ([`Seam::Drifted`]); a character that is not white space is never part of the difference.
//!
//! An overlap is not moved to the edge of a cluster: where the text was cut between a letter and its
//! accent, or a carriage return and its line feed, the continuation's own accent or line feed follows.
//!
//! # Cost
//!
//! Time is linear in the part of the continuation that is held, and only the last [`WINDOW`] bytes of
//! what was delivered are looked at, however long it is. [`Streaming`] holds text back only as long as
//! it could still be a repetition: a few characters where it is none. It comes to the same result as
//! [`join`], however the text is cut into pieces.

use std::collections::HashMap;

/// How much of the delivered text is compared, in bytes; a longer repetition is not found.
pub const WINDOW: usize = 8 << 10;

/// The most that is ever held back, in bytes; beyond it the continuation stays as it is.
pub const MOST_HELD: usize = 4 * WINDOW;

/// The least that an overlap must have.
const LEAST_CHARACTERS: usize = 4;
const LEAST_BYTES: usize = 6;
/// Quarters of a bit that an overlap must carry, by where it begins and ends as a unit of the text:
/// inside words; inside and at words, or between letters of a script without spaces; at words; at a word and a clause; at clauses; at the end of a line or sentence.
const LEAST_INSIDE: u64 = 4 * 20;
const LEAST_PART: u64 = 4 * 32;
const LEAST_WORD: u64 = 4 * 64;
const LEAST_CLAUSE: u64 = 4 * 96;
const LEAST_CLAUSES: u64 = 4 * 128;
const LEAST_SENTENCE: u64 = 4 * 160;
/// The most that one character can carry, in quarters of a bit.
const MOST_EACH: u64 = 4 * 6;
/// A unit that comes twice is no repetition of the model's if it goes on for so many characters.
const LEAST_RUN: usize = 3;
/// Lines and sentences shorter than this repeat in any text.
const LEAST_UNIT: usize = 6;
/// Longer ones do not, where a text does not repeat itself.
const LONG_UNIT: usize = 20;
/// A text that has said so many of them, and none twice in a row, is taken not to begin now.
const LEAST_UNITS: usize = 32;
/// New ones in the overlap count for so many more: the larger a group, the less likely a text says all of
/// it twice.
const WEIGHT_IN_OVERLAP: usize = 6;
/// Where a hash begins (FNV-1a).
const PRINT: u64 = 0xcbf2_9ce4_8422_2325;
/// A character has no more marks than this, as far as it matters.
const MOST_MARKS: usize = 4;
/// Text that can be read in more ways than this is periodic.
const MOST_READINGS: usize = 16;

/// How the continuation was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The model went on from a prefill: its text is joined as it is.
    Prefill,
    /// The same, at a provider that sends the prefill back first: exactly that is left out.
    Echo,
    /// The model was asked in words to go on: an overlap is left out where it is a repetition.
    Hint,
}

/// What was found where two pieces meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seam {
    /// No overlap worth the name: the continuation is joined as it is.
    Plain,
    /// The prefill came back, and was left out.
    Echoed,
    /// The continuation repeated the end, character for character; that was left out.
    Repeated,
    /// The continuation repeated the end with other white space; that was left out.
    Drifted,
    /// There is an overlap, but the text may really say it twice: it was left in.
    Doubtful,
}

/// How a continuation is joined to what was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splice {
    /// What was found.
    pub seam: Seam,
    /// How many bytes at the beginning of the continuation are left out.
    pub trimmed: usize,
    /// How many characters these are.
    pub trimmed_characters: usize,
    /// How many bytes at the beginning of the continuation look repeated and are left in.
    pub doubtful: usize,
}

impl Splice {
    const PLAIN: Self = Self::kept(Seam::Plain, 0);

    const fn kept(seam: Seam, doubtful: usize) -> Self {
        Self { seam, trimmed: 0, trimmed_characters: 0, doubtful }
    }

    fn trimmed(seam: Seam, text: &str) -> Self {
        Self { seam, trimmed: text.len(), trimmed_characters: text.chars().count(), doubtful: 0 }
    }

    /// What is left of the continuation.
    #[must_use]
    pub fn rest<'a>(&self, continuation: &'a str) -> &'a str {
        continuation.get(self.trimmed..).unwrap_or(continuation)
    }
}

/// Finds how a continuation is joined to what was delivered.
///
/// ```
/// use endstop_turn::splice::{Join, Seam, join};
///
/// let (delivered, continuation) = ("The answer is forty-t", "is forty-two, as always.");
/// let splice = join(delivered, continuation, Join::Hint);
/// assert_eq!((splice.seam, splice.trimmed), (Seam::Repeated, 10));
/// assert_eq!(format!("{delivered}{}", splice.rest(continuation)), "The answer is forty-two, as always.");
///
/// // What the text may really say twice stays.
/// let splice = join("It was very, very, ", "very, very late.", Join::Hint);
/// assert_eq!(splice.trimmed, 0);
/// ```
#[must_use]
pub fn join(delivered: &str, continuation: &str, how: Join) -> Splice {
    match how {
        Join::Prefill => Splice::PLAIN,
        Join::Echo => match continuation.strip_prefix(delivered) {
            Some(_) if !delivered.is_empty() => Splice::trimmed(Seam::Echoed, delivered),
            Some(_) | None => Splice::PLAIN,
        },
        Join::Hint => {
            let mut seeker = Seeker::new(delivered);
            let found = continuation.chars().find_map(|character| seeker.read(character));
            let found = found.unwrap_or_else(|| seeker.finish());
            seeker.splice(found, continuation)
        }
    }
}

/// Joins a continuation that comes in pieces.
///
/// ```
/// use endstop_turn::splice::{Join, Streaming};
///
/// let mut joined = String::from("def area(radius):\n    return math.p");
/// let mut streaming = Streaming::new(&joined, Join::Hint);
/// for piece in ["    ret", "urn ma", "th.p", "i * radius ** 2\n"] {
///     joined.push_str(streaming.push(piece));
/// }
/// let (rest, splice) = streaming.finish();
/// joined.push_str(&rest);
/// assert_eq!(joined, "def area(radius):\n    return math.pi * radius ** 2\n");
/// assert_eq!(splice.trimmed, "    return math.p".len());
/// ```
#[derive(Clone, Debug)]
pub struct Streaming {
    state: State,
    /// What was pushed and not released. Released text stays until the next push.
    held: String,
}

#[derive(Clone, Debug)]
enum State {
    Seeking(Box<Seeker>),
    /// The prefill, and how much of it has come back.
    Echo(String, usize),
    Done(Splice),
}

impl Streaming {
    /// Begins a join to what was delivered, of which a copy is kept: of its end for a hint, of the whole
    /// for an echo.
    #[must_use]
    pub fn new(delivered: &str, how: Join) -> Self {
        let state = match how {
            Join::Prefill => State::Done(Splice::PLAIN),
            Join::Echo if delivered.is_empty() => State::Done(Splice::PLAIN),
            Join::Echo => State::Echo(delivered.to_owned(), 0),
            Join::Hint => State::Seeking(Box::new(Seeker::new(delivered))),
        };
        Self { state, held: String::new() }
    }

    /// Takes the next piece and gives back what can be shown now.
    pub fn push<'a>(&'a mut self, piece: &'a str) -> &'a str {
        let splice = match &mut self.state {
            State::Done(_) => {
                self.held.clear();
                return piece;
            }
            State::Echo(prefill, back) => {
                self.held.push_str(piece);
                let left = prefill.get(*back..).unwrap_or_default();
                if left.starts_with(piece) && left.len() > piece.len() {
                    *back += piece.len();
                    return "";
                }
                join(prefill, &self.held, Join::Echo)
            }
            State::Seeking(seeker) => {
                self.held.push_str(piece);
                let Some(found) = piece.chars().find_map(|character| seeker.read(character)) else {
                    return "";
                };
                seeker.splice(found, &self.held)
            }
        };
        self.state = State::Done(splice);
        splice.rest(&self.held)
    }

    /// How many bytes are held back now, because they may be a repetition.
    #[must_use]
    pub fn held(&self) -> usize {
        match self.state {
            State::Seeking(_) | State::Echo(..) => self.held.len(),
            State::Done(_) => 0,
        }
    }

    /// How the pieces are joined, if that is already known.
    #[must_use]
    pub fn splice(&self) -> Option<Splice> {
        match self.state {
            State::Done(splice) => Some(splice),
            State::Seeking(_) | State::Echo(..) => None,
        }
    }

    /// Ends the continuation: what was still held and is to be shown, and how the pieces were joined.
    #[must_use]
    pub fn finish(mut self) -> (String, Splice) {
        let splice = match &mut self.state {
            State::Done(splice) => return (String::new(), *splice),
            // An echo that was cut short may be no echo.
            State::Echo(..) => Splice::PLAIN,
            State::Seeking(seeker) => {
                let found = seeker.finish();
                seeker.splice(found, &self.held)
            }
        };
        self.held.drain(..splice.trimmed);
        (self.held, splice)
    }
}

/// A character that is not white space.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    character: char,
    /// The white space before it.
    gap: Gap,
    /// Where it ends in its text, in bytes.
    end: usize,
}

/// White space between two symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Space,
    Line,
}

impl Gap {
    fn with(self, character: char) -> Self {
        self.max(match character {
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => Self::Line,
            _ => Self::Space,
        })
    }
}

/// What lies at a place between two characters: how likely a unit of the text begins or ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Inside,
    /// Between letters of a script that has no spaces between words.
    Unspaced,
    Word,
    Clause,
    Sentence,
    Line,
}

/// A text as its symbols, read character by character.
#[derive(Clone, Debug)]
struct Symbols {
    list: Vec<Symbol>,
    /// The white space since the last symbol.
    gap: Gap,
    /// How many bytes were read.
    read: usize,
}

impl Symbols {
    fn new() -> Self {
        Self { list: Vec::new(), gap: Gap::None, read: 0 }
    }

    /// Whether this character is a symbol.
    fn read(&mut self, character: char) -> bool {
        self.read += character.len_utf8();
        if character.is_whitespace() {
            self.gap = self.gap.with(character);
            return false;
        }
        self.list.push(Symbol { character, gap: self.gap, end: self.read });
        self.gap = Gap::None;
        true
    }

    fn at(&self, index: usize) -> Option<char> {
        self.list.get(index).map(|symbol| symbol.character)
    }

    /// Where the first so many symbols end.
    fn end(&self, symbols: usize) -> usize {
        symbols.checked_sub(1).and_then(|last| self.list.get(last)).map_or(0, |symbol| symbol.end)
    }
}

/// One way to read the overlap as the text's own: the model repeated only `border` symbols, and the text
/// says a unit of `period` symbols twice and more.
#[derive(Clone, Copy, Debug)]
struct Reading {
    border: usize,
    period: usize,
    /// How far the unit goes on before the overlap.
    before: usize,
    /// How far it goes on after it, so far.
    after: usize,
    /// Whether it may go on further.
    open: bool,
}

impl Reading {
    /// Whether the unit goes on for so long that this is how the text must be read.
    fn is_likely(&self) -> bool {
        self.border + self.before + self.after >= LEAST_RUN.max(self.period / 2)
    }
}

/// What the seeker found at the beginning of a continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// So many symbols that are repeated.
    Repetition(usize),
    /// So many symbols that may be repeated.
    Doubt(usize),
}

/// Looks for the overlap.
///
/// This is Knuth, Morris and Pratt's search for the continuation in the end of the delivered text, where
/// the pattern is still growing. It stands at the first place where all that is known of the pattern fits;
/// when it arrives at the end of the text, what fits there is the overlap, and the longest that any
/// further text could make.
#[derive(Clone, Debug)]
struct Seeker {
    /// The end of the delivered text.
    tail: String,
    delivered: Symbols,
    /// How often characters occur in it, by their lowest byte: others that share it only make a
    /// character look more common.
    counts: Vec<u32>,
    continuation: Symbols,
    /// For each symbol of the continuation, the longest end up to it that is also a proper beginning.
    borders: Vec<usize>,
    /// How much of `delivered` was searched.
    searched: usize,
    /// How much of the continuation fits there.
    fits: usize,
    /// Once all is searched: how the overlap can be read as the text's own.
    readings: Vec<Reading>,
    /// How much the overlap says, in quarters of a bit.
    information: u64,
    /// Whether the text has so far not repeated its lines, and its sentences.
    lines_vary: bool,
    sentences_vary: bool,
    /// How much of the continuation the readings have seen.
    compared: usize,
}

impl Seeker {
    fn new(delivered: &str) -> Self {
        let tail = end_of(delivered, WINDOW);
        let mut symbols = Symbols::new();
        let mut counts = vec![0; 256];
        for character in tail.chars() {
            if symbols.read(character)
                && let Some(count) = counts.get_mut(bucket(character))
            {
                *count += 1;
            }
        }
        Self {
            tail: tail.to_owned(),
            delivered: symbols,
            counts,
            continuation: Symbols::new(),
            borders: Vec::new(),
            searched: 0,
            fits: 0,
            readings: Vec::new(),
            information: 0,
            lines_vary: false,
            sentences_vary: false,
            compared: 0,
        }
    }

    /// Reads a character of the continuation; says what was found as soon as no more could change it.
    fn read(&mut self, character: char) -> Option<Found> {
        if self.continuation.read + character.len_utf8() > MOST_HELD {
            let overlap = if self.is_searched() { self.fits } else { 0 };
            return Some(Found::Doubt(overlap));
        }
        if !self.continuation.read(character) {
            return None;
        }
        self.grow(character);
        if !self.is_searched() {
            self.search(self.continuation.list.len());
            if !self.is_searched() {
                return None;
            }
            if let Some(found) = self.weigh() {
                return Some(found);
            }
        }
        self.compare()
    }

    /// The continuation is over.
    fn finish(&mut self) -> Found {
        if !self.is_searched() {
            // No pattern can fit to beyond its end, so this arrives at the end of the text.
            self.search(usize::MAX);
            if let Some(found) = self.weigh() {
                return found;
            }
            if let Some(found) = self.compare() {
                return found;
            }
        }
        self.judge()
    }

    fn is_searched(&self) -> bool {
        self.searched == self.delivered.list.len()
    }

    /// Notes the border that ends in the symbol just read.
    fn grow(&mut self, character: char) {
        let mut border = self.borders.last().copied().unwrap_or(0);
        let first = self.borders.is_empty();
        while border > 0 && self.continuation.at(border) != Some(character) {
            border = self.border_of(border);
        }
        if !first && self.continuation.at(border) == Some(character) {
            border += 1;
        }
        self.borders.push(border);
    }

    /// The longest proper beginning of so many symbols of the continuation that is also their end.
    fn border_of(&self, symbols: usize) -> usize {
        symbols.checked_sub(1).and_then(|last| self.borders.get(last)).copied().unwrap_or(0)
    }

    /// Searches on, until so many symbols fit or the text is searched.
    fn search(&mut self, enough: usize) {
        while self.fits < enough && !self.is_searched() {
            let next = self.delivered.at(self.searched);
            if next == self.continuation.at(self.fits) {
                self.searched += 1;
                self.fits += 1;
            } else if self.fits == 0 {
                self.searched += 1;
            } else {
                self.fits = self.border_of(self.fits);
            }
        }
    }

    /// What the size of the overlap says; if nothing, lists how else it can be read.
    fn weigh(&mut self) -> Option<Found> {
        self.information = self.information();
        if !self.is_large() {
            return Some(Found::Nothing);
        }
        self.lines_vary = self.vary(Edge::Line);
        self.sentences_vary = self.vary(Edge::Sentence);
        let doubt = Some(Found::Doubt(self.fits));
        let mut border = self.fits;
        while border > 0 {
            border = self.border_of(border);
            let reading = self.reading(border);
            if reading.is_likely() || self.readings.len() == MOST_READINGS {
                return doubt;
            }
            self.readings.push(reading);
        }
        self.compared = self.fits;
        None
    }

    fn is_large(&self) -> bool {
        let symbols = self.continuation.list.get(..self.fits).unwrap_or_default();
        let own = || symbols.iter().map(|symbol| symbol.character).filter(|own| !is_mark(*own));
        own().count() >= LEAST_CHARACTERS
            && own().map(char::len_utf8).sum::<usize>() >= LEAST_BYTES
            && self.information >= LEAST_INSIDE
    }

    /// How much the overlap says, in quarters of a bit.
    fn information(&self) -> u64 {
        let symbols = self.continuation.list.get(..self.fits).unwrap_or_default();
        // The delivered text may be short: as if more characters had been there, all different, unless it
        // has shown to have but few.
        let known = self.counts.iter().filter(|count| **count > 0).count() as u64;
        let all = self.delivered.list.len() as u64 + (4 * known).min(32);
        let one = |symbol: &Symbol| {
            let character = symbol.character;
            let count = self.counts.get(bucket(character)).copied().unwrap_or(0);
            let rarity = all.pow(4) / (u64::from(count) + 1).pow(4);
            if is_mark(character) { 0 } else { u64::from(rarity.max(1).ilog2()).min(MOST_EACH) }
        };
        symbols.iter().map(one).sum()
    }

    /// Whether the delivered text has many units between such edges and says none, and no group of them,
    /// twice in a row; and most of those in the overlap are new.
    fn vary(&self, edge: Edge) -> bool {
        let overlap = self.delivered.list.len() - self.fits;
        let mut last = HashMap::new();
        let (mut units, mut distance, mut streak) = (0, 0, 0);
        let (mut new, mut old) = (0, 0);
        let (mut fresh, mut again) = (0, false);
        let (mut print, mut length) = (PRINT, 0);
        for (index, symbol) in self.delivered.list.iter().enumerate() {
            if self.edge(index, 0) >= edge {
                if length >= LEAST_UNIT {
                    let apart = last.insert(print, units).map(|earlier| units - earlier);
                    units += 1;
                    streak = if apart == Some(distance) { streak + 1 } else { 1 };
                    distance = apart.unwrap_or(0);
                    if apart.is_some() && streak >= distance {
                        return false;
                    }
                    again |= apart.is_some() && length >= LONG_UNIT;
                    if index > overlap {
                        *(if apart.is_some() { &mut old } else { &mut new }) += length;
                        fresh += usize::from(apart.is_none());
                    }
                }
                (print, length) = (PRINT, 0);
            }
            print = (print ^ u64::from(symbol.character)).wrapping_mul(0x0000_0100_0000_01b3);
            length += 1;
        }
        // Where a long unit has come again, even apart, only many that did not are evidence.
        let weighty = if again { 0 } else { WEIGHT_IN_OVERLAP * fresh };
        units + weighty >= LEAST_UNITS && new >= old
    }

    fn reading(&self, border: usize) -> Reading {
        let period = self.fits - border;
        let mut reading = Reading { border, period, before: 0, after: 0, open: true };
        let start = self.delivered.list.len() - self.fits;
        while let Some(earlier) = start.checked_sub(reading.before + 1)
            && is_alike(self.delivered.at(earlier), self.delivered.at(earlier + period))
            && !reading.is_likely()
        {
            reading.before += 1;
        }
        reading
    }

    /// Compares what follows the overlap with what each reading would have there.
    fn compare(&mut self) -> Option<Found> {
        while let Some(next) = self.continuation.at(self.compared) {
            for reading in self.readings.iter_mut().filter(|reading| reading.open) {
                let earlier = self.compared.checked_sub(reading.period);
                if is_alike(earlier.and_then(|at| self.continuation.at(at)), Some(next)) {
                    reading.after += 1;
                } else {
                    reading.open = false;
                }
            }
            self.compared += 1;
            if self.readings.iter().any(Reading::is_likely) {
                return Some(Found::Doubt(self.fits));
            }
            if self.readings.iter().all(|reading| !reading.open) {
                return Some(self.judge());
            }
        }
        None
    }

    /// Whether the overlap says enough for where its units begin and end.
    fn judge(&self) -> Found {
        // A model that begins anew has more to say than it had.
        if self.continuation.list.len() == self.fits && self.begins_whole() {
            return Found::Doubt(self.fits);
        }
        let least = self.readings.iter().map(|reading| self.least(reading)).max();
        if self.information < least.unwrap_or(u64::MAX) {
            return Found::Doubt(self.fits);
        }
        Found::Repetition(self.fits)
    }

    /// Whether the overlap begins where a line or a sentence does.
    fn begins_whole(&self) -> bool {
        self.edge(self.delivered.list.len() - self.fits, 0) >= Edge::Sentence
    }

    /// How much the overlap must say to be no unit of this reading. The text so read is longer than the
    /// unit twice, so there are several places where it may begin.
    fn least(&self, reading: &Reading) -> u64 {
        let all = self.delivered.list.len();
        let first = all - self.fits - reading.before;
        let last = all - reading.period + reading.after;
        (first..=last).map(|start| self.least_from(start, reading)).max().unwrap_or(u64::MAX)
    }

    fn least_from(&self, start: usize, reading: &Reading) -> u64 {
        let middle = start + reading.period;
        let begins = self.edge(start, reading.border);
        let ends = self.edge(middle + reading.period, reading.border);
        let mut again = self.edge(middle, reading.border);
        if middle == self.delivered.list.len() {
            // The model may have dropped the space that was to follow.
            again = again.max(ends);
        }
        match (begins, again.min(ends)) {
            (Edge::Inside, Edge::Inside | Edge::Unspaced) => LEAST_INSIDE,
            (_, Edge::Inside) if again == Edge::Inside => LEAST_INSIDE,
            // "every, very, "
            (Edge::Inside, _) => LEAST_PART,
            (Edge::Line, Edge::Line) => if_varied(self.lines_vary),
            (Edge::Sentence | Edge::Line, Edge::Sentence | Edge::Line) => {
                if_varied(self.sentences_vary)
            }
            (Edge::Unspaced, _) | (_, Edge::Unspaced) => LEAST_PART,
            (_, Edge::Inside) => LEAST_PART,
            (Edge::Word | Edge::Clause, Edge::Sentence | Edge::Line) => LEAST_SENTENCE,
            (Edge::Line, _) if again == Edge::Line => LEAST_CLAUSES,
            (_, Edge::Word) => LEAST_WORD,
            (Edge::Word, Edge::Clause) => LEAST_CLAUSE,
            (Edge::Clause | Edge::Sentence | Edge::Line, Edge::Clause) => LEAST_CLAUSES,
        }
    }

    /// A symbol of the text that is read as if `border` symbols were repeated.
    fn symbol(&self, index: usize, border: usize) -> Option<&Symbol> {
        match index.checked_sub(self.delivered.list.len()) {
            None => self.delivered.list.get(index),
            Some(beyond) => self.continuation.list.get(border + beyond),
        }
    }

    /// The white space before it.
    fn gap(&self, index: usize, border: usize) -> Gap {
        let gap = self.symbol(index, border).map_or(Gap::None, |symbol| symbol.gap);
        // Where symbols were repeated, the space after them came twice.
        let joined = index == self.delivered.list.len() && border == 0;
        if joined { self.delivered.gap.max(gap) } else { gap }
    }

    /// The edge before it.
    fn edge(&self, index: usize, border: usize) -> Edge {
        let symbol = |back| self.symbol(index.checked_sub(back)?, border);
        let (Some(before), Some(after)) = (symbol(1), symbol(0)) else { return Edge::Line };
        // A mark is of the kind of what it stands on: a letter's accent, an emoji's presentation.
        let bases = (1..=MOST_MARKS).filter_map(symbol).map(|symbol| symbol.character);
        let base = bases.into_iter().find(|character| !is_mark(*character));
        let (before, after) = (base.unwrap_or(before.character), after.character);
        let gap = self.gap(index, border);
        // "17. " begins an item of a list, not a sentence.
        let numbered = symbol(2).is_some_and(|symbol| symbol.character.is_numeric());
        let spaced = gap > Gap::None;
        let sentence = spaced && ends_sentence(before) && !numbered;
        if gap == Gap::Line {
            Edge::Line
        } else if sentence || "。！？".contains(before) {
            Edge::Sentence
        } else if is_mark(after) {
            Edge::Inside
        } else if ends_clause(before) {
            Edge::Clause
        } else if spaced || !is_inside_word(before, after) {
            Edge::Word
        } else if is_unspaced(before) && is_unspaced(after) {
            Edge::Unspaced
        } else {
            Edge::Inside
        }
    }

    /// The splice of a continuation that begins with what was read.
    fn splice(&self, found: Found, continuation: &str) -> Splice {
        match found {
            Found::Nothing | Found::Doubt(0) => Splice::PLAIN,
            Found::Doubt(symbols) => Splice::kept(Seam::Doubtful, self.continuation.end(symbols)),
            Found::Repetition(symbols) => {
                let (_, rest) = split(continuation, self.continuation.end(symbols));
                let space = rest.len() - rest.trim_start().len();
                let (space, _) = split(rest, space);
                let (_, delivered) =
                    split(&self.tail, self.delivered.end(self.delivered.list.len()));
                let end = self.continuation.end(symbols) + repeated_space(delivered, space);
                let (trimmed, _) = split(continuation, end);
                let exact = self.tail.ends_with(trimmed);
                Splice::trimmed(if exact { Seam::Repeated } else { Seam::Drifted }, trimmed)
            }
        }
    }
}

/// What a unit of whole lines or sentences must say.
fn if_varied(varied: bool) -> u64 {
    if varied { LEAST_SENTENCE } else { u64::MAX }
}

/// How much of the space after a repetition repeats the space that was delivered.
fn repeated_space(delivered: &str, space: &str) -> usize {
    if space.starts_with(delivered) {
        return delivered.len();
    }
    // The space has drifted. As many lines are repeated as were delivered, and of the last line's
    // indent what is the same.
    let lines = delivered.matches('\n').count();
    let repeated = space.match_indices('\n').take(lines).last().map_or(0, |(at, _)| at + 1);
    let indent = delivered.rsplit('\n').next().unwrap_or_default();
    let (_, rest) = split(space, repeated);
    let same = indent.chars().zip(rest.chars()).take_while(|(one, other)| one == other);
    repeated + same.map(|(one, _)| one.len_utf8()).sum::<usize>()
}

/// Splits at a place that is known to be between two characters.
fn split(text: &str, at: usize) -> (&str, &str) {
    text.split_at_checked(at).unwrap_or((text, ""))
}

/// The last bytes of a text, from the first whole character.
fn end_of(text: &str, bytes: usize) -> &str {
    let start = text.len().saturating_sub(bytes);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    split(text, start).1
}

fn bucket(character: char) -> usize {
    character as usize % 256
}

/// Punctuation after which, and some space, a sentence may begin.
fn ends_sentence(character: char) -> bool {
    ".!?؟۔।".contains(character)
}

/// Punctuation after which a unit of the text may begin.
fn ends_clause(character: char) -> bool {
    ",.;:!?)]}>|،؛؟۔।，。、；：！？）」』】》".contains(character)
}

/// Whether these stand in one word, as far as one can see.
fn is_inside_word(before: char, after: char) -> bool {
    is_of_word(before) && is_of_word(after) && !(before.is_lowercase() && after.is_uppercase())
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || is_mark(character)
}

/// Thai, Lao, Burmese, Khmer, kana and ideographs.
fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Whether two symbols are the same but for their case: a sentence that repeats its first words does not
/// repeat its capital.
fn is_alike(one: Option<char>, other: Option<char>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other || one.to_lowercase().eq(other.to_lowercase()),
        (None, _) | (_, None) => false,
    }
}

/// Characters that belong to the one before them or are not seen: they say nothing by themselves.
fn is_mark(character: char) -> bool {
    matches!(character,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5c7}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{6d6}'..='\u{6ed}' | '\u{900}'..='\u{903}'
        | '\u{93a}'..='\u{94f}' | '\u{e31}' | '\u{e34}'..='\u{e3a}' | '\u{e47}'..='\u{e4e}'
        | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{20d0}'..='\u{20ff}'
        | '\u{302a}'..='\u{302f}' | '\u{3099}' | '\u{309a}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}' | '\u{feff}' | '\u{1f3fb}'..='\u{1f3ff}'
        | '\u{e0020}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}')
}

#[cfg(test)]
mod tests {
    #![expect(clippy::string_slice, reason = "tests fail loudly")]

    use super::*;

    fn joined(delivered: &str, continuation: &str) -> (String, Seam) {
        let splice = join(delivered, continuation, Join::Hint);
        let trimmed = &continuation[..splice.trimmed];
        assert_eq!(splice.trimmed_characters, trimmed.chars().count());
        (format!("{delivered}{}", splice.rest(continuation)), splice.seam)
    }

    #[track_caller]
    fn repeats(delivered: &str, continuation: &str, whole: &str) {
        assert_eq!(joined(delivered, continuation), (whole.to_owned(), Seam::Repeated));
    }

    #[track_caller]
    fn drifts(delivered: &str, continuation: &str, whole: &str) {
        assert_eq!(joined(delivered, continuation), (whole.to_owned(), Seam::Drifted));
    }

    #[track_caller]
    fn stays(delivered: &str, continuation: &str, seam: Seam) {
        assert_eq!(joined(delivered, continuation), (format!("{delivered}{continuation}"), seam));
    }

    #[test]
    fn a_repetition_is_left_out() {
        repeats("The quick brown fox ju", "brown fox jumps.", "The quick brown fox jumps.");
        repeats(
            "这是一个关于大型语言模型的测",
            "大型语言模型的测试。",
            "这是一个关于大型语言模型的测试。",
        );
        repeats(
            "{\"name\": \"Ada Lovel",
            "me\": \"Ada Lovelace\"}",
            "{\"name\": \"Ada Lovelace\"}",
        );
        repeats("قال الرجل إن الحيا", "الرجل إن الحياة", "قال الرجل إن الحياة");
    }

    #[test]
    fn the_longest_overlap_counts() {
        // The shorter one, `x`, is also an overlap.
        repeats("a prexylophonemix", "xylophonemixer", "a prexylophonemixer");
    }

    #[test]
    fn a_cut_inside_a_cluster_is_no_obstacle() {
        repeats("un grand cafe", "grand cafe\u{301} noir", "un grand cafe\u{301} noir");
        repeats(
            "and so we met 👩\u{200d}",
            "nd so we met 👩\u{200d}🚀 then",
            "and so we met 👩\u{200d}🚀 then",
        );
        repeats("the first line\r", "he first line\r\nsecond", "the first line\r\nsecond");
    }

    #[test]
    fn what_is_short_stays() {
        stays("The quick bro", "brown", Seam::Plain);
        stays("some banan", "nana split", Seam::Plain);
        stays("一二三", "一二三四", Seam::Plain);
        // Marks and joiners add nothing.
        stays("e\u{301}\u{302}\u{303}\u{304}z", "e\u{301}\u{302}\u{303}\u{304}z", Seam::Plain);
        stays("", "anything", Seam::Plain);
        stays("anything", "", Seam::Plain);
        stays(" \n", " \n", Seam::Plain);
    }

    #[test]
    fn four_characters_and_six_bytes_and_twenty_bits() {
        let delivered = "Sphinx of black quartz judge my vow qkzpw";
        repeats(&format!("{delivered}jfx"), "kzpwjfxenon", &format!("{delivered}jfxenon"));
        // Where a word ends, it may be the end of one that is said again.
        stays(&format!("{delivered}jf"), "kzpwjf!", Seam::Doubtful);
        stays(&format!("{delivered}jf"), "pwjf!", Seam::Plain);
        stays("语言模型测试简单", "试简单明了", Seam::Plain);
        // Words may begin between ideographs.
        stays("我们祝大家恭喜发财", "恭喜发财，红包拿来", Seam::Plain);
        let delivered = "语言模型的训练需要大量的文本和计算资源，我们在这里测试它怎样继续写作业";
        stays(delivered, "续写作业，", Seam::Plain);
        stays(delivered, "继续写作业，", Seam::Doubtful);
        repeats(delivered, "它怎样继续写作业，", &format!("{delivered}，"));
        // The same size, but of characters that this text is full of.
        let zeros = format!("{}01101", "01 10 ".repeat(40));
        stays(&zeros, "01101x", Seam::Plain);
    }

    #[test]
    fn what_is_periodic_stays() {
        stays(&"a".repeat(50), &"a".repeat(30), Seam::Plain);
        stays(&format!("kjqx wvzp {}", "a".repeat(50)), &"a".repeat(90), Seam::Doubtful);
        stays("So: na na na na na na na na na", " na na na na na na na na na na", Seam::Doubtful);
        stays("| --- | --- | --- | --- | --- ", "| --- | --- | --- | --- |\n", Seam::Plain);
        let unit = "kjqx wvzp mnbt ghfd ";
        stays(&unit.repeat(3), &unit.repeat(2), Seam::Doubtful);
        // Only what follows tells.
        stays(unit.trim_end(), &format!("{unit}{unit}kj"), Seam::Doubtful);
    }

    #[test]
    fn whole_lines_and_sentences_stay() {
        stays("Refrain:\nrow your boat gently\n", "row your boat gently\ndown", Seam::Doubtful);
        stays("Refrain:\nrow your boat gently", "\nrow your boat gently\ndown", Seam::Doubtful);
        stays("He said. I really know it. ", "I really know it. Then", Seam::Doubtful);
        // The cut fell inside the second of two equal lines, and the next begins like them.
        stays("let it\nx = fetch(one)\nx = fe", "tch(one)\nx = fetch(two)", Seam::Doubtful);
        // The model may have dropped the line's end.
        stays("Refrain:\nrow your boat gently", "row your boat gently\ndown", Seam::Doubtful);
    }

    #[test]
    fn whole_lines_are_a_repetition_where_the_text_never_says_one_twice() {
        let line = |number: u32| format!("{number}. {} of the lot\n", number * 7919 % 1000);
        let text: String = (1..60).map(line).collect();
        let at = |number: u32| text.find(&format!("\n{number}. ")).unwrap() + 1;
        repeats(&text[..at(40)], &text[at(30)..], &text);
        // Too little is said,
        stays(&text[..at(40)], &text[at(38)..], Seam::Doubtful);
        // too little was said before,
        let word = |number: u64| format!("{:x} ", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let long = |number: u64| (number * 9..number * 9 + 5).map(word).collect::<String>() + "\n";
        let few: String = (1..9).map(long).collect();
        let upto = |number: u64| few.find(&long(number)).unwrap();
        stays(&few[..upto(4)], &few[upto(3)..], Seam::Doubtful);
        repeats(&few[..upto(8)], &few, &few);
        // nothing follows,
        stays(&text[..at(40)], &text[at(30)..at(40)], Seam::Doubtful);
        // or the text has said a line or a group of them twice.
        for group in [1, 2, 3] {
            let twice = format!("{}{}", &text[..at(1 + group)], text);
            let end = twice.len() - (text.len() - at(40));
            stays(&twice[..end], &text[at(30)..], Seam::Doubtful);
        }
        // Sentences are as lines.
        let text = text.replace('\n', "! ");
        let at = |number: u32| text.find(&format!(" {number}. ")).unwrap() + 1;
        repeats(&text[..at(40)], &text[at(30)..], &text);
        stays(&text[..at(4)], &text[at(3)..], Seam::Doubtful);
    }

    #[test]
    fn words_and_clauses_need_more() {
        stays("it was very, very", " very, very late", Seam::Doubtful);
        stays("a count ", "counter", Seam::Plain);
        stays(
            "for life🤷🏿\u{200d}♀\u{fe0f}jalapen\u{303}o ",
            "jalapen\u{303}o could",
            Seam::Doubtful,
        );
        stays("than this every — ", "very — those", Seam::Doubtful);
        stays("the number counter ", "counters", Seam::Doubtful);
        stays("[{\"red\": 12}, {\"blue\": 7}, ", "{\"blue\": 7}, {\"red\"", Seam::Doubtful);
        let words = "jackdaws love my big sphinx of quartz";
        repeats(
            &format!("See: {words}"),
            &format!("{words} and so"),
            &format!("See: {words} and so"),
        );
    }

    #[test]
    fn white_space_may_drift() {
        drifts("one two three fo", "\n\nwo three four", "one two three four");
        drifts("fn area() {\n    ret", "area() {\r\n  return", "fn area() {\n    return");
        drifts("an apple tree\n", "n apple tree\r\n  grows", "an apple tree\n  grows");
        drifts("an apple tree\n", "n apple tree \n\ngrows", "an apple tree\n\ngrows");
        drifts("an apple tree  ", "n apple tree grows", "an apple tree  grows");
        drifts("an apple tree\r", "n  apple tree\ngrows", "an apple tree\r\ngrows");
        repeats("an apple tree\n", "n apple tree\n\ngrows", "an apple tree\n\ngrows");
    }

    #[test]
    fn space_that_was_delivered_is_not_shown_again() {
        assert_eq!(repeated_space("", " \n"), 0);
        assert_eq!(repeated_space(" ", "  "), 1);
        assert_eq!(repeated_space("\n", "\r\n\t"), 2);
        assert_eq!(repeated_space("\n\n", "\n  "), 1);
        assert_eq!(repeated_space("\n  ", " \n   x"), 4);
        assert_eq!(repeated_space("\t", "    "), 0);
        assert_eq!(repeated_space("\n\u{3000}", "\r\n\u{3000}\u{3000}"), 5);
    }

    #[test]
    fn only_the_window_is_compared() {
        let text: String =
            (0..9000_u32).map(|n| char::from_u32(0x4e00 + n * 7919 % 20000).unwrap()).collect();
        let (delivered, rest) = text.split_at(24_000);
        let start = delivered.len() - WINDOW + 1;
        let start = (start..).find(|at| text.is_char_boundary(*at)).unwrap();
        repeats(delivered, &text[start..], &text);
        stays(delivered, &text[start - 3..], Seam::Plain);
        stays(delivered, rest, Seam::Plain);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut streaming = Streaming::new("one two three four", Join::Hint);
        assert_eq!(streaming.push("two thr"), "");
        let spaces = " ".repeat(MOST_HELD);
        let shown = streaming.push(&spaces).len();
        assert_eq!((shown, streaming.held()), (MOST_HELD + 7, 0));
        let mut streaming = Streaming::new("one two three four", Join::Hint);
        assert_eq!(streaming.push(&" ".repeat(MOST_HELD)), "");
        assert_eq!(streaming.held(), MOST_HELD);
    }

    #[test]
    fn no_more_is_held_than_may_be_repeated() {
        let mut streaming = Streaming::new("one two three four", Join::Hint);
        assert_eq!(streaming.push("fo"), "");
        assert_eq!((streaming.held(), streaming.splice()), (2, None));
        assert_eq!(streaming.push("x"), "fox");
        let mut streaming = Streaming::new("one two three four", Join::Hint);
        assert_eq!(streaming.push("six"), "six");
        assert_eq!((streaming.held(), streaming.push(" seven")), (0, " seven"));
        assert_eq!(streaming.splice().map(|splice| splice.seam), Some(Seam::Plain));
        assert_eq!(streaming.finish().0, "");
    }

    #[test]
    fn a_prefill_is_joined_as_it_is() {
        let splice = join("The quick brown", "quick brown fox", Join::Prefill);
        assert_eq!(splice, Splice::PLAIN);
        let mut streaming = Streaming::new("The quick brown", Join::Prefill);
        assert_eq!(streaming.push("quick brown fox"), "quick brown fox");
    }

    #[test]
    fn an_echo_is_left_out_if_it_is_whole() {
        for (continuation, trimmed) in
            [("The qüick fox", 10), ("The qüick", 10), ("The qüi", 0), ("The quick", 0), ("fox", 0)]
        {
            let splice = join("The qüick", continuation, Join::Echo);
            let seam = if trimmed > 0 { Seam::Echoed } else { Seam::Plain };
            assert_eq!((splice.seam, splice.trimmed), (seam, trimmed), "{continuation}");
            let mut streaming = Streaming::new("The qüick", Join::Echo);
            let mut shown = String::new();
            for (index, character) in continuation.chars().enumerate() {
                if continuation.starts_with("The qüick") && index < 8 {
                    assert_eq!(streaming.held(), continuation.char_indices().nth(index).unwrap().0);
                }
                shown.push_str(streaming.push(&character.to_string()));
            }
            let (rest, streamed) = streaming.finish();
            assert_eq!((shown + &rest, streamed), (splice.rest(continuation).to_owned(), splice));
        }
        assert_eq!(join("", "x", Join::Echo), Splice::PLAIN);
        assert_eq!(Streaming::new("", Join::Echo).push("x"), "x");
    }
}
