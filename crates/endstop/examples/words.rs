//! Teaches words at run time: a new word of a known provider, and a provider of one's own.

use endstop::provider::{OPENAI, XAI};
use endstop::registry::{Clues, Entry, Like, Registry};
use endstop::{Ending, Head, Reason, RequestInfo, TransportEnd, Watcher};

/// A registry that knows one word more of xAI, and a provider that speaks like OpenAI.
fn registry() -> Registry {
    let mut registry = Registry::default();
    for (id, like) in [("xai", Like::Provider(&XAI)), ("acme", Like::Wire(&OPENAI.main))] {
        registry.register(Entry::new(id, like).word("frobnicated", Reason::OutputLimit));
    }
    registry
}

/// Ends a response of this provider that says this word.
fn end(registry: &Registry, provider: &str, word: &str) -> Ending {
    let wire = registry.choose(&Clues { provider, ..Clues::default() });
    let mut watcher = Watcher::new(wire, Head::default(), RequestInfo::default());
    let body =
        format!(r#"{{"choices":[{{"message":{{"content":"Hi"}},"finish_reason":"{word}"}}]}}"#);
    watcher.watch(body.as_bytes());
    watcher.finish(TransportEnd::Eof)
}

fn main() {
    let registry = registry();
    let ending = end(&registry, "acme", "frobnicated");
    println!("{}: {}", ending.reason.name(), ending.sentence);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taught_words_count() {
        let registry = registry();
        assert_eq!(end(&registry, "acme", "frobnicated").reason, Reason::OutputLimit);
        assert_eq!(end(&registry, "xai", "frobnicated").reason, Reason::OutputLimit);
        assert_eq!(end(&registry, "acme", "stop").reason, Reason::Complete);
        assert_eq!(end(&registry, "openai", "frobnicated").reason, Reason::Unknown);
    }
}
