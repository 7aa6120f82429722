//! Functions that the fuzz targets of the request path, and seeded tests, call.

use std::sync::{Arc, LazyLock};

use endstop::registry::Clues;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};

use crate::admit::admit;
use crate::client::connection::Peer;
use crate::config::Config;
use crate::rates::Rates;
pub use crate::respond::fuzzing::{decode, gate};
use crate::route::{Routed, Routes};
use crate::settings::Settings;

/// Settings of every request.
static SETTINGS: LazyLock<Option<Settings>> = LazyLock::new(|| {
    let key = std::env::temp_dir().join(format!("endstop-fuzzing-{}.key", std::process::id()));
    std::fs::write(&key, "key-of-the-gateway").ok()?;
    let text = format!(
        "store = 'off'\n[upstreams.mine]\nlike = 'vllm'\nbase_url = 'http://10.0.0.1/v1'\n\
         [upstreams.azure]\ncustomers = ['mine']\n\
         [upstreams.cloudflare]\ncustomers = ['mine']\nkey_file = '{}'\n",
        key.display()
    );
    let settings = Settings::new(Config::from_toml("fuzzing", &text).ok()?).ok();
    // Whether it stays makes no difference.
    let _ = std::fs::remove_file(&key);
    settings
});

/// Checks that a path leads to a host of its own upstream, or nowhere, and never above its base.
///
/// # Panics
/// Panics if it leads elsewhere.
pub fn route(data: &[u8]) {
    let Some(settings) = &*SETTINGS else { return };
    // Beginnings that lead to an upstream, since random ones hardly ever do.
    let starts = [
        "",
        "/openai/v1/",
        "/azure/mine/",
        "/databricks/",
        "/bedrock/",
        "/cloudflare/mine/",
        "/cloudflare/mine/client/v4/",
        "/cloudflare/mine/client/v4/accounts/",
    ];
    let [first, rest @ ..] = data else { return };
    let Some(start) = starts.get(usize::from(*first) % starts.len()) else { return };
    let path = format!("{start}{}", String::from_utf8_lossy(rest));
    let Ok(uri) = path.parse::<Uri>() else { return };
    let Ok(routed) = settings.routes.find(&uri) else { return };
    check_host(&settings.routes, &routed, uri.path());
    if routed.upstream.has_own_key() {
        let stays = routed.upstream.holds(&routed.customer, routed.uri.path());
        assert!(stays, "{path} leads above its base: {}", routed.uri);
    }
    for form in [Some(routed.path()), routed.lenient_path()].into_iter().flatten() {
        assert!(!form.split('/').any(|segment| matches!(segment, "." | "..")), "{path}: {form}");
        assert!(!form.contains("//"), "{path}: {form}");
    }
}

fn check_host(routes: &Routes, routed: &Routed<'_>, path: &str) {
    let upstream = routed.upstream;
    let host = routed.uri.host().unwrap_or_default();
    let fixed: Option<Uri> = upstream.origin().parse().ok();
    let is_fixed = fixed.is_some_and(|fixed| fixed.host() == Some(host));
    assert!(is_fixed || upstream.provider.serves_from(host), "{path} leads to {host}");
    assert!(routes.iter().any(|known| known.name == upstream.name), "{path}");
}

/// Paths of models at the gateway.
static MODELS: &[&str] = &[
    "/openai/v1/chat/completions",
    "/openai/v1/responses",
    "/anthropic/v1/messages",
    "/gemini/v1beta/models/gemini-3:streamGenerateContent",
    "/bedrock/us-east-1/model/anthropic.claude/converse-stream",
    "/vertex/us-east5/v1/projects/p/locations/l/publishers/anthropic/models/m:rawPredict",
    "/azure/mine/openai/deployments/d/chat/completions",
    "/mine/v1/completions",
    "/ollama/api/chat",
];

