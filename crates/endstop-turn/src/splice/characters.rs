//! Character classes: word characters, clause and sentence ends, scripts and marks.

pub(super) fn bucket(character: char) -> usize {
    character as usize % 256
}

/// Reports whether a sentence may begin after this character and whitespace.
pub(super) fn ends_sentence(character: char) -> bool {
    ".!?؟۔।".contains(character)
}

/// Reports whether a unit of the text may begin after this character.
pub(super) fn ends_clause(character: char) -> bool {
    ",.;:!?)]}>|،؛؟۔।，。、；：！？）」』】》".contains(character)
}

/// Reports whether two adjacent characters appear to belong to one word.
pub(super) fn is_inside_word(before: char, after: char) -> bool {
    is_of_word(before) && is_of_word(after) && !(before.is_lowercase() && after.is_uppercase())
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || is_mark(character)
}

/// Reports whether the script has no spaces between words: Thai, Lao, Burmese, Khmer, kana and
/// ideographs.
pub(super) fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Reports whether two symbols are equal, ignoring case. A sentence that repeats its first words
/// does not repeat the capital letter.
pub(super) fn is_alike(one: Option<char>, other: Option<char>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other || one.to_lowercase().eq(other.to_lowercase()),
        (None, _) | (_, None) => false,
    }
}

/// Reports whether the character modifies the one before it or is invisible. Such characters carry
/// no information alone.
pub(super) fn is_mark(character: char) -> bool {
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
