//! Additions of a batch to the sums and to the words, noted down as one row beside the rows of the batch.
//!
//! Sums that many writers share would have to be locked and rewritten by each batch. A batch writes one
//! delta instead, in the same transaction. Deltas are folded into the sums every second, and reports read
//! those that are not folded yet.
//!
//! Packed: a version, the number of lines, then for each line the hour, the series, which numbers are not
//! zero (eight bytes, the lowest bit first), and those. Numbers are varints with the sign in the lowest
//! bit. Then the words: six texts, each with its length before it, and three numbers.

use std::collections::{BTreeMap, HashMap};

use crate::sums::{HOUR, MEASURES, Numbers};

const VERSION: u8 = 2;
/// The version of the packed lines of 32 series, which the sums were kept as before.
const CHUNK_VERSION: u8 = 1;
/// Number of series in such a chunk.
pub(crate) const CHUNK: i64 = 32;
/// The error for deltas that are damaged, or that a later version wrote.
pub(crate) const DAMAGED: &str = "sums that this version cannot read: they are damaged, or a later version of \
                                  endstop wrote them";

/// A provider's finish reason as it was seen: provider, model, dialect, field, word, our reason.
pub(crate) type Word<'a> = [std::borrow::Cow<'a, str>; 6];

/// Number of times that a word was seen, and the first and the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) count: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Seen {
    fn add(&mut self, by: Self) {
        self.count = self.count.saturating_add(by.count);
        self.first = self.first.min(by.first);
        self.last = self.last.max(by.last);
    }
}

/// Changes of sums by hour and series, and of words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) lines: BTreeMap<(i64, i64), Numbers>,
    /// By their packed texts: deltas have the same ones again and again.
    words: HashMap<Vec<u8>, Seen, foldhash::fast::RandomState>,
}

impl Delta {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.words.is_empty()
    }

    /// Returns the words, in order.
    pub(crate) fn words(&self) -> BTreeMap<[String; 6], Seen> {
        let read = |(packed, seen): (&Vec<u8>, &Seen)| {
            let mut rest = packed.as_slice();
            let texts =
                std::array::from_fn(|_| pull_text(&mut rest).unwrap_or_default().to_owned());
            (texts, *seen)
        };
        self.words.iter().map(read).collect()
    }

    /// Adds a packed delta; none if it is damaged, or of a later version, and then all is to be thrown away.
    pub(crate) fn unpack(&mut self, packed: &[u8]) -> Option<()> {
        let (version, mut rest) = packed.split_first()?;
        if *version != VERSION {
            return None;
        }
        for _ in 0..pull(&mut rest)? {
            let hour = pull(&mut rest)?.checked_mul(HOUR)?;
            let series = pull(&mut rest)?;
            self.pull_line(hour, series, &mut rest)?;
        }
        while !rest.is_empty() {
            let word = rest;
            for _ in 0..6 {
                pull_text(&mut rest)?;
            }
            let word = word.get(..word.len() - rest.len())?;
            let [count, first, last] = [pull(&mut rest)?, pull(&mut rest)?, pull(&mut rest)?];
            let by = Seen { count, first, last };
            if let Some(seen) = self.words.get_mut(word) {
                seen.add(by);
            } else {
                self.words.insert(word.to_vec(), by);
            }
        }
        Some(())
    }

    /// Adds the lines of a chunk, which the sums were kept as before; none if they are damaged, and then all is
    /// to be thrown away.
    pub(crate) fn unpack_chunk(&mut self, hour: i64, chunk: i64, packed: &[u8]) -> Option<()> {
        let (version, mut rest) = packed.split_first()?;
        if *version != CHUNK_VERSION {
            return None;
        }
        while let Some((at, after)) = rest.split_first() {
            rest = after;
            let series = chunk.checked_mul(CHUNK)?.checked_add(i64::from(*at))?;
            self.pull_line(hour, series, &mut rest)?;
        }
        Some(())
    }

    /// Adds the numbers of a line.
    fn pull_line(&mut self, hour: i64, series: i64, rest: &mut &[u8]) -> Option<()> {
        let (mask, after) = rest.split_first_chunk()?;
        *rest = after;
        let mut mask = u64::from_le_bytes(*mask);
        let line = self.lines.entry((hour, series)).or_insert([0; MEASURES]);
        while mask != 0 {
            let number = line.get_mut(mask.trailing_zeros() as usize)?;
            *number = number.saturating_add(pull(rest)?);
            mask &= mask - 1;
        }
        Some(())
    }
}

