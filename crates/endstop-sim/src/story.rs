//! Stories: long texts made from a seed, which can be continued to the character.
//!
//! The text depends only on its number of words and its seed. A test can therefore compare an answer
//! that was cut and continued with [`Story::text`].

use crate::answer::{self, Answer, Choice, End};
use crate::scene::Scene;
use crate::script::random;
use crate::sim_request::{SimRequest, Way};
use crate::wire;

/// Maximum number of words.
const MOST: usize = 200_000;

/// Number of words before a loop begins.
const BEFORE_LOOP: usize = 40;

/// Passage of a loop.
const LOOP: [&str; 6] = [" and", " then", " it", " began", " again", ","];

/// Number of tokens of one answer of a model that loops, if the request has no lower limit.
const LOOPED: usize = 600;

/// Maximum number of characters that a model repeats after a hint.
const REPEATED: u64 = 40;

/// Words of the stories. Long ones are two tokens; some have characters of several bytes.
const WORDS: [&str; 64] = [
    "carriage",
    "switch",
    "motor",
    "belt",
    "screw",
    "frame",
    "axis",
    "reading",
    "controller",
    "calibration",
    "wire",
    "signal",
    "bearing",
    "spindle",
    "the",
    "a",
    "of",
    "to",
    "in",
    "under",
    "between",
    "after",
    "before",
    "without",
    "slowly",
    "quickly",
    "carefully",
    "again",
    "never",
    "always",
    "moves",
    "halts",
    "returns",
    "measures",
    "compares",
    "vibrates",
    "Zürich",
    "naïve",
    "façade",
    "größer",
    "日本語",
    "測定",
    "한국어",
    "Ελληνικά",
    "🙂",
    "and",
    "or",
    "but",
    "while",
    "workshop",
    "machine",
    "operator",
    "instrument",
    "temperature",
    "lubrication",
    "tolerance",
    "one",
    "two",
    "seven",
    "forty",
    "red",
    "silver",
    "loose",
    "steady",
];

/// Text that the models of the scenarios `story…` write.
///
/// ```
/// use endstop_sim::Story;
///
/// let story = Story { words: 500, seed: 7 };
/// assert_eq!(Story::parse("500-7"), story);
/// assert_eq!(story.tokens().concat(), story.text());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Story {
    /// Number of words.
    pub words: usize,
    /// Seed.
    pub seed: u64,
}

impl Story {
    /// Reads the value of a scenario: the number of words, and a seed after `-` (1 without it).
    #[must_use]
    pub fn parse(value: &str) -> Self {
        let (words, seed) = value.split_once('-').unwrap_or((value, "1"));
        let words = words.parse().unwrap_or(300);
        Self { words: words.min(MOST), seed: seed.parse().unwrap_or(1) }
    }

    /// Returns the whole text.
    #[must_use]
    pub fn text(&self) -> String {
        self.tokens().concat()
    }

    /// Returns the text in tokens, which token limits count. A word has the space before it. A word
    /// of more than eight characters is two tokens, and so are a paragraph's end and the next word.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        let mut writer = Writer { seed: self.seed, tokens: Vec::new(), left: 0, sentences: 0 };
        for number in 1..=self.words {
            writer.word(number == self.words);
        }
        writer.tokens
    }

    /// Returns the first tokens, and then the same passage again and again, past this many bytes.
    fn looped(&self, bytes: usize) -> Vec<String> {
        let mut tokens = Self { words: self.words.min(BEFORE_LOOP), ..*self }.tokens();
        let passage = LOOP.concat().len().max(1);
        for _ in 0..bytes / passage + LOOPED {
            tokens.extend(LOOP.map(str::to_owned));
        }
        tokens
    }
}

/// Writes a story word by word.
struct Writer {
    seed: u64,
    tokens: Vec<String>,
    /// Number of words left in the sentence.
    left: usize,
    /// Number of sentences so far.
    sentences: usize,
}

impl Writer {
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(random(&mut self.seed) % limit.max(1) as u64).unwrap_or(0)
    }

    fn word(&mut self, last: bool) {
        let begins = self.left == 0;
        if begins {
            self.left = 5 + self.below(10);
            self.paragraph();
        }
        self.left -= 1;
        let at = self.below(WORDS.len());
        let word = WORDS.get(at).copied().unwrap_or_default();
        let mut word = if begins { capitalized(word) } else { word.to_owned() };
        if last || self.left == 0 {
            word.push('.');
            self.sentences += 1;
        } else if self.below(9) == 0 {
            word.push(',');
        }
        let fresh = self.tokens.last().is_none_or(|token| token.ends_with('\n'));
        self.push(if fresh { word } else { format!(" {word}") });
    }

    /// Ends the paragraph after every fifth sentence.
    fn paragraph(&mut self) {
        if self.sentences > 0 && self.sentences.is_multiple_of(5) {
            self.tokens.push("\n\n".to_owned());
        }
    }

    /// Adds a word, in two tokens if it is long.
    fn push(&mut self, word: String) {
        let half = word.char_indices().nth(5).map_or(word.len(), |(at, _)| at);
        if word.trim_start().chars().count() > 8
            && let Some((first, second)) = word.split_at_checked(half)
        {
            self.tokens.extend([first.to_owned(), second.to_owned()]);
        } else {
            self.tokens.push(word);
        }
    }
}

fn capitalized(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}

/// Habit of a model that is asked to continue by a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Goes on exactly where the text stopped.
    Exact,
    /// First repeats up to 40 characters.
    Repeats,
    /// Leaves out a space at the beginning.
    DropsSpace,
    /// Repeats the same passage for ever.
    Loops,
    /// Pauses several times, as the provider's own tools make it pause.
    Pauses,
}

