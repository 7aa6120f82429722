//! The search for the overlap between a text and its continuation.

use std::collections::HashMap;

use endstop::hash::Fnv;

use super::characters::{
    bucket, ends_clause, ends_sentence, is_alike, is_inside_word, is_mark, is_unspaced,
};
use super::{MOST_HELD, Seam, Splice, WINDOW};

/// Minimum number of characters in an overlap.
const LEAST_CHARACTERS: usize = 4;
/// Minimum number of bytes in an overlap.
const LEAST_BYTES: usize = 6;

// Minimum information in an overlap, in quarters of a bit, by where its unit begins and ends.

/// Minimum for a unit that begins and ends inside words.
const LEAST_INSIDE: u64 = 4 * 20;
/// Minimum for a unit inside a word and at a word boundary, or between letters of a script without
/// spaces.
const LEAST_PART: u64 = 4 * 32;
/// Minimum for a unit at word boundaries.
const LEAST_WORD: u64 = 4 * 64;
/// Minimum for a unit at a word boundary and a clause boundary.
const LEAST_CLAUSE: u64 = 4 * 96;
/// Minimum for a unit at clause boundaries.
const LEAST_CLAUSES: u64 = 4 * 128;
/// Minimum for a unit at the end of a line or sentence.
const LEAST_SENTENCE: u64 = 4 * 160;

/// Maximum information in one character, in quarters of a bit.
const MOST_EACH: u64 = 4 * 6;
/// Number of further characters that make a repeated unit periodic text, not a repetition by the
/// model.
const LEAST_RUN: usize = 3;
/// Minimum length of lines and sentences that count. Shorter ones repeat in any text.
const LEAST_UNIT: usize = 6;
/// Minimum length of lines and sentences that repeat only in repetitive text.
const LONG_UNIT: usize = 20;
/// Number of lines or sentences without a direct repetition after which none is expected.
const LEAST_UNITS: usize = 32;
/// Extra weight of each new line or sentence in the overlap. A text is less likely to contain a
/// larger group twice.
const WEIGHT_IN_OVERLAP: usize = 6;
/// Maximum number of marks on a character that are considered.
const MOST_MARKS: usize = 4;
/// Maximum number of readings. Text with more readings is periodic.
const MOST_READINGS: usize = 16;

/// A character that is not whitespace.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    character: char,
    /// The whitespace before it.
    gap: Gap,
    /// End offset in its text, in bytes.
    end: usize,
}

/// Whitespace between two symbols.
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

/// The kind of boundary between two characters, by the likelihood that a unit of the text begins or
/// ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Inside,
    /// Between letters of a script without spaces between words.
    Unspaced,
    Word,
    Clause,
    Sentence,
    Line,
}

/// The symbols of a text, read character by character.
#[derive(Clone, Debug)]
struct Symbols {
    list: Vec<Symbol>,
    /// The whitespace since the last symbol.
    gap: Gap,
    /// Number of bytes read.
    read: usize,
}

impl Symbols {
    fn new() -> Self {
        Self { list: Vec::new(), gap: Gap::None, read: 0 }
    }

    /// Reads a character and reports whether it is a symbol.
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

    /// Returns the end offset of the first `symbols` symbols.
    fn end(&self, symbols: usize) -> usize {
        symbols.checked_sub(1).and_then(|last| self.list.get(last)).map_or(0, |symbol| symbol.end)
    }
}

/// One way to read the overlap as part of the text: the model repeated only `border` symbols, and
/// the text contains a unit of `period` symbols at least twice.
#[derive(Clone, Copy, Debug)]
struct Reading {
    border: usize,
    period: usize,
    /// Number of symbols by which the unit continues before the overlap.
    before: usize,
    /// Number of symbols by which the unit continues after the overlap, so far.
    after: usize,
    /// Whether the unit may continue further.
    open: bool,
}

impl Reading {
    /// Reports whether the unit continues far enough to make this reading likely.
    fn is_likely(&self) -> bool {
        self.border + self.before + self.after >= LEAST_RUN.max(self.period / 2)
    }
}

/// The seeker's finding at the beginning of a continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// Number of symbols that are repeated.
    Repetition(usize),
    /// Number of symbols that may be repeated.
    Doubt(usize),
}

/// The search for the overlap.
///
/// This is the Knuth-Morris-Pratt search for the continuation in the end of the delivered text,
/// with a pattern that still grows. It stays at the first position where the known part of the
/// pattern matches. At the end of the text, the matching part is the overlap. Further text cannot
/// make it longer.
#[derive(Clone, Debug)]
pub(super) struct Seeker {
    /// The end of the delivered text.
    tail: String,
    delivered: Symbols,
    /// Frequency of characters in the delivered text, by their lowest byte. Characters that share
    /// this byte make each other look more common.
    counts: Vec<u32>,
    continuation: Symbols,
    /// For each prefix of the continuation, the length of its longest proper prefix that is also
    /// its suffix.
    borders: Vec<usize>,
    /// Number of symbols of `delivered` that were searched.
    searched: usize,
    /// Number of symbols of the continuation that match there.
    fits: usize,
    /// Ways to read the overlap as part of the text, once the search is complete.
    readings: Vec<Reading>,
    /// Information in the overlap, in quarters of a bit.
    information: u64,
    /// Whether the text so far does not repeat its lines.
    lines_vary: bool,
    /// Whether the text so far does not repeat its sentences.
    sentences_vary: bool,
    /// Number of symbols of the continuation that were compared with the readings.
    compared: usize,
}