/// Checks that no spelling of a model's path passes unread: it is read, or it is refused.
///
/// # Panics
/// Panics if one passes.
pub fn admission(data: &[u8]) {
    let Some(settings) = &*SETTINGS else { return };
    let mut dice = data.iter().copied();
    let mut roll = || usize::from(dice.next().unwrap_or(0));
    let Some(path) = MODELS.get(roll() % MODELS.len()) else { return };
    let spelled = spelled(path, &mut roll);
    let methods = ["POST", "post", "PUT", "PATCH", "Post", "POSTX", "QUERY"];
    let method = methods.get(roll() % methods.len()).copied().unwrap_or("POST");
    let Ok(uri) = spelled.parse::<Uri>() else { return };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let mut request = Request::new(());
    (*request.method_mut(), *request.uri_mut()) = (method, uri);
    let names = ["authorization", "x-endstop-mode", "x-endstop-team", "cookie", "api-version"];
    for name in names {
        if roll() % 3 > 0 {
            continue;
        }
        let value: Vec<u8> = {
            let length = roll() % 16;
            (0..length).map(|_| u8::try_from(roll()).unwrap_or(0)).collect()
        };
        if let Ok(value) = HeaderValue::from_bytes(&value) {
            request.headers_mut().append(HeaderName::from_static(name), value);
        }
    }
    let rates = Arc::new(Rates::default());
    match admit(settings, &rates, &Peer::default(), &request) {
        Ok(admitted) => {
            assert!(admitted.wire.is_some(), "{spelled} passes unread");
            assert_eq!(request.method(), Method::POST, "{spelled} has another method");
            check_host(&settings.routes, &admitted.routed, &spelled);
            // It is read on the wire of the path as it is usually spelled.
            let known = path.parse().ok().and_then(|uri| settings.routes.find(&uri).ok());
            let wire = known.and_then(|routed| wire_of(settings, &routed));
            let read = admitted.wire.map(|wire| wire.profile.dialect.id);
            assert_eq!(read, wire, "{spelled} is read on another wire");
        }
        Err(denied) => {
            assert!(denied.1.status.is_client_error(), "{spelled}: {}", denied.1.status);
            assert!(denied.1.message.starts_with("endstop: "), "{}", denied.1.message);
        }
    }
}

fn wire_of(settings: &Settings, routed: &Routed<'_>) -> Option<&'static str> {
    let clues =
        Clues { provider: &routed.upstream.speaks, path: routed.path(), ..Clues::default() };
    settings.config.registry.serving(&clues).map(|wire| wire.profile.dialect.id)
}

/// Spells a path in another way: encoded, in other cases, with other separators. The part that names
/// the upstream stays as it is.
fn spelled(path: &str, roll: &mut impl FnMut() -> usize) -> String {
    // The route and its customer are names of the gateway's own.
    let kept = path.match_indices('/').nth(2).map_or(0, |(at, _)| at);
    let (start, rest) = path.split_at_checked(kept).unwrap_or(("", path));
    let mut spelled = start.to_owned();
    for letter in rest.chars() {
        match (letter, roll() % 12) {
            ('/', 0) => spelled.push_str("//"),
            ('/', 1) => spelled.push_str("%2F"),
            ('/', 2) => spelled.push_str("%252f"),
            ('/', 3) => spelled.push('\\'),
            ('/', 4) => spelled.push_str(";a=b/"),
            ('/', 5) => spelled.push_str("/./"),
            ('/', 6) => spelled.push_str("/x/../"),
            ('/', 7) => spelled.push_str("/%2e%2e/"),
            (_, 0) => spelled.push_str(&format!("%{:02X}", u32::from(letter))),
            (_, 1) => spelled.push_str(&format!("%25{:02x}", u32::from(letter))),
            (_, 2) => spelled.push(letter.to_ascii_uppercase()),
            (_, _) => spelled.push(letter),
        }
    }
    let ends = ["/", "?key=x", "%00", "//", "%3Fx", "%23x/y", "%2e", ".", "%20", "", "", ""];
    spelled + ends.get(roll() % ends.len()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    fn seeds(count: usize, length: usize, check: fn(&[u8])) {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut roll = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        };
        for _ in 0..count {
            let data: Vec<u8> = (0..length).map(|_| roll()).collect();
            check(&data);
        }
    }

    #[test]
    fn no_path_leads_elsewhere() {
        assert!(super::SETTINGS.is_some());
        // Bytes of paths, and letters that mean something in one.
        let likely = |data: &[u8]| {
            let letters = b"/.%2eEfF;\\:@?#abc0-_~";
            let text: Vec<u8> =
                data.iter().map(|byte| letters[usize::from(*byte) % letters.len()]).collect();
            super::route(&[&data[..1], &text].concat());
        };
        for length in [1, 4, 12, 40] {
            seeds(3_000, length, super::route);
        }
        let mut state = 1_u32;
        for length in [4, 12, 40] {
            for _ in 0..3_000 {
                let data: Vec<u8> = (0..length)
                    .map(|_| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        state.to_be_bytes()[0]
                    })
                    .collect();
                likely(&data);
            }
        }
    }

    #[test]
    fn no_spelling_of_a_models_path_passes_unread() {
        seeds(20_000, 160, super::admission);
    }
}