/// Makes the answer a story, or the rest of it that the request asks for.
pub(crate) fn tell(scene: &Scene<'_>, answer: &mut Answer, habit: Habit) {
    let story = Story::parse(scene.value.unwrap_or_default());
    let ask = &scene.ask;
    let tokens = match habit {
        Habit::Loops => story.looped(ask.said.len() + ask.asked.len()),
        Habit::Exact | Habit::Repeats | Habit::DropsSpace | Habit::Pauses => story.tokens(),
    };
    let text = tokens.concat();
    let place = place_of(ask, &text);
    let start = if habit == Habit::Repeats && ask.way == Way::Hinted {
        earlier(&text, place, story.seed)
    } else {
        place
    };
    let mut rest = rest_of(tokens, start);
    if habit == Habit::DropsSpace && ask.way == Way::Hinted && place > 0 {
        drop_space(&mut rest);
    }
    let mut choice = answer::limited(ask, Choice { text: rest, ..Choice::default() });
    match habit {
        Habit::Loops => shorten(&mut choice, LOOPED, End::Length),
        Habit::Pauses => pause(scene, &mut choice, story),
        Habit::Exact | Habit::Repeats | Habit::DropsSpace => {}
    }
    let is_open = choice.end == End::Length && ask.gives_tokens;
    choice.token = (is_open || matches!(choice.end, End::Said(_))).then(|| {
        let tokens = ask.spent + choice.text.len() as u64;
        wire::continuation_token(start + choice.text.concat().len(), tokens)
    });
    answer.each(|every| every.clone_from(&choice));
    answer.count(ask);
}

/// Ends the choice after this many tokens, if it is longer.
fn shorten(choice: &mut Choice, most: usize, end: End) {
    if choice.text.len() > most {
        choice.text.truncate(most);
        choice.end = end;
    }
}

/// Pauses the choice after a third of the story, if it is longer.
fn pause(scene: &Scene<'_>, choice: &mut Choice, story: Story) {
    let word = match scene.wire.id {
        "gemini" => "CONTINUATION",
        "gemini-interactions" => "requires_continuation",
        _ => "pause_turn",
    };
    shorten(choice, story.words / 3 + 1, End::Said(word.into()));
    choice.server_tool = word == "pause_turn" && matches!(choice.end, End::Said(_));
}

fn drop_space(tokens: &mut [String]) {
    if let Some(first) = tokens.first_mut()
        && first.starts_with(' ')
    {
        first.remove(0);
    }
}

/// Returns the place in the text from which the request asks for more: its beginning for a new
/// answer.
fn place_of(ask: &SimRequest, text: &str) -> usize {
    let place = match ask.way {
        Way::New => None,
        Way::At(place) => Some(place),
        Way::Exact | Way::Echoed => place(text, &ask.said).or_else(|| place(text, &ask.asked)),
        // A whole text is not continued: the next one is told.
        Way::Remembered => place(text, &ask.said).filter(|place| *place < text.len()),
        Way::Hinted => place(text, &ask.said)
            .or_else(|| place(text, quoted(&ask.asked)?))
            .filter(|place| *place < text.len()),
    };
    place.filter(|place| text.is_char_boundary(*place)).unwrap_or(0)
}

/// Returns the text between tags that a hint quotes.
fn quoted(hint: &str) -> Option<&str> {
    let (_, rest) = hint.split_once(">\n")?;
    rest.rsplit_once("\n</").map(|(quoted, _)| quoted)
}

/// Returns the place in the text where this beginning of it stops, or a text that ends like it.
fn place(text: &str, said: &str) -> Option<usize> {
    if said.is_empty() {
        return None;
    }
    begun(text, said).map(str::len).or_else(|| {
        [400, 200, 100, 50, 24].iter().find_map(|count| {
            let tail = last_of(said, *count)?;
            text.rfind(tail).map(|at| at + tail.len())
        })
    })
}

/// Returns the end of `said` with which the text begins. The caller's own words may come before it,
/// as in a prompt.
pub(crate) fn begun<'s>(text: &str, said: &'s str) -> Option<&'s str> {
    said.char_indices().find_map(|(at, _)| {
        let tail = said.get(at..)?;
        (text.starts_with(tail) && (at == 0 || tail.len() > 7)).then_some(tail)
    })
}

/// Returns the last characters of a text that has at least as many.
fn last_of(text: &str, count: usize) -> Option<&str> {
    let (at, _) = text.char_indices().rev().nth(count.checked_sub(1)?)?;
    text.get(at..)
}

/// Returns a place up to 40 characters earlier, by the seed.
fn earlier(text: &str, place: usize, seed: u64) -> usize {
    let mut seed = seed ^ (place as u64).rotate_left(17);
    let back = usize::try_from(random(&mut seed) % REPEATED).unwrap_or(0);
    let before = text.get(..place).unwrap_or_default();
    before.char_indices().rev().nth(back).map_or(0, |(at, _)| at)
}

/// Returns the tokens after this place, the first of them perhaps only in part.
fn rest_of(tokens: Vec<String>, place: usize) -> Vec<String> {
    let mut before = 0;
    let mut rest = Vec::new();
    for token in tokens {
        let skip = place.saturating_sub(before).min(token.len());
        before += token.len();
        if let Some(left) = token.get(skip..).filter(|left| !left.is_empty()) {
            rest.push(left.to_owned());
        }
    }
    rest
}
