//! Joins the pieces of an answer without losing or inventing characters.
//!
//! A model that is asked to continue often begins by repeating the end of its earlier text. This
//! module finds that repetition and returns how much of the continuation to trim. The trimmed text
//! is always the beginning of the continuation. Except for whitespace, it always equals the end of
//! the delivered text. Nothing is inserted or changed.
//!
//! # Detecting a repetition
//!
//! The *overlap* is the longest end of the delivered text that also begins the continuation,
//! ignoring whitespace. Either the model repeated it, or the text really contains it twice and was
//! cut in between. The two cases cannot be distinguished with certainty. Losing text is worse than
//! a duplicate, so the overlap is trimmed only if all of these rules hold.
//!
//! 1. The overlap has at least 4 characters and 6 bytes, without whitespace, marks and joiners.
//!    Short overlaps occur by chance.
//! 2. It carries at least 20 bits, by the frequency of its characters in the last 8 KiB. `-----`
//!    carries less than `kjqxz`, and four ideographs carry more than four letters.
//! 3. It is not periodic: if the overlap is read as a unit that the text contains twice, the unit
//!    does not continue for half a unit more, before or after. In `aaaa`, repeated rows and
//!    periodic code, a unit that occurs twice may occur three times.
//! 4. Read that way, the unit does not consist of whole lines or sentences, because rows, items and
//!    verses do occur twice. Exception: the unit carries 160 bits, more text follows it, and in 32
//!    lines or sentences the text contains no group of them twice in a row. Those in the overlap
//!    count sevenfold if all are different.
//! 5. Read that way, the unit does not begin and end after punctuation, because cells and JSON
//!    members occur twice. Exception: it carries 128 bits (160 at the end of a line or sentence, 96
//!    if it begins after a word).
//! 6. Read that way, the unit does not begin and end at word boundaries, as in "very, very",
//!    恭喜发财恭喜发财 and "every very". Exception: it carries 64 bits (32 in scripts without
//!    spaces, or if it begins inside a word).
//!
//! The third and fourth rules apply to every unit that the overlap allows. The whole overlap is the
//! case of a continuation that repeats nothing; shorter units are continuations that repeat less.
//! The last four rules apply to every place in the unit where the cut may have happened. If a rule
//! other than the first two keeps an overlap, the seam is [`Seam::Doubtful`] and records the length
//! of the overlap.
//!
//! Text can still be lost if it contains a passage exactly twice and was cut exactly in between.
//! This affects passages that begin in the middle of a word, long passages, and several whole lines
//! after lines that were not repeated.
//!
//! Whitespace is not compared, so a repetition is found even if the model dropped a space, added a
//! line or changed line endings. If the repetition is exact, the trimmed text is exact too,
//! including whitespace. Otherwise, the trimmed text may differ from the delivered text in
//! whitespace only ([`Seam::Drifted`]).
//!
//! An overlap is not moved to a grapheme cluster boundary. If the text was cut between a letter and
//! its accent, or between a carriage return and its line feed, the continuation's accent or line
//! feed follows.
//!
//! # Cost
//!
//! Time is linear in the held part of the continuation. Only the last 8 KiB of the
//! delivered text are read, whatever its length. [`Streaming`] holds text back only while it could
//! still be a repetition, and only a few characters of text that is not. Its result equals that of
//! [`join`], however the text is split into pieces.

mod characters;
mod seeker;

use seeker::Seeker;

/// Length of the delivered text that is compared, in bytes. A longer repetition is not found.
pub(crate) const WINDOW: usize = 8 << 10;

/// Maximum text that is held back, in bytes. Beyond it, the continuation is not trimmed.
pub(crate) const MOST_HELD: usize = 4 * WINDOW;

/// The way the continuation was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Join {
    /// The model continued from a prefill. Its text is joined unchanged.
    Prefill,
    /// The model continued from a prefill that the provider sends back first. Exactly that is
    /// trimmed.
    Echo,
    /// The model continued from a prefill that the provider sends back only if nothing follows it. A
    /// continuation that is exactly that is trimmed.
    EmptyEcho,
    /// The model was asked in words to continue. An overlap is trimmed if it is a repetition.
    Hint,
}

/// The finding where two pieces meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seam {
    /// No significant overlap. The continuation is joined unchanged.
    Plain,
    /// The provider sent the prefill back, and it was trimmed.
    Echoed,
    /// The continuation repeated the end exactly, and the repetition was trimmed.
    Repeated,
    /// The continuation repeated the end with different whitespace, and the repetition was trimmed.
    Drifted,
    /// An overlap that the text may really contain twice. It was kept.
    Doubtful,
}

