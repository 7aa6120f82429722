//! Continuation tokens: passed to listeners, and stored nowhere.

use endstop::registry::{Clues, choose};
use endstop::signal::TerminationSignal;
use endstop::{Ending, Event, Head, Reader, Reason, Record, RequestInfo, TransportEnd};

fn read(provider: &str, path: &str, body: &str) -> (Vec<String>, Ending) {
    let wire = choose(&Clues { provider, path, ..Clues::default() });
    let mut reader = Reader::new(wire, Head::default(), RequestInfo::default());
    let mut tokens = Vec::new();
    let mut observe = |event: Event<'_>| {
        if let Event::ResumeToken { token, .. } = event {
            tokens.push(token.to_owned());
        }
    };
    reader.read(body.as_bytes(), &mut observe);
    let ending = reader.finish(TransportEnd::Eof, &mut observe);
    (tokens, ending)
}

const INTERACTIONS: &str = "/v1beta/interactions";

#[test]
fn a_token_is_passed_on_and_kept_nowhere() {
    let chunk = |rest: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"Hi\"}}]}}{rest}}}]}}\n\n"
        )
    };
    let streamed = chunk(",\"continuationToken\":\"tok-1\"")
        + &chunk(",\"finishReason\":\"CONTINUATION\",\"continuationToken\":\"tok-2\"");
    let plain =
        "{\"candidates\":[{\"finishReason\":\"CONTINUATION\",\"continuationToken\":\"tok-2\"}]}";
    let interaction = "{\"object\":\"interaction\",\"id\":\"i\",\"status\":\"requires_continuation\",\
                       \"continuation_token\":\"tok-2\"}";
    let steps = format!(
        "data: {{\"event_type\":\"interaction.status_update\",\"status\":\"in_progress\",\
         \"continuation_token\":\"tok-1\"}}\n\n\
         data: {{\"event_type\":\"interaction.completed\",\"interaction\":{interaction}}}\n\n"
    );
    for (path, body, want) in [
        ("", streamed.as_str(), &["tok-1", "tok-2"][..]),
        ("", plain, &["tok-2"]),
        (INTERACTIONS, interaction, &["tok-2"]),
        (INTERACTIONS, &steps, &["tok-1", "tok-2"]),
    ] {
        let (tokens, ending) = read("google", path, body);
        assert_eq!(ending.reason, Reason::Paused, "{body}");
        assert_eq!(tokens, want, "{body}");
        let mut record = Record::default();
        record.end(&ending);
        let kept = [
            serde_json::to_string(&ending).unwrap(),
            serde_json::to_string(&TerminationSignal::from(&ending)).unwrap(),
            serde_json::to_string(&record).unwrap(),
            format!("{ending:?}"),
        ];
        for text in kept {
            assert!(!text.contains("tok-"), "{text}");
        }
    }
}

#[test]
fn a_token_beyond_the_bound_is_not_passed_on() {
    let body = |length: usize| {
        let token = "t".repeat(length);
        format!(
            "{{\"candidates\":[{{\"finishReason\":\"CONTINUATION\",\"continuationToken\":\"{token}\"}}]}}"
        )
    };
    for (length, passed) in [(0, 0), (1 << 20, 1), ((1 << 20) + 1, 0)] {
        let (tokens, ending) = read("google", "", &body(length));
        assert_eq!((tokens.len(), ending.reason), (passed, Reason::Paused), "{length}");
    }
}
