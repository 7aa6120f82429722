//! Pieces: measurements of a response's text that a policy needs, without the text.

use endstop::hash::Fnv;
use serde::{Deserialize, Serialize};

/// Measurements of one response's text. The text cannot be recovered from them.
///
/// ```
/// use endstop_turn::policy::Piece;
///
/// let piece = Piece::of("über and over");
/// assert_eq!((piece.chars, piece.bytes), (13, 14));
/// // A splice found that it begins with five characters that were there already.
/// assert_eq!(piece.trimmed(5).new_chars, 8);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Number of characters.
    pub chars: u64,
    /// Number of characters that do not repeat earlier text.
    pub new_chars: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Hash of the text, the same in every process.
    pub hash: u64,
    /// Whether the text ends with the same passage many times.
    pub repetitive: bool,
}

/// Lengths of the tails that are checked for repetition, in bytes.
const TAILS: [usize; 4] = [512, 1024, 2048, 4096];
/// Number of occurrences that make a passage repetitive.
const TIMES: usize = 8;

impl Piece {
    /// Measures this text. All of it counts as new.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let chars = text.chars().count() as u64;
        Self {
            chars,
            new_chars: chars,
            bytes: text.len() as u64,
            hash: Fnv::default().mix_bytes(text.as_bytes()).value(),
            repetitive: is_repetitive(text.as_bytes()),
        }
    }

    /// Marks this number of characters as a repetition of earlier text.
    #[must_use]
    pub fn trimmed(self, chars: u64) -> Self {
        Self { new_chars: self.chars.saturating_sub(chars), ..self }
    }

    /// Estimates the number of tokens at four bytes each, for providers that do not report it.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.bytes.div_ceil(4)
    }
}

/// Reports whether one of the tails is a passage that occurs at least eight times.
fn is_repetitive(bytes: &[u8]) -> bool {
    TAILS.iter().any(|length| {
        let tail = bytes.len().checked_sub(*length).and_then(|from| bytes.get(from..));
        tail.is_some_and(|tail| period(tail) * TIMES <= tail.len())
    })
}

/// Returns the smallest shift at which the bytes match themselves.
fn period(bytes: &[u8]) -> usize {
    // The failure function of Knuth, Morris and Pratt: the length of each prefix's border.
    let mut borders: Vec<usize> = vec![0; bytes.len()];
    let mut border = 0;
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        while border > 0 && bytes.get(border) != Some(byte) {
            border = borders.get(border - 1).copied().unwrap_or(0);
        }
        if bytes.get(border) == Some(byte) {
            border += 1;
        }
        if let Some(slot) = borders.get_mut(at) {
            *slot = border;
        }
    }
    bytes.len() - border
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_at_the_end_is_seen_and_prose_is_not() {
        let prose: String = (0..2000).map(|number| format!("Sentence {number}. ")).collect();
        assert!(!Piece::of(&prose).repetitive);
        assert!(!Piece::of(&"ab".repeat(255)).repetitive, "510 bytes are too few to judge");
        assert!(Piece::of(&"ab".repeat(256)).repetitive);
        assert!(Piece::of(&format!("{prose}{}", "I am sorry. ".repeat(60))).repetitive);
        let line = |length: usize| format!("{}\n", "x1y2z3".repeat(length));
        // 8 x 64 bytes are 512 bytes, so eight such lines are enough and seven are not.
        let passage: String = (0..64_u8).map(|number| char::from(b'0' + number)).collect();
        assert!(!Piece::of(&format!("{prose}{}", passage.repeat(7))).repetitive);
        assert!(Piece::of(&format!("{prose}{}", passage.repeat(8))).repetitive);
        assert!(Piece::of(&line(80).repeat(9)).repetitive, "a long line, nine times");
        assert!(!Piece::of(&line(80).repeat(7)).repetitive);
        assert!(!Piece::of("").repetitive);
    }

    #[test]
    fn the_period_of_a_text() {
        for (text, want) in [("", 0), ("a", 1), ("aaaa", 1), ("abab", 2), ("aba", 2), ("abc", 3)] {
            assert_eq!(period(text.as_bytes()), want, "{text}");
        }
        assert_eq!(period(b"aabaaab"), 4);
    }

    #[test]
    fn tokens_are_estimated_by_bytes() {
        assert_eq!(Piece::of("").tokens(), 0);
        assert_eq!(Piece::of("abcd").tokens(), 1);
        assert_eq!(Piece::of("abcde").tokens(), 2);
        assert_eq!(Piece::of("ab").trimmed(3).new_chars, 0);
    }
}