/// The way a continuation is joined to the delivered text.
///
/// ```
/// use endstop_turn::splice::{Join, Seam, join};
///
/// let splice = join("The answer is forty-t", "is forty-two.", Join::Hint);
/// assert_eq!((splice.seam, splice.rest("is forty-two.")), (Seam::Repeated, "wo."));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Splice {
    /// The finding at the seam.
    pub seam: Seam,
    /// Number of bytes trimmed from the beginning of the continuation.
    pub trimmed: usize,
    /// Number of characters trimmed.
    pub trimmed_characters: usize,
    /// Number of bytes at the beginning of the continuation that look repeated but are kept.
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

    /// Returns the continuation without the trimmed text.
    #[must_use]
    pub fn rest<'a>(&self, continuation: &'a str) -> &'a str {
        continuation.get(self.trimmed..).unwrap_or(continuation)
    }
}

/// Finds how to join a continuation to the delivered text.
///
/// ```
/// use endstop_turn::splice::{Join, Seam, join};
///
/// let (delivered, continuation) = ("The answer is forty-t", "is forty-two, as always.");
/// let splice = join(delivered, continuation, Join::Hint);
/// assert_eq!((splice.seam, splice.trimmed), (Seam::Repeated, 10));
/// assert_eq!(format!("{delivered}{}", splice.rest(continuation)), "The answer is forty-two, as always.");
///
/// // A passage that the text may really contain twice is kept.
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
        Join::EmptyEcho if continuation == delivered && !delivered.is_empty() => {
            Splice::trimmed(Seam::Echoed, delivered)
        }
        Join::EmptyEcho => Splice::PLAIN,
        Join::Hint => {
            let mut seeker = Seeker::new(delivered);
            let found = continuation.chars().find_map(|character| seeker.read(character));
            let found = found.unwrap_or_else(|| seeker.finish());
            seeker.splice(found, continuation)
        }
    }
}

/// Joins a continuation that arrives in pieces.
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
    /// Text that was pushed and not released. Released text stays until the next push.
    held: String,
}

#[derive(Clone, Debug)]
enum State {
    Seeking(Box<Seeker>),
    /// The prefill, and the number of its bytes that were sent back.
    Echo(String, usize),
    /// The same, for an echo that nothing follows.
    EmptyEcho(String, usize),
    Done(Splice),
}

impl Streaming {
    /// Begins a join to the delivered text. Keeps a copy of its end for a hint, or of all of it for
    /// an echo.
    #[must_use]
    pub fn new(delivered: &str, how: Join) -> Self {
        let state = match how {
            Join::Prefill => State::Done(Splice::PLAIN),
            Join::Echo | Join::EmptyEcho if delivered.is_empty() => State::Done(Splice::PLAIN),
            Join::Echo => State::Echo(delivered.to_owned(), 0),
            Join::EmptyEcho => State::EmptyEcho(delivered.to_owned(), 0),
            Join::Hint => State::Seeking(Box::new(Seeker::new(delivered))),
        };
        Self { state, held: String::new() }
    }

    /// Takes the next piece and returns the text that can be shown now.
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
            State::EmptyEcho(prefill, back) => {
                self.held.push_str(piece);
                if prefill.get(*back..).is_some_and(|left| left.starts_with(piece)) {
                    *back += piece.len();
                    return "";
                }
                Splice::PLAIN
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

    /// Returns the number of bytes held back because they may be a repetition.
    #[must_use]
    pub fn held(&self) -> usize {
        match self.state {
            State::Seeking(_) | State::Echo(..) | State::EmptyEcho(..) => self.held.len(),
            State::Done(_) => 0,
        }
    }

    /// Returns how the pieces are joined, if already known.
    #[must_use]
    pub fn splice(&self) -> Option<Splice> {
        match self.state {
            State::Done(splice) => Some(splice),
            State::Seeking(_) | State::Echo(..) | State::EmptyEcho(..) => None,
        }
    }

    /// Ends the continuation. Returns the held text that is to be shown, and how the pieces were
    /// joined.
    #[must_use]
    pub fn finish(mut self) -> (String, Splice) {
        let splice = match &mut self.state {
            State::Done(splice) => return (String::new(), *splice),
            // A truncated echo may be ordinary text.
            State::Echo(..) => Splice::PLAIN,
            State::EmptyEcho(prefill, _) => join(prefill, &self.held, Join::EmptyEcho),
            State::Seeking(seeker) => {
                let found = seeker.finish();
                seeker.splice(found, &self.held)
            }
        };
        self.held.drain(..splice.trimmed);
        (self.held, splice)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::string_slice, reason = "tests fail loudly")]

