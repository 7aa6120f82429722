//! Characters by their role in a text: in a word, at the end of a clause or sentence.

pub(super) fn bucket(character: char) -> usize {
    character as usize % 256
}

/// Punctuation after which, and some space, a sentence may begin.
pub(super) fn ends_sentence(character: char) -> bool {
    ".!?؟۔।".contains(character)
}

/// Punctuation after which a unit of the text may begin.
pub(super) fn ends_clause(character: char) -> bool {
    ",.;:!?)]}>|،؛؟۔।，。、；：！？）」』】》".contains(character)
}

/// Whether these stand in one word, as far as one can see.
pub(super) fn is_inside_word(before: char, after: char) -> bool {
    is_of_word(before) && is_of_word(after) && !(before.is_lowercase() && after.is_uppercase())
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || is_mark(character)
}

/// Thai, Lao, Burmese, Khmer, kana and ideographs.
pub(super) fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3ffff}')
}

/// Whether two symbols are the same but for their case: a sentence that repeats its first words does not
/// repeat its capital.
pub(super) fn is_alike(one: Option<char>, other: Option<char>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other || one.to_lowercase().eq(other.to_lowercase()),
        (None, _) | (_, None) => false,
    }
}

/// Characters that belong to the one before them or are not seen: they say nothing by themselves.
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