impl Seeker {
    pub(super) fn new(delivered: &str) -> Self {
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

    /// Reads a character of the continuation. Returns the finding as soon as further text cannot
    /// change it.
    pub(super) fn read(&mut self, character: char) -> Option<Found> {
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

    /// Ends the continuation and returns the finding.
    pub(super) fn finish(&mut self) -> Found {
        if !self.is_searched() {
            // A match cannot exceed the pattern, so this reaches the end of the text.
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

    /// Records the border that ends at the symbol just read.
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

    /// Returns the length of the border of the continuation's first `symbols` symbols.
    fn border_of(&self, symbols: usize) -> usize {
        symbols.checked_sub(1).and_then(|last| self.borders.get(last)).copied().unwrap_or(0)
    }

    /// Continues the search until `enough` symbols match or the text ends.
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

    /// Judges the overlap by its size and period. If that does not settle it, collects the
    /// readings.
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

    /// Returns the information in the overlap, in quarters of a bit.
    fn information(&self) -> u64 {
        let symbols = self.continuation.list.get(..self.fits).unwrap_or_default();
        // The delivered text may be short, so count some more characters, all different, in
        // proportion to the number of different characters in it.
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

    /// Reports whether the delivered text has many units between such edges and contains none of
    /// them, and no group of them, twice in a row. Most units in the overlap must be new.
    fn vary(&self, edge: Edge) -> bool {
        let overlap = self.delivered.list.len() - self.fits;
        let mut last = HashMap::new();
        let (mut units, mut distance, mut streak) = (0, 0, 0);
        let (mut new, mut old) = (0, 0);
        let (mut fresh, mut again) = (0, false);
        let (mut print, mut length) = (Fnv::default(), 0);
        for (index, symbol) in self.delivered.list.iter().enumerate() {
            if self.edge(index, 0) >= edge {
                if length >= LEAST_UNIT {
                    let apart = last.insert(print.value(), units).map(|earlier| units - earlier);
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
                (print, length) = (Fnv::default(), 0);
            }
            print = print.mix(u64::from(symbol.character));
            length += 1;
        }
        // If a long unit occurred again, even later, only a large number of units is evidence.
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

    /// Compares the text after the overlap with the text that each reading expects.
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

    /// Judges whether the overlap carries enough information for the boundaries of its units.
    fn judge(&self) -> Found {
        // A model that restarts a line or sentence would add more text.
        if self.continuation.list.len() == self.fits && self.begins_whole() {
            return Found::Doubt(self.fits);
        }
        let least = self.readings.iter().map(|reading| self.least(reading)).max();
        if self.information < least.unwrap_or(u64::MAX) {
            return Found::Doubt(self.fits);
        }
        Found::Repetition(self.fits)
    }

    /// Reports whether the overlap begins at the start of a line or sentence.
    fn begins_whole(&self) -> bool {
        self.edge(self.delivered.list.len() - self.fits, 0) >= Edge::Sentence
    }

    /// Returns the information that the overlap needs to rule out this reading. The text in this
    /// reading is longer than two units, so the unit may begin at several places.
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

    /// Returns a symbol of the text, read as if `border` symbols were repeated.
    fn symbol(&self, index: usize, border: usize) -> Option<&Symbol> {
        match index.checked_sub(self.delivered.list.len()) {
            None => self.delivered.list.get(index),
            Some(beyond) => self.continuation.list.get(border + beyond),
        }
    }

    /// Returns the whitespace before a symbol.
    fn gap(&self, index: usize, border: usize) -> Gap {
        let gap = self.symbol(index, border).map_or(Gap::None, |symbol| symbol.gap);
        // If symbols were repeated, the space after them occurs twice.
        let joined = index == self.delivered.list.len() && border == 0;
        if joined { self.delivered.gap.max(gap) } else { gap }
    }

    /// Returns the edge before a symbol.
    fn edge(&self, index: usize, border: usize) -> Edge {
        let symbol = |back| self.symbol(index.checked_sub(back)?, border);
        let (Some(before), Some(after)) = (symbol(1), symbol(0)) else { return Edge::Line };
        // A mark counts as the character that it modifies, such as a letter or an emoji.
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

    /// Returns the splice for a continuation that begins with the text read so far.
    pub(super) fn splice(&self, found: Found, continuation: &str) -> Splice {
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

/// Returns the minimum information for a unit of whole lines or sentences.
fn if_varied(varied: bool) -> u64 {
    if varied { LEAST_SENTENCE } else { u64::MAX }
}

/// Returns the number of bytes of the whitespace after a repetition that repeat the delivered
/// whitespace.
pub(super) fn repeated_space(delivered: &str, space: &str) -> usize {
    if space.starts_with(delivered) {
        return delivered.len();
    }
    // The whitespace differs. Count as many line feeds as were delivered, plus the common part of
    // the last line's indent.
    let lines = delivered.matches('\n').count();
    let repeated = space.match_indices('\n').take(lines).last().map_or(0, |(at, _)| at + 1);
    let indent = delivered.rsplit('\n').next().unwrap_or_default();
    let (_, rest) = split(space, repeated);
    let same = indent.chars().zip(rest.chars()).take_while(|(one, other)| one == other);
    repeated + same.map(|(one, _)| one.len_utf8()).sum::<usize>()
}

/// Splits at an offset that is known to be a character boundary.
pub(super) fn split(text: &str, at: usize) -> (&str, &str) {
    text.split_at_checked(at).unwrap_or((text, ""))
}

/// Returns the last bytes of a text, from the first whole character.
pub(super) fn end_of(text: &str, bytes: usize) -> &str {
    let start = text.len().saturating_sub(bytes);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    split(text, start).1
}
