//! Progress of a response after each frame, for gateways that hold back frames.

use crate::ending::Reason;
use crate::facts::{Choice, Facts};

/// Progress of a response after a complete frame.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// Number of bytes of the current chunk up to the end of this frame.
    pub end: usize,
    /// Payload of this frame.
    pub data: &'a [u8],
    pub(crate) facts: &'a Facts,
}

impl Mark<'_> {
    /// Reports whether a tool call has begun.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.facts.has_calls()
    }

    /// Reports whether there were more choices or tool calls than are followed.
    #[must_use]
    pub fn has_excess(&self) -> bool {
        self.facts.excess > 0
    }

    /// Returns the progress of the tool calls of each choice.
    pub fn choices(&self) -> impl Iterator<Item = ChoiceMark> {
        self.facts.choices.iter().map(Choice::mark)
    }

    /// Returns a number that is the same as long as nothing changes in the calls, the finish reasons
    /// and the end marker. [`Mark::choices`] looks at every call; this does not.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.facts.changes
    }

    /// Returns a number that is the same as long as nothing is said about a tool call.
    #[must_use]
    pub fn call_changes(&self) -> u64 {
        self.facts.call_changes
    }

    /// Reports whether a tool call has begun of whose arguments nothing has come. Some clients run it
    /// without arguments if the response ends here.
    #[must_use]
    pub fn has_bare_call(&self) -> bool {
        self.facts.has_bare_call()
    }

    /// Reports whether a frame could not be read that another reader may read: it may hold a tool call.
    #[must_use]
    pub fn has_unreadable(&self) -> bool {
        self.facts.unreadable
    }

    /// Reports whether every finish reason so far says that the provider failed.
    #[must_use]
    pub fn says_failure(&self) -> bool {
        self.facts
            .choices
            .iter()
            .filter_map(|choice| choice.meaning)
            .all(|meaning| meaning.reason() == Reason::Failed)
    }

    /// Returns the number of choices with a finish reason.
    #[must_use]
    pub fn said(&self) -> usize {
        self.facts.choices.iter().filter(|choice| choice.said.is_some()).count()
    }

    /// Reports whether at least one choice has a finish reason.
    #[must_use]
    pub fn has_word(&self) -> bool {
        self.facts.any_said()
    }

    /// Reports whether the end marker has come.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.facts.proven
    }

    /// Reports whether the provider sent an error.
    #[must_use]
    pub fn has_fault(&self) -> bool {
        self.facts.fault.is_some()
    }
}

/// Progress of the tool calls of one choice, for gateways in front of clients that do not wait for
/// the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChoiceMark {
    /// Number of the choice on the wire.
    pub index: u32,
    /// Number of tool calls for the caller that have begun.
    pub begun: u32,
    /// Number of these calls with complete arguments.
    pub whole: u32,
    /// Number of these calls with a closed block, or whose arguments have ended.
    pub closed: u32,
    /// Number of calls that the provider runs itself.
    pub by_provider: u32,
    /// Whether this choice has a finish reason.
    pub said: bool,
}

impl ChoiceMark {
    /// Reports whether a client that does not wait for the end could run a call of this choice, or
    /// take its calls for settled: a call has complete arguments or a closed block, or another
    /// call, the finish reason or the end marker followed it.
    ///
    /// A gateway in front of such clients holds back the first frame after which this is true.
    #[must_use]
    pub fn could_run(&self, is_proven: bool) -> bool {
        let settled = self.whole > 0 || self.closed > 0 || self.begun > 1;
        self.begun > 0 && (settled || self.said || is_proven)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, Limits, RequestInfo, Watcher, provider};

