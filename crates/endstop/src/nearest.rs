//! Suggestions for misspelled names.

/// Returns the most similar known name. It may differ in a third of the letters of `name`, with a
/// minimum of one and a maximum of two letters.
///
/// ```
/// assert_eq!(endstop::nearest("opnai", ["openai", "azure"]), Some("openai"));
/// assert_eq!(endstop::nearest("acme", ["openai", "azure"]), None);
/// ```
#[must_use]
pub fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let name = name.to_ascii_lowercase();
    let most = (name.chars().count() / 3).clamp(1, 2);
    let near = known.into_iter().map(|known| (distance(&name, known), known));
    near.filter(|(far, _)| *far <= most).min_by_key(|(far, _)| *far).map(|(_, known)| known)
}

/// Returns the number of letters to add, remove, change or swap with their neighbor.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    let mut last = None;
    for (row, letter) in (1..).zip(from.chars().take(64)) {
        let mut line = vec![row];
        for (column, other) in to.iter().enumerate() {
            let at =
                |line: &[usize], column: usize| line.get(column).copied().unwrap_or(usize::MAX / 2);
            let changed = at(&above, column) + usize::from(letter != *other);
            let mut least = changed.min(at(&above, column + 1) + 1).min(at(&line, column) + 1);
            let swapped = column
                .checked_sub(1)
                .filter(|left| last == Some(*other) && to.get(*left) == Some(&letter));
            if let Some(left) = swapped {
                least = least.min(at(&before, left) + 1);
            }
            line.push(least);
        }
        before = std::mem::replace(&mut above, line);
        last = Some(letter);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_mistakes() {
        for (from, to, want) in [
            ("openai", "openai", 0),
            ("opnai", "openai", 1),
            ("opneai", "openai", 1),
            ("openaii", "openai", 1),
            ("opanai", "openai", 1),
            ("", "ab", 2),
            ("ab", "", 2),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), want, "{from} {to}");
        }
    }

    #[test]
    fn only_near_names_are_suggested() {
        let ids = || crate::provider::ALL.iter().map(|provider| provider.id);
        assert_eq!(nearest("Anthropc", ids()), Some("anthropic"));
        assert_eq!(nearest("mistrla", ids()), Some("mistral"));
        assert_eq!(nearest("acme", ids()), None);
        assert_eq!(nearest("", ids()), None);
        assert_eq!(nearest(&"x".repeat(10_000), ids()), None);
    }
}