/// Packs lines of different hours or series, and different words.
pub(crate) fn pack(lines: &[((i64, i64), &Numbers)], words: &[(&Word<'_>, Seen)]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(64 * (1 + lines.len() + words.len()));
    packed.push(VERSION);
    push(&mut packed, lines.len() as i64);
    for ((hour, series), numbers) in lines {
        push(&mut packed, hour / HOUR);
        push(&mut packed, *series);
        let mask = (0..)
            .zip(*numbers)
            .fold(0_u64, |mask, (bit, number)| if *number == 0 { mask } else { mask | 1 << bit });
        packed.extend(mask.to_le_bytes());
        numbers.iter().filter(|number| **number != 0).for_each(|number| {
            push(&mut packed, *number);
        });
    }
    for (word, seen) in words {
        word.iter().for_each(|text| push_text(&mut packed, text));
        [seen.count, seen.first, seen.last].into_iter().for_each(|it| push(&mut packed, it));
    }
    packed
}

fn push_text(packed: &mut Vec<u8>, text: &str) {
    push(packed, text.len() as i64);
    packed.extend(text.as_bytes());
}

fn pull_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(pull(rest)?).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

fn push(packed: &mut Vec<u8>, number: i64) {
    let mut number = (number << 1 ^ number >> 63).cast_unsigned();
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn pull(rest: &mut &[u8]) -> Option<i64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd() -> Delta {
        let mut delta = Delta::default();
        for (series, number) in [(31, i64::MAX), (0, i64::MIN + 1), (7, 300)] {
            let mut numbers = [0; MEASURES];
            numbers[(series % 9) as usize] = number;
            numbers[MEASURES - 1] = number / 2;
            delta.lines.insert((481_000 * HOUR, series), numbers);
        }
        let word = ["openai", "", "ä", "f", "stop", "complete"].map(str::to_owned);
        delta.see(&word, Seen { count: 3, first: 20, last: 30 });
        delta.see(&word, Seen { count: -1, first: 10, last: 25 });
        delta
    }

    fn packed(delta: &Delta) -> Vec<u8> {
        let lines: Vec<_> = delta.lines.iter().map(|(place, numbers)| (*place, numbers)).collect();
        let words: Vec<(Word<'_>, Seen)> = delta
            .words()
            .into_iter()
            .map(|(word, seen)| (word.map(std::borrow::Cow::Owned), seen))
            .collect();
        let words: Vec<_> = words.iter().map(|(word, seen)| (word, *seen)).collect();
        pack(&lines, &words)
    }

    impl Delta {
        /// Adds a word.
        fn see(&mut self, word: &[String; 6], by: Seen) {
            let mut packed = Vec::new();
            word.iter().for_each(|text| push_text(&mut packed, text));
            self.words.entry(packed).or_insert(Seen { count: 0, ..by }).add(by);
        }
    }

    #[test]
    fn a_delta_is_read_as_it_was_packed() {
        let delta = odd();
        let mut read = Delta::default();
        read.unpack(&packed(&delta)).unwrap();
        assert_eq!(read, delta);
        let (word, seen) = read.words().pop_first().unwrap();
        assert_eq!(word, ["openai", "", "ä", "f", "stop", "complete"]);
        assert_eq!(seen, Seen { count: 2, first: 10, last: 30 });
        read.unpack(&packed(&Delta::default())).unwrap();
        assert_eq!(read, delta);
        read.unpack(&packed(&delta)).unwrap();
        assert_eq!(read.lines[&(481_000 * HOUR, 7)][7], 600);
        assert_eq!(read.lines[&(481_000 * HOUR, 31)][31 % 9], i64::MAX);
        let (_, seen) = read.words().pop_first().unwrap();
        assert_eq!(seen, Seen { count: 4, first: 10, last: 30 });
    }

    #[test]
    fn damage_is_noticed_and_never_panics() {
        let packed = packed(&odd());
        for end in 0..packed.len() {
            let mut read = Delta::default();
            let whole = read.unpack(&packed[..end]).is_some();
            // Behind the last line it is whole, but for its words.
            let without_words = read.lines == odd().lines && read.words.is_empty();
            assert!(!whole || without_words, "cut at {end}");
        }
        for at in 0..packed.len() {
            let mut packed = packed.clone();
            packed[at] ^= 0xff;
            let _ = Delta::default().unpack(&packed);
            let _ = Delta::default().unpack_chunk(0, 1, &packed);
        }
        assert_eq!(Delta::default().unpack(&[]), None);
        assert_eq!(Delta::default().unpack(&[1]), None);
        let not_text = [2, 0, 2, 0xff, 0, 0, 0, 0, 0, 2, 2, 2];
        assert_eq!(Delta::default().unpack(&not_text), None);
    }

    #[test]
    fn chunks_of_an_earlier_version_are_read() {
        // Where in the chunk, which numbers, and those: 5 responses, and -2 of the last bucket.
        let mut packed = vec![1, 7];
        packed.extend((1_u64 | 1 << (MEASURES - 1)).to_le_bytes());
        packed.extend([10, 3]);
        let mut read = Delta::default();
        read.unpack_chunk(HOUR, 3, &packed).unwrap();
        let numbers = read.lines[&(HOUR, 3 * CHUNK + 7)];
        assert_eq!((numbers[0], numbers[MEASURES - 1]), (5, -2));
        assert_eq!(read.unpack_chunk(0, i64::MAX, &packed), None);
    }
}
