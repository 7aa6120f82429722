//! Counts steps of work in tests, to show that reading is linear whatever the response. Elsewhere it
//! does nothing.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts steps.
#[cfg(test)]
pub(crate) fn count(steps: usize) {
    STEPS.set(STEPS.get() + steps as u64);
}

/// Counts nothing.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn count(_: usize) {}

#[cfg(test)]
mod tests {
    use super::STEPS;
    use crate::provider::{self, Provider};
    use crate::{Closed, Ending, Head, RequestInfo, TransportEnd, Watcher};

    const HEAD: Head<'_> = Head { status: 200, content_type: "text/event-stream" };

    /// Reads a response as a gateway does, in chunks of this size. Returns its ending and the steps.
    fn read(provider: &Provider, head: Head<'_>, bytes: &[u8], cut: usize) -> (Ending, u64) {
        let before = STEPS.get();
        let mut watcher = Watcher::new(provider, head, RequestInfo::default());
        let mut seen = None;
        for chunk in bytes.chunks(cut) {
            watcher.follow(chunk, |mark| {
                if seen.replace(mark.changes()) != Some(mark.changes()) {
                    mark.choices().for_each(drop);
                }
            });
        }
        (watcher.finish(TransportEnd::Eof), STEPS.get() - before)
    }

    /// Checks that four times as many bytes take at most about four times as many steps, and that no
    /// byte takes many.
    #[track_caller]
    fn check(
        name: &str,
        provider: &Provider,
        head: &Head<'_>,
        of: impl Fn(usize) -> String,
        n: usize,
    ) {
        for cut in [1, 100, 1 << 20] {
            let (one, four) = (of(n), of(4 * n));
            let (_, steps) = read(provider, head.clone(), one.as_bytes(), cut);
            let (ending, more) = read(provider, head.clone(), four.as_bytes(), cut);
            assert!(more <= 5 * steps + 10_000, "{name} in {cut}: {steps} steps, then {more}");
            let per_byte = more / four.len() as u64;
            assert!(per_byte <= 200, "{name} in {cut}: {per_byte} steps a byte");
            assert!(!ending.reason.is_success(), "{name}: {ending:?}");
        }
    }

    fn event(json: &str) -> String {
        format!("data: {json}\n\n")
    }

