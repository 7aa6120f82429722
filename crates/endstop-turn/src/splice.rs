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

mod characters;
mod seeker;

use seeker::Seeker;

/// How much of the delivered text is compared, in bytes; a longer repetition is not found.
pub const WINDOW: usize = 8 << 10;

/// The most that is ever held back, in bytes; beyond it the continuation stays as it is.
pub const MOST_HELD: usize = 4 * WINDOW;

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
