//! Additions of a batch to the sums and to the words, noted down as one row beside the rows of the batch.
//!
//! Sums that many writers share would have to be locked and rewritten by each batch. A batch writes one
//! delta instead, in the same transaction. Deltas are folded into the sums every second, and reports read
//! those that are not folded yet.
//!
//! Packed: a version, the number of lines, then for each line the hour, the series, which numbers are not
//! zero (eight bytes, the lowest bit first), and those. Numbers are varints with the sign in the lowest
//! bit. Then the words: six texts, each with its length before it, and three numbers.

use std::collections::BTreeMap;

use crate::sums::{self, HOUR, MEASURES, Numbers};

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

/// Changes of sums by hour and series, and of words, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) lines: BTreeMap<(i64, i64), Numbers>,
    pub(crate) words: BTreeMap<[String; 6], Seen>,
}

impl Delta {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.words.is_empty()
    }

    pub(crate) fn add(&mut self, hour: i64, series: i64, numbers: &Numbers) {
        sums::add(self.lines.entry((hour, series)).or_insert([0; MEASURES]), numbers, 1);
    }

    pub(crate) fn see(&mut self, word: [String; 6], by: Seen) {
        let seen = self.words.entry(word).or_insert(Seen { count: 0, ..by });
        seen.count = seen.count.saturating_add(by.count);
        seen.first = seen.first.min(by.first);
        seen.last = seen.last.max(by.last);
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(64 * (1 + self.lines.len() + self.words.len()));
        packed.push(VERSION);
        push(&mut packed, self.lines.len() as i64);
        for ((hour, series), numbers) in &self.lines {
            push(&mut packed, hour / HOUR);
            push(&mut packed, *series);
            let mask =
                (0..).zip(numbers).fold(
                    0_u64,
                    |mask, (bit, number)| {
                        if *number == 0 { mask } else { mask | 1 << bit }
                    },
                );
            packed.extend(mask.to_le_bytes());
            numbers.iter().filter(|number| **number != 0).for_each(|number| {
                push(&mut packed, *number);
            });
        }
        for (word, seen) in &self.words {
            for text in word {
                push(&mut packed, text.len() as i64);
                packed.extend(text.as_bytes());
            }
            [seen.count, seen.first, seen.last].into_iter().for_each(|it| push(&mut packed, it));
        }
        packed
    }

    /// Adds a packed delta; none if it is damaged, or of a later version. Then nothing is added.
    pub(crate) fn unpack(&mut self, packed: &[u8]) -> Option<()> {
        let mut read = Self::default();
        let (version, mut rest) = packed.split_first()?;
        if *version != VERSION {
            return None;
        }
        for _ in 0..pull(&mut rest)? {
            let hour = pull(&mut rest)?.checked_mul(HOUR)?;
            let series = pull(&mut rest)?;
            read.add(hour, series, &pull_numbers(&mut rest)?);
        }
        while !rest.is_empty() {
            let mut word: [String; 6] = Default::default();
            for text in &mut word {
                let length = usize::try_from(pull(&mut rest)?).ok()?;
                let (bytes, after) = rest.split_at_checked(length)?;
                *text = String::from_utf8(bytes.to_vec()).ok()?;
                rest = after;
            }
            let [count, first, last] = [pull(&mut rest)?, pull(&mut rest)?, pull(&mut rest)?];
            read.see(word, Seen { count, first, last });
        }
        self.merge(read);
        Some(())
    }

    /// Adds the lines of a chunk, which the sums were kept as before; none if they are damaged.
    pub(crate) fn unpack_chunk(&mut self, hour: i64, chunk: i64, packed: &[u8]) -> Option<()> {
        let mut read = Self::default();
        let (version, mut rest) = packed.split_first()?;
        if *version != CHUNK_VERSION {
            return None;
        }
        while let Some((at, after)) = rest.split_first() {
            rest = after;
            let series = chunk.checked_mul(CHUNK)?.checked_add(i64::from(*at))?;
            read.add(hour, series, &pull_numbers(&mut rest)?);
        }
        self.merge(read);
        Some(())
    }

    fn merge(&mut self, other: Self) {
        for ((hour, series), numbers) in other.lines {
            self.add(hour, series, &numbers);
        }
        for (word, seen) in other.words {
            self.see(word, seen);
        }
    }
}

fn pull_numbers(rest: &mut &[u8]) -> Option<Numbers> {
    let (mask, after) = rest.split_first_chunk()?;
    *rest = after;
    let mut mask = u64::from_le_bytes(*mask);
    let mut numbers = [0; MEASURES];
    while mask != 0 {
        *numbers.get_mut(mask.trailing_zeros() as usize)? = pull(rest)?;
        mask &= mask - 1;
    }
    Some(numbers)
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
        for (series, number) in [(31, i64::MAX), (0, i64::MIN + 1), (7, -1), (7, 301)] {
            let mut numbers = [0; MEASURES];
            numbers[(series % 9) as usize] = number;
            numbers[MEASURES - 1] = number / 2;
            delta.add(481_000 * HOUR, series, &numbers);
        }
        let word = ["openai", "", "ä", "f", "stop", "complete"].map(str::to_owned);
        delta.see(word.clone(), Seen { count: 3, first: 20, last: 30 });
        delta.see(word, Seen { count: -1, first: 10, last: 25 });
        delta
    }

    #[test]
    fn a_delta_is_read_as_it_was_packed() {
        let delta = odd();
        let mut read = Delta::default();
        read.unpack(&delta.pack()).unwrap();
        assert_eq!(read, delta);
        assert_eq!(read.lines[&(481_000 * HOUR, 7)][7], 300);
        let seen = read.words.values().next().unwrap();
        assert_eq!(*seen, Seen { count: 2, first: 10, last: 30 });
        read.unpack(&Delta::default().pack()).unwrap();
        assert_eq!(read, delta);
    }

    #[test]
    fn damage_is_noticed_and_never_panics() {
        let packed = odd().pack();
        for end in 0..packed.len() {
            let mut read = Delta::default();
            let whole = read.unpack(&packed[..end]).is_some();
            // Behind the last line it is whole, but for its words.
            assert!(!whole || (read.lines == odd().lines && read.words.is_empty()), "cut at {end}");
        }
        for at in 0..packed.len() {
            let mut packed = packed.clone();
            packed[at] ^= 0xff;
            let _ = Delta::default().unpack(&packed);
            let _ = Delta::default().unpack_chunk(0, 1, &packed);
        }
        assert_eq!(Delta::default().unpack(&[]), None);
        assert_eq!(Delta::default().unpack(&[1]), None);
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
