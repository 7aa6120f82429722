//! Which wire reads this response? Found from whatever is known of it.

use crate::provider::{self, Corrections, GENERIC, Profile, Provider, Wire};
use crate::shape;

/// What is known of a response before it is read. Empty where it is not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clues<'a> {
    /// The provider's id, an alias, or a name that we do not know.
    pub provider: &'a str,
    /// The dialect's id.
    pub dialect: &'a str,
    /// The host that served it.
    pub host: &'a str,
    /// The path that was asked.
    pub path: &'a str,
    /// The beginning of the body, or all of it.
    pub body: &'a [u8],
}

/// The wire that reads it, by the surest clue there is: provider, host, path, then shape.
///
/// Where nothing fits, it is read as chat completions, by guess.
#[must_use]
pub fn choose(clues: &Clues<'_>) -> Wire {
    let named = provider::by_id(clues.provider);
    let hosted = || Some(clues.host).filter(|host| !host.is_empty()).and_then(provider::by_host);
    let known = named.or_else(hosted);
    let wire = match known {
        Some(provider) => of_provider(provider, clues),
        None => of_anyone(clues),
    };
    match (known, clues.provider) {
        (None, name) if !name.is_empty() => wire
            .corrected(Corrections { provider: Some(name.to_owned()), ..Corrections::default() }),
        _ => wire,
    }
}

fn of_provider(provider: &'static Provider, clues: &Clues<'_>) -> Wire {
    let own = told(clues, |id| provider.wire_of(id), |path| provider.wire_for_path(path));
    if let Some(profile) = own {
        return profile.into();
    }
    // A wire that it is not known for, as compatible endpoints are: read as anyone's.
    let told = told_of_anyone(clues).map(|profile| Profile { provider: provider.id, ..*profile });
    if let Some(profile) = told {
        return profile.into();
    }
    // Nobody said which of its wires this is: the body does, if it is one of them.
    let guess = shape::guess(clues.body);
    guess.and_then(|guess| provider.wire_of(guess.dialect.id)).unwrap_or(&provider.main).into()
}

fn of_anyone(clues: &Clues<'_>) -> Wire {
    match told_of_anyone(clues) {
        Some(profile) => profile.into(),
        None => {
            shape::guess(clues.body).unwrap_or(Profile { guessed: true, ..GENERIC.main }).into()
        }
    }
}

fn told_of_anyone(clues: &Clues<'_>) -> Option<&'static Profile> {
    let of_dialect = |id: &str| {
        let generic = GENERIC.wire_of(id);
        generic.or_else(|| provider::ALL.iter().find_map(|known| known.wire_of(id)))
    };
    told(clues, of_dialect, provider::by_path)
}

/// The wire that the dialect's id or the path names.
fn told<'p>(
    clues: &Clues<'_>,
    by_dialect: impl Fn(&str) -> Option<&'p Profile>,
    by_path: impl Fn(&str) -> Option<&'p Profile>,
) -> Option<&'p Profile> {
    let path = clues.path.split(['?', '#']).next().unwrap_or_default();
    by_dialect(clues.dialect)
        .or_else(|| Some(path).filter(|path| !path.is_empty()).and_then(by_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(clues: Clues<'_>, provider: &str, dialect: &str, guessed: bool) {
        let wire = choose(&clues);
        assert_eq!(
            (wire.provider(), wire.profile.dialect.id, wire.profile.guessed),
            (provider, dialect, guessed),
            "{clues:?}"
        );
    }

    #[test]
    fn the_surest_clue_decides() {
        let clues = Clues::default();
        check(
            Clues { provider: "xai", path: "/v1/responses", ..clues },
            "xai",
            "openai-responses",
            false,
        );
        check(
            Clues { host: "api.mistral.ai", path: "/v1/chat/completions", ..clues },
            "mistral",
            "openai-chat",
            false,
        );
        check(
            Clues {
                host: "bedrock-runtime.us-east-1.amazonaws.com",
                path: "/model/us.anthropic.claude/invoke",
                ..clues
            },
            "bedrock",
            "anthropic-messages",
            false,
        );
        check(
            Clues {
                host: "us-east5-aiplatform.googleapis.com",
                path: "/v1/x/publishers/anthropic/models/c:streamRawPredict",
                ..clues
            },
            "vertex",
            "anthropic-messages",
            false,
        );
        check(
            Clues { host: "gw.example", path: "/v1/completions", ..clues },
            "openai-compatible",
            "openai-completions",
            false,
        );
        check(
            Clues { provider: "acme", path: "/v1/chat/completions?x=1", ..clues },
            "acme",
            "openai-chat",
            false,
        );
        check(
            Clues { body: b"data: {\"type\":\"message_start\"}\n\n", ..clues },
            "anthropic",
            "anthropic-messages",
            true,
        );
        check(
            Clues { provider: "openai", body: b"{\"object\":\"response\"}", ..clues },
            "openai",
            "openai-responses",
            false,
        );
        check(clues, "openai-compatible", "openai-chat", true);
    }
}