    #[test]
    fn no_response_takes_more_than_linear_work() {
        let chat =
            |name, n, of: &dyn Fn(usize) -> String| check(name, &provider::OPENAI, &HEAD, of, n);
        let call = |choice: usize, call: usize| {
            event(&format!(
                r#"{{"choices":[{{"index":{choice},"delta":{{"tool_calls":[{{"index":{call},"id":"{call}","function":{{"name":"f","arguments":"{{}}"}}}}]}}}}]}}"#
            ))
        };
        let all = |n: usize, of: &dyn Fn(usize) -> String| (0..n).map(of).collect::<String>();
        chat("calls", 5_000, &|n| all(n, &|at| call(0, at)));
        chat("choices", 5_000, &|n| all(n, &|at| call(at, 0)));
        chat("empty events after calls", 20_000, &|n| {
            all(1024, &|at| call(at % 128, at)) + &event("{}").repeat(n)
        });
        chat("comments", 50_000, &|n| ": ping\n".repeat(n));
        chat("lines of one event", 50_000, &|n| "data: 1\n".repeat(n));
        chat("names of one event", 50_000, &|n| "event: x\n".repeat(n));
        chat("escapes", 50_000, &|n| {
            let text = "\\u00e9".repeat(n);
            event(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#))
        });
        chat("lone surrogates", 20_000, &|n| {
            let text = "\\ud83d".repeat(n);
            event(&format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#))
        });
        chat("equal keys", 20_000, &|n| {
            let keys = all(n, &|at| format!(r#""choices":[{at}],"#));
            event(&format!(r#"{{{keys}"id":"x"}}"#))
        });
        chat("deep values", 20_000, &|n| event(&format!("{}{}", "[".repeat(n), "]".repeat(n))));
        chat("many deep values", 400, &|n| {
            event(&(r#"{"a":"#.repeat(100) + "1" + &"}".repeat(100))).repeat(n)
        });
        chat("white space", 100_000, &|n| " \n".repeat(n));
        chat("one large event", 300_000, &|n| format!("data: {{\"x\":\"{}", "x".repeat(n)));
        let plain = Head { status: 200, content_type: "application/json" };
        let spaces = |n: usize| " ".repeat(n);
        check("spaces before a body", &provider::OPENAI, &plain, spaces, 100_000);
        check(
            "half a body",
            &provider::OPENAI,
            &plain,
            |n| format!("{{\"x\":\"{}", "x".repeat(n)),
            300_000,
        );
        check(
            "half an array",
            &provider::GOOGLE,
            &plain,
            |n| format!("[{}", "{},".repeat(n)),
            50_000,
        );
    }

    /// Arguments that come at paths are written out once, not with every event that follows.
    #[test]
    fn arguments_at_paths_are_written_once() {
        let piece = |path: &str, text: &str| {
            event(&format!(
                r#"{{"candidates":[{{"content":{{"parts":[{{"functionCall":{{"partialArgs":[{{"jsonPath":"{path}","stringValue":"{text}"}}],"willContinue":true}}}}]}}}}]}}"#
            ))
        };
        let name = event(
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","willContinue":true}}]}}]}"#,
        );
        let both =
            event(r#"{"candidates":[{"content":{"parts":[{"functionCall":{"args":{"a":1}}}]}}]}"#);
        check(
            "both forms",
            &provider::GOOGLE,
            &HEAD,
            |n| format!("{name}{}{}", piece("$.a", &"x".repeat(20 * n)), both.repeat(n / 4)),
            4000,
        );
        // All calls together are bounded.
        let large = "x".repeat(5 << 20);
        let calls: String = (0..6).map(|_| format!("{name}{}", piece("$.a", &large))).collect();
        let (ending, _) = read(&provider::GOOGLE, HEAD, calls.as_bytes(), 1 << 20);
        assert!(!ending.reason.is_success(), "{ending:?}");
    }

    #[test]
    fn large_plain_bodies_are_read_without_keeping_them() {
        let plain = Head { status: 200, content_type: "application/json" };
        let image = "QUJD".repeat(30 << 18);
        let body = |end: &str| {
            format!(
                r#"{{"choices":[{{"index":0,"message":{{"content":"{image}"}},"finish_reason":"stop"}}],"rest":"{}"{end}"#,
                "x".repeat(10 << 20)
            )
        };
        for cut in [1000, 64 << 10] {
            let (ending, _) = read(&provider::OPENAI, plain.clone(), body("}").as_bytes(), cut);
            assert_eq!((ending.reason, ending.closed), (crate::Reason::Complete, Closed::Proven));
            let (ending, _) = read(&provider::OPENAI, plain.clone(), body("").as_bytes(), cut);
            assert_eq!(ending.reason, crate::Reason::Cut, "{ending:?}");
        }
        // Arguments of a tool call are kept whole, and so is their verdict.
        let arguments = format!(r#"{{\"a\":\"{}\"}}"#, "x".repeat(200 << 10));
        let call = |arguments: &str| {
            format!(
                r#"{{"choices":[{{"index":0,"message":{{"tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{arguments}"}}}}]}},"finish_reason":"tool_calls"}}],"x":"{image}"}}"#
            )
        };
        let reason =
            |body: &str| read(&provider::OPENAI, plain.clone(), body.as_bytes(), 9999).0.reason;
        assert_eq!(reason(&call(&arguments)), crate::Reason::ToolCall);
        assert_ne!(reason(&call(arguments.trim_end_matches('}'))), crate::Reason::ToolCall);
    }
}