    const TEXT: &str = r#"{"choices":[{"index":0,"delta":{"content":"Hi"}}]}"#;
    const START: &str = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":""}}]}}]}"#;
    const ARGUMENTS: &str = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}"#;
    const END: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
    const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    const FAILED: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#;
    const SECOND: &str = r#"{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}"#;
    const DONE: &str = "[DONE]";
    const ERROR: &str = r#"{"error":{"type":"server_error","message":"no"}}"#;
    const UNREADABLE: &str = r#"{"choices":[{"index":0,"delta":{'"#;

    /// Facts of one mark.
    struct Seen {
        excess: bool,
        unreadable: bool,
        bare_call: bool,
        failure: bool,
        said: usize,
        word: bool,
        proven: bool,
        fault: bool,
        changes: u64,
        call_changes: u64,
    }

    /// Returns one fact of the mark of each event.
    fn follow<T>(events: &[&str], fact: impl Fn(Seen) -> T) -> Vec<T> {
        let head = Head { status: 200, content_type: "text/event-stream" };
        let limits = Limits { choices: 2, tool_calls: 1, ..Limits::default() };
        let wire = &provider::OPENROUTER;
        let mut watcher = Watcher::with_limits(wire, head, RequestInfo::default(), limits);
        let mut found = Vec::new();
        for event in events {
            watcher.follow(format!("data: {event}\n\n").as_bytes(), |mark| {
                found.push(fact(Seen {
                    excess: mark.has_excess(),
                    unreadable: mark.has_unreadable(),
                    bare_call: mark.has_bare_call(),
                    failure: mark.says_failure(),
                    said: mark.said(),
                    word: mark.has_word(),
                    proven: mark.is_proven(),
                    fault: mark.has_fault(),
                    changes: mark.changes(),
                    call_changes: mark.call_changes(),
                }));
            });
        }
        found
    }

    #[test]
    fn marks_tell_of_the_end() {
        let events = [TEXT, STOP, SECOND, DONE];
        assert_eq!(follow(&events, |seen| seen.word), [false, true, true, true]);
        assert_eq!(follow(&events, |seen| seen.said), [0, 1, 2, 2]);
        assert_eq!(follow(&events, |seen| seen.proven), [false, false, false, true]);
        assert_eq!(follow(&[TEXT, ERROR], |seen| seen.fault), [false, true]);
        assert_eq!(follow(&[FAILED, SECOND], |seen| seen.failure), [true, false]);
    }

    /// A gateway closes its gate if there may be calls that the marks do not count.
    #[test]
    fn marks_tell_of_calls_that_are_not_followed() {
        let other = START.replace("\"index\":0,\"id\":\"1\"", "\"index\":1,\"id\":\"2\"");
        assert_eq!(follow(&[START, &other, DONE], |seen| seen.excess), [false, true, true]);
        let events = [TEXT, UNREADABLE, DONE];
        assert_eq!(follow(&events, |seen| seen.unreadable), [false, true, true]);
        let events = [TEXT, START, ARGUMENTS, END];
        assert_eq!(follow(&events, |seen| seen.bare_call), [false, true, false, false]);
    }

    /// A gateway looks at the calls again only if these numbers change.
    #[test]
    fn marks_tell_of_changes() {
        let changed = |events: &[&str], count: fn(Seen) -> u64| -> Vec<bool> {
            follow(events, count).windows(2).map(|pair| pair[0] != pair[1]).collect()
        };
        let events = [TEXT, TEXT, START, ARGUMENTS, END, DONE, DONE];
        let all = changed(&events, |seen| seen.changes);
        assert_eq!(all, [false, true, true, true, true, false]);
        let calls = changed(&events, |seen| seen.call_changes);
        assert_eq!(calls, [false, true, true, false, false, false]);
        assert_eq!(changed(&[TEXT, UNREADABLE], |seen| seen.call_changes), [true]);
    }

    #[test]
    fn each_sign_lets_a_call_run_and_none_does_without_a_call() {
        let none = ChoiceMark::default();
        let begun = ChoiceMark { begun: 1, ..none };
        assert!(!begun.could_run(false));
        for settled in [
            ChoiceMark { begun: 2, ..none },
            ChoiceMark { whole: 1, ..begun },
            ChoiceMark { closed: 1, ..begun },
            ChoiceMark { said: true, ..begun },
        ] {
            assert!(settled.could_run(false), "{settled:?}");
        }
        assert!(begun.could_run(true));
        assert!(!ChoiceMark { said: true, ..none }.could_run(true));
    }
}