    use super::seeker::repeated_space;
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
        // The shorter `x` is also an overlap.
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
        // Marks and joiners do not count.
        stays("e\u{301}\u{302}\u{303}\u{304}z", "e\u{301}\u{302}\u{303}\u{304}z", Seam::Plain);
        stays("", "anything", Seam::Plain);
        stays("anything", "", Seam::Plain);
        stays(" \n", " \n", Seam::Plain);
    }

    #[test]
    fn four_characters_and_six_bytes_and_twenty_bits() {
        let delivered = "Sphinx of black quartz judge my vow qkzpw";
        repeats(&format!("{delivered}jfx"), "kzpwjfxenon", &format!("{delivered}jfxenon"));
        // At a word boundary, the overlap may be the end of a word that occurs twice.
        stays(&format!("{delivered}jf"), "kzpwjf!", Seam::Doubtful);
        stays(&format!("{delivered}jf"), "pwjf!", Seam::Plain);
        stays("语言模型测试简单", "试简单明了", Seam::Plain);
        // Words may begin between ideographs.
        stays("我们祝大家恭喜发财", "恭喜发财，红包拿来", Seam::Plain);
        let delivered = "语言模型的训练需要大量的文本和计算资源，我们在这里测试它怎样继续写作业";
        stays(delivered, "续写作业，", Seam::Plain);
        stays(delivered, "继续写作业，", Seam::Doubtful);
        repeats(delivered, "它怎样继续写作业，", &format!("{delivered}，"));
        // The same size, but of characters that are frequent in this text.
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
        // Only the text after the overlap shows the period.
        stays(unit.trim_end(), &format!("{unit}{unit}kj"), Seam::Doubtful);
    }

    #[test]
    fn whole_lines_and_sentences_stay() {
        stays("Refrain:\nrow your boat gently\n", "row your boat gently\ndown", Seam::Doubtful);
        stays("Refrain:\nrow your boat gently", "\nrow your boat gently\ndown", Seam::Doubtful);
        stays("He said. I really know it. ", "I really know it. Then", Seam::Doubtful);
        // The cut is inside the second of two equal lines, and the next line begins like them.
        stays("let it\nx = fetch(one)\nx = fe", "tch(one)\nx = fetch(two)", Seam::Doubtful);
        // The model may have dropped the line ending.
        stays("Refrain:\nrow your boat gently", "row your boat gently\ndown", Seam::Doubtful);
    }

    #[test]
    fn whole_lines_are_a_repetition_where_the_text_never_says_one_twice() {
        let line = |number: u32| format!("{number}. {} of the lot\n", number * 7919 % 1000);
        let text: String = (1..60).map(line).collect();
        let at = |number: u32| text.find(&format!("\n{number}. ")).unwrap() + 1;
        repeats(&text[..at(40)], &text[at(30)..], &text);
        // The overlap carries too little information.
        stays(&text[..at(40)], &text[at(38)..], Seam::Doubtful);
        // Too few lines came before.
        let word = |number: u64| format!("{:x} ", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let long = |number: u64| (number * 9..number * 9 + 5).map(word).collect::<String>() + "\n";
        let few: String = (1..9).map(long).collect();
        let upto = |number: u64| few.find(&long(number)).unwrap();
        stays(&few[..upto(4)], &few[upto(3)..], Seam::Doubtful);
        repeats(&few[..upto(8)], &few, &few);
        // Nothing follows the overlap.
        stays(&text[..at(40)], &text[at(30)..at(40)], Seam::Doubtful);
        // The text contains a line or a group of lines twice in a row.
        for group in [1, 2, 3] {
            let twice = format!("{}{}", &text[..at(1 + group)], text);
            let end = twice.len() - (text.len() - at(40));
            stays(&twice[..end], &text[at(30)..], Seam::Doubtful);
        }
        // Sentences are treated like lines.
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
        for (continuation, shown) in [
            ("The qüick", ""),
            ("The qüick brown", "The qüick brown"),
            ("The qü", "The qü"),
            ("", ""),
        ] {
            let splice = join("The qüick", continuation, Join::EmptyEcho);
            assert_eq!(splice.rest(continuation), shown);
            let mut streaming = Streaming::new("The qüick", Join::EmptyEcho);
            let mut text = String::new();
            for character in continuation.chars() {
                text.push_str(streaming.push(character.encode_utf8(&mut [0; 4])));
            }
            let (rest, streamed) = streaming.finish();
            assert_eq!((text + &rest, streamed), (shown.to_owned(), splice));
        }
        assert_eq!(Streaming::new("", Join::Echo).push("x"), "x");
    }
}
