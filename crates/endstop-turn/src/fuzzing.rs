//! Fuzz functions for fuzz targets and seeded tests.

use crate::splice::{Join, Streaming, join};

/// A source of choices that takes one byte each, and returns zero at the end.
struct Dice<'a>(&'a [u8]);

impl Dice<'_> {
    fn roll(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first)
    }
}

/// Checks that a splice does not depend on how the continuation is split into pieces, and that the
/// trimmed text stands at the end of the delivered text, except for whitespace.
///
/// # Panics
/// Panics if a check fails.
pub fn splice(data: &[u8]) {
    let mut dice = Dice(data);
    let (how, at, back, seed) = (dice.roll(), dice.roll(), dice.roll(), dice.roll());
    let how = match how % 4 {
        0 => Join::Prefill,
        1 => Join::Echo,
        2 => Join::EmptyEcho,
        _ => Join::Hint,
    };
    let text = String::from_utf8_lossy(dice.0);
    let boundary = |at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let at = boundary(at * 2).unwrap_or(0);
    let back = boundary(at.saturating_sub(back)).unwrap_or(0);
    let delivered = text.get(..at).unwrap_or_default();
    let continuation = text.get(back..).unwrap_or_default();
    let splice = join(delivered, continuation, how);
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let trimmed = continuation.get(..splice.trimmed).unwrap_or_default();
    assert!(bare(delivered).ends_with(&bare(trimmed)));
    let mut streaming = Streaming::new(delivered, how);
    let mut shown = String::new();
    let mut held = String::new();
    for (index, character) in continuation.chars().enumerate() {
        held.push(character);
        if (index + seed) % (1 + seed % 7) == 0 {
            shown.push_str(streaming.push(&held));
            held.clear();
        }
    }
    shown.push_str(streaming.push(&held));
    let (rest, streamed) = streaming.finish();
    assert_eq!(streamed, splice);
    assert_eq!(shown + &rest, splice.rest(continuation));
}

#[cfg(test)]
mod tests {
    /// Runs a fuzz function on a fixed sequence of inputs.
    fn seeds(runs: u32, alphabet: &[u8], fuzz: fn(&[u8])) {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut roll = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % (1 << 32)).unwrap()
        };
        for _ in 0..runs {
            let length = roll() % 200;
            let mut data: Vec<u8> = (0..4).map(|_| u8::try_from(roll() % 256).unwrap()).collect();
            data.extend((0..length).map(|_| match alphabet {
                [] => u8::try_from(roll() % 256).unwrap(),
                alphabet => alphabet[roll() % alphabet.len()],
            }));
            fuzz(&data);
        }
    }

    #[test]
    fn splice() {
        seeds(20_000, b"aab \n.,\xc3\xa9", super::splice);
        seeds(20_000, b"abcdefghijklmnopqrstuvwxyz  \n.", super::splice);
        seeds(5_000, &[], super::splice);
    }
}
