//! The packed lines of a chunk of the rollup.
//!
//! A version, then for each series in order: where it stands in the chunk (one byte), which of its numbers
//! are not zero (eight bytes, the lowest bit first), and those, each as a varint with its sign in the
//! lowest bit. A line of zeros is left out.

use crate::rollup::{CHUNK, MEASURES, Numbers};

const VERSION: u8 = 1;
/// What is said of lines that are damaged, or of a version to come.
pub(crate) const DAMAGED: &str = "the rollup has lines that cannot be read";

/// The lines of one chunk, by where they stand in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines(Vec<(u8, Numbers)>);

impl Lines {
    /// Reads packed lines; none if they are damaged, or of a version to come.
    pub(crate) fn read(packed: &[u8]) -> Option<Self> {
        let mut lines = Vec::new();
        each(packed, |at, numbers| lines.push((at, *numbers)))?;
        Some(Self(lines))
    }

    /// Adds to the line of a series of this chunk.
    pub(crate) fn add(&mut self, series: i64, numbers: &Numbers) {
        self.add_at(series.rem_euclid(CHUNK) as u8, numbers);
    }

    /// Adds what others say.
    pub(crate) fn merge(&mut self, others: &Self) {
        others.0.iter().for_each(|(at, numbers)| self.add_at(*at, numbers));
    }

    fn add_at(&mut self, at: u8, numbers: &Numbers) {
        match self.0.binary_search_by_key(&at, |(at, _)| *at) {
            Ok(found) => {
                let line = self.0.get_mut(found).map(|(_, line)| line.iter_mut().zip(numbers));
                line.into_iter().flatten().for_each(|(mine, by)| *mine = mine.saturating_add(*by));
            }
            Err(place) => self.0.insert(place, (at, *numbers)),
        }
    }

    /// Packs them.
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(1 + 64 * self.0.len());
        packed.push(VERSION);
        for (at, numbers) in &self.0 {
            let mask =
                (0..).zip(numbers).fold(
                    0_u64,
                    |mask, (bit, number)| {
                        if *number == 0 { mask } else { mask | 1 << bit }
                    },
                );
            if mask == 0 {
                continue;
            }
            packed.push(*at);
            packed.extend(mask.to_le_bytes());
            numbers.iter().filter(|number| **number != 0).for_each(|number| {
                push(&mut packed, (number << 1 ^ number >> 63).cast_unsigned());
            });
        }
        packed
    }
}

/// Hands each line over; none if they are damaged.
pub(crate) fn each(packed: &[u8], mut line: impl FnMut(u8, &Numbers)) -> Option<()> {
    let (&version, mut rest) = packed.split_first()?;
    if version != VERSION {
        return None;
    }
    while let Some((&at, after)) = rest.split_first() {
        let (mask, after) = after.split_first_chunk()?;
        let mut mask = u64::from_le_bytes(*mask);
        rest = after;
        let mut numbers = [0; MEASURES];
        while mask != 0 {
            let number = pull(&mut rest)?;
            *numbers.get_mut(mask.trailing_zeros() as usize)? =
                (number >> 1).cast_signed() ^ -(number & 1).cast_signed();
            mask &= mask - 1;
        }
        line(at, &numbers);
    }
    Some(())
}

fn push(packed: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn pull(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn odd() -> Lines {
        let mut lines = Lines::default();
        for (series, number) in [(31, i64::MAX), (0, i64::MIN), (7, -1), (7, 301), (8, 0)] {
            let mut numbers = [0; MEASURES];
            numbers[(series % 9) as usize] = number;
            numbers[MEASURES - 1] = number / 2;
            lines.add(series + 3 * CHUNK, &numbers);
        }
        lines
    }

    #[test]
    fn lines_are_read_as_they_were_packed() {
        let lines = odd();
        let mut read = Lines::read(&lines.pack()).unwrap();
        assert_eq!(read.0.len(), 3, "the line of zeros is left out");
        assert_eq!(read.0[1].1[7], 300);
        read.add_at(8, &[0; MEASURES]);
        assert_eq!(read, lines);
        assert_eq!(Lines::read(&[VERSION]), Some(Lines::default()));
    }

    #[test]
    fn damage_is_noticed_and_never_panics() {
        let packed = odd().pack();
        for end in 0..packed.len() {
            let whole = Lines::read(&packed[..end]);
            assert!(whole.is_none_or(|lines| lines.0.len() < 3), "cut at {end}");
        }
        for at in 0..packed.len() {
            let mut packed = packed.clone();
            packed[at] ^= 0xff;
            let _ = Lines::read(&packed);
        }
        assert_eq!(Lines::read(&[]), None);
        assert_eq!(Lines::read(&[2]), None);
    }
}
