use super::*;
use crate::disposition::Failure;
use endstop::provider::{self, Provider};
use endstop::tool_call::exposed;
use endstop::{Head, Reason, RequestInfo};

const HEAD: Head<'_> = Head { status: 200, content_type: "text/event-stream" };
const TEXT: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

/// A piece of a call on the chat wire.
fn piece(choice: u32, call: u32, name: &str, arguments: &str) -> String {
    let head = match name {
        "" => String::new(),
        _ => format!("\"id\":\"c{call}\",\"type\":\"function\","),
    };
    let name = if name.is_empty() { String::new() } else { format!("\"name\":\"{name}\",") };
    let arguments = serde_json::to_string(arguments).unwrap();
    format!(
        "data: {{\"choices\":[{{\"index\":{choice},\"delta\":{{\"tool_calls\":[{{\"index\":{call},\
         {head}\"function\":{{{name}\"arguments\":{arguments}}}}}]}}}}]}}\n\n"
    )
}

fn call() -> String {
    piece(0, 0, "f", "{}")
}

#[test]
fn an_unfinished_event_is_counted() {
    for mode in [Mode::Guard, Mode::Observe] {
        let mut guard = plain(ToolCalls::Gate);
        guard.terms.mode = mode;
        push(&mut guard, TEXT);
        assert_eq!(guard.unfinished_bytes(), 0);
        push(&mut guard, "data: {\"x\":\"");
        push(&mut guard, &"y".repeat(1000));
        assert_eq!(guard.unfinished_bytes(), 1012, "{mode:?}");
        push(&mut guard, "\"}\n\ndata");
        assert_eq!(guard.unfinished_bytes(), 4, "{mode:?}");
    }
}

fn said(choice: u32, word: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":{choice},\"delta\":{{}},\"finish_reason\":\"{word}\"}}]}}\n\n"
    )
}

fn word(word: &str) -> String {
    said(0, word)
}

/// A guard over one provider's streams.
fn guard(provider: &Provider, tool_calls: ToolCalls, info: RequestInfo) -> Guard {
    let capped = info.cap.is_some();
    let watcher = Watcher::new(provider, HEAD, RequestInfo { streamed: Some(true), ..info });
    let terms = ResponseRules { mode: Mode::Guard, tool_calls, proves: true, background: false };
    Guard::new(watcher, provider.main, terms).capped(capped)
}

fn plain(tool_calls: ToolCalls) -> Guard {
    guard(&provider::OPENAI, tool_calls, RequestInfo::default())
}

/// Returns the bytes that a client gets of these pieces, and the end.
fn run(mut guard: Guard, pieces: &[&[u8]]) -> (String, Option<Failure>, Reason) {
    let mut out = Vec::new();
    for piece in pieces {
        let next = guard.push(&Bytes::copy_from_slice(piece), &mut |bytes| {
            out.extend_from_slice(&bytes);
        });
        if next == Next::Fail {
            return end(guard.fail(), out);
        }
    }
    end(guard.finish(TransportEnd::Eof), out)
}

fn end(end: GuardEnd, mut out: Vec<u8>) -> (String, Option<Failure>, Reason) {
    out.extend_from_slice(&end.rest);
    out.extend_from_slice(&end.frame.unwrap_or_default());
    let failure = match end.disposition {
        Disposition::Fail(failure) => Some(failure),
        Disposition::Pass | Disposition::Warn | Disposition::Status(_) => None,
    };
    (String::from_utf8(out).unwrap(), failure, end.ending.reason)
}

/// Pushes a text and returns what left.
fn push(guard: &mut Guard, text: &str) -> (Next, String) {
    let mut out = Vec::new();
    let next = guard.push(&Bytes::copy_from_slice(text.as_bytes()), &mut |bytes| {
        out.extend_from_slice(&bytes);
    });
    (next, String::from_utf8(out).unwrap())
}

fn held(next: Next) -> (Next, String) {
    (next, String::new())
}

fn left(text: &str) -> (Next, String) {
    (Next::Go, text.to_owned())
}

#[test]
fn events_behind_something_else_do_not_leave() {
    let padding = format!("{}}}", " ".repeat(2 * TAIL));
    let leads =
        ["<!-- proxy -->\n\n", "\u{1f}\n\n", "{}\n\n", "[]\n\n", "{\"x\":\"\n\n", "[{}]data"];
    for lead in leads {
        let call = call();
        let all = [lead.as_bytes(), call.as_bytes(), padding.as_bytes()];
        let (out, failure, _) = run(plain(ToolCalls::Gate), &all);
        assert!(failure.is_some() && !out.contains("arguments"), "{lead}: {out}");
        let mut guard = plain(ToolCalls::Gate);
        guard.set_opaque();
        guard.read_copy(lead.as_bytes());
        push(&mut guard, "1");
        guard.read_copy(call.as_bytes());
        assert_eq!(push(&mut guard, "2").1, "", "{lead}");
        guard.read_copy(padding.as_bytes());
        assert_eq!(push(&mut guard, "3").1, "", "{lead}");
    }
}

#[test]
fn lines_that_only_some_clients_read_do_not_leave() {
    for before in [
        " ",
        "\t",
        "\u{feff}",
        "\u{a0}",
        "\u{c}",
        "\u{1e}",
        "id: 1\u{1c}",
        ": x\u{85}",
        "x\u{2028} ",
    ] {
        let disguised = call().replace("data: ", &format!("{before}data: "));
        for bare in [disguised.clone(), disguised.replace("data: ", "")] {
            let mut guard = plain(ToolCalls::Gate);
            push(&mut guard, TEXT);
            assert!(!push(&mut guard, &bare).1.contains("arguments"), "{bare:?}");
        }
        // Cut in the middle of a long line.
        let mut guard = plain(ToolCalls::Gate);
        push(&mut guard, TEXT);
        let long = disguised.replace("\n\n", &" ".repeat(2 * TAIL));
        push(&mut guard, &long);
        assert!(!push(&mut guard, "\n").1.contains('\n'), "{disguised:?}");
    }
}

#[test]
fn the_bytes_of_an_unfinished_frame_stay_where_they_are_compressed() {
    let mut guard = plain(ToolCalls::Gate);
    guard.set_opaque();
    guard.read_copy(TEXT.trim_end().as_bytes());
    assert_eq!(push(&mut guard, "1"), left(""));
    guard.read_copy(b"\n");
    assert_eq!(push(&mut guard, "2"), left(""));
    guard.read_copy(b"\n");
    assert_eq!(push(&mut guard, "3"), left("123"));
    guard.read_copy(call().trim_end().as_bytes());
    assert_eq!(push(&mut guard, "4"), left(""));
    guard.read_copy(b"\n\n");
    assert_eq!(push(&mut guard, "5"), left(""));
}

#[test]
fn a_call_in_a_choice_that_is_not_followed_does_not_leave() {
    let mut guard = plain(ToolCalls::Gate);
    let most = endstop::Limits::default().choices as u32;
    for choice in 0..most {
        let text = format!(
            "data: {{\"choices\":[{{\"index\":{choice},\"delta\":{{\"content\":\"a\"}}}}]}}\n\n"
        );
        assert_eq!(push(&mut guard, &text), left(&text));
    }
    assert_eq!(push(&mut guard, &piece(most, 0, "f", "{}")).1, "");
    assert_eq!(push(&mut guard, &said(most, "tool_calls")).1, "");
}

#[test]
fn events_for_the_record_are_taken_out_at_every_cut_and_nothing_else_is() {
    let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":9}}\n\n";
    let other = "data: {\"choices\":[],\"usage\":null}\n\n";
    for before in [TEXT.to_owned(), call()] {
        let said = word(if before == TEXT { "stop" } else { "tool_calls" });
        let stream = format!("{before}{said}{other}{usage}{DONE}");
        let without = format!("{before}{said}{other}{DONE}");
        let run = |pieces: &[&[u8]]| {
            let is_extra = provider::OPENAI.main.request_shape.usage.map(|usage| usage.is_extra);
            let info = RequestInfo { cap: Some(99), ..RequestInfo::default() };
            let guard = guard(&provider::OPENAI, ToolCalls::Gate, info);
            run(guard.without(is_extra), pieces)
        };
        for cut in 0..=stream.len() {
            let (head, tail) = stream.as_bytes().split_at(cut);
            assert_eq!(run(&[head, tail]).0, without, "{cut}");
        }
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(run(&bytes).0, without);
    }
}

/// Every way to cut a stream in two gives a client the same, a healthy stream is unchanged, and
/// nothing that leaves before the end shows a call that could run.
#[test]
fn every_cut_gives_the_same() {
    let call = call();
    let whole: &[(String, bool)] = &[
        (format!("{TEXT}{}{DONE}", word("stop")), true),
        (format!("{call}{}{DONE}", word("tool_calls")), true),
        (format!("{}{}{DONE}", piece(0, 0, "f", ""), word("tool_calls")), true),
        (format!(": hi\r\n\r\n{TEXT}{}", word("stop")), true),
        (format!("{TEXT}{DONE}"), true),
        (format!("{TEXT}data: {{\"choi"), false),
        (format!("{call}{}{DONE}", word("length")), false),
        (format!("{call}{DONE}"), false),
        (format!("{TEXT}{call}"), false),
        (format!("{call}{}{DONE}", word("frobnicated")), false),
        (format!("{call}{}", piece(0, 1, "f", "{\"a\":")), false),
    ];
    for tool_calls in [ToolCalls::Gate, ToolCalls::Hold] {
        for (stream, well) in whole {
            let run = |pieces: &[&[u8]]| run(plain(tool_calls), pieces);
            let want = run(&[stream.as_bytes()]);
            assert_eq!(want.1.is_none(), *well, "{stream}: {want:?}");
            if *well {
                assert_eq!(&want.0, stream);
            } else {
                let shown = exposed(&provider::OPENAI, HEAD, want.0.as_bytes());
                assert!(shown.is_empty(), "{stream}: {shown:?}");
            }
            for cut in 0..=stream.len() {
                let (head, tail) = stream.as_bytes().split_at(cut);
                assert_eq!(run(&[head, tail]), want, "{stream} at {cut}");
            }
            let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
            assert_eq!(run(&bytes), want, "{stream} byte by byte");
        }
    }
}

#[test]
fn a_refused_call_never_leaves() {
    let call = call();
    for refused in [format!("{call}{}{DONE}", word("length")), format!("{call}{DONE}")] {
        for tool_calls in [ToolCalls::Gate, ToolCalls::Hold] {
            let (out, failure, _) = run(plain(tool_calls), &[refused.as_bytes()]);
            assert!(out.starts_with("data: {\"error\":"), "{out}");
            assert_eq!(failure.map(|failure| failure.status), Some(400));
        }
        let (out, failure, _) = run(plain(ToolCalls::Pass), &[refused.as_bytes()]);
        assert_eq!((out.as_str(), failure), (refused.as_str(), None));
    }
}

#[test]
fn only_frames_after_which_a_call_could_run_wait() {
    let (stop, calls) = (word("stop"), word("tool_calls"));
    // Text and its finish reason leave at once, and so do comments.
    let mut text = plain(ToolCalls::Gate);
    for frame in [TEXT, ": ping\n\n", stop.as_str(), DONE] {
        assert_eq!(push(&mut text, frame), left(frame));
    }
    // The pieces of a call leave until its arguments would be complete.
    let pieces =
        [piece(0, 0, "f", ""), piece(0, 0, "", "{\"a\":"), piece(0, 0, "", "1}"), calls.clone()];
    let mut gate = plain(ToolCalls::Gate);
    assert_eq!(push(&mut gate, &pieces[0]), left(&pieces[0]));
    assert_eq!(push(&mut gate, &pieces[1]), left(&pieces[1]));
    assert_eq!(push(&mut gate, &pieces[2]), held(Next::Go));
    assert_eq!(push(&mut gate, &pieces[3]), held(Next::Wait));
    assert_eq!(push(&mut gate, DONE), left(&format!("{}{calls}{DONE}", pieces[2])));
    // The next call may make the one before it complete.
    let mut gate = plain(ToolCalls::Gate);
    assert_eq!(push(&mut gate, &pieces[0]), left(&pieces[0]));
    assert_eq!(push(&mut gate, &piece(0, 1, "g", "")), held(Next::Go));
    // `hold` shows nothing of a call.
    let mut hold = plain(ToolCalls::Hold);
    assert_eq!(push(&mut hold, &pieces[0]), held(Next::Go));
    assert_eq!(push(&mut hold, &calls), held(Next::Wait));
    assert_eq!(push(&mut hold, DONE), left(&format!("{}{calls}{DONE}", pieces[0])));
}

/// Clients stop reading at the end marker, and would never see a later error.
#[test]
fn the_finish_reason_of_a_failure_does_not_leave() {
    let mut gate = plain(ToolCalls::Gate);
    assert_eq!(push(&mut gate, TEXT), left(TEXT));
    assert_eq!(push(&mut gate, &word("error")), held(Next::Fail));
    let end = gate.fail();
    assert!(end.clean && end.rest.is_empty() && end.frame.is_some());
    for passes in ["stop", "length", "content_filter", "frobnicated"] {
        let mut gate = plain(ToolCalls::Gate);
        push(&mut gate, TEXT);
        assert_eq!(push(&mut gate, &word(passes)), left(&word(passes)));
    }
}

#[test]
fn what_has_waited_long_enough_leaves_if_it_may() {
    let run = |said: &str| {
        let mut guard = plain(ToolCalls::Gate);
        push(&mut guard, &call());
        push(&mut guard, said);
        let mut out = Vec::new();
        let next = guard.waited(&mut |bytes| out.extend_from_slice(&bytes));
        (next, String::from_utf8(out).unwrap())
    };
    let calls = word("tool_calls");
    assert_eq!(run(&calls), left(&format!("{}{calls}", call())));
    assert_eq!(run(&word("length")), held(Next::Fail));
}

/// The gate is per choice, and closes again.
#[test]
fn every_choice_is_waited_for() {
    let two = RequestInfo { choices: Some(2), ..RequestInfo::default() };
    let mut gate = guard(&provider::OPENAI, ToolCalls::Gate, two.clone());
    let open = piece(1, 0, "g", "{\"path\":\"/ho");
    assert_eq!(push(&mut gate, &open), left(&open));
    assert_eq!(push(&mut gate, &call()), held(Next::Go));
    // One of two finish reasons: nothing is released, however long it takes.
    assert_eq!(push(&mut gate, &word("tool_calls")), held(Next::Go));
    assert_eq!(push(&mut gate, DONE), held(Next::Fail));
    // A choice that begins after the release is held again.
    let mut gate = plain(ToolCalls::Gate);
    push(&mut gate, &call());
    assert_eq!(push(&mut gate, &word("tool_calls")).0, Next::Wait);
    assert_eq!(gate.waited(&mut |_| {}), Next::Go);
    assert_eq!(push(&mut gate, TEXT), left(TEXT));
    assert_eq!(push(&mut gate, &piece(1, 0, "g", "{}")), held(Next::Go));
    assert_eq!(push(&mut gate, DONE), held(Next::Fail));
}

#[test]
fn a_call_of_the_providers_own_is_let_go_as_soon_as_it_is_known() {
    let responses = provider::OPENAI.wire_of("openai-responses").unwrap();
    let watcher = Watcher::new(
        responses,
        HEAD,
        RequestInfo { streamed: Some(true), ..RequestInfo::default() },
    );
    let terms = ResponseRules {
        mode: Mode::Guard,
        tool_calls: ToolCalls::Gate,
        proves: true,
        background: false,
    };
    let mut gate = Guard::new(watcher, *responses, terms);
    let event = |json: &str| format!("data: {json}\n\n");
    let done = event(
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"shell_call","call_id":"b","status":"completed","action":{"commands":["x"]}}}"#,
    );
    let output = event(
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"shell_call_output","call_id":"b"}}"#,
    );
    assert_eq!(push(&mut gate, &done), held(Next::Go));
    assert_eq!(push(&mut gate, &output), left(&format!("{done}{output}")));
    let search = event(
        r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"web_search_call","id":"w","status":"completed"}}"#,
    );
    assert_eq!(push(&mut gate, &search), left(&search));
}

#[test]
fn late_token_counts_are_waited_for() {
    // At the limit, a call without arguments is a cut one; the count follows the finish reason.
    let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":9}}\n\n";
    let stream = format!("{}{}{usage}{DONE}", piece(0, 0, "f", ""), word("tool_calls"));
    let fails = |cap| {
        let info = RequestInfo { cap: Some(cap), ..RequestInfo::default() };
        let guard = guard(&provider::OPENAI, ToolCalls::Gate, info);
        run(guard, &[stream.as_bytes()]).1.is_some()
    };
    assert!(fails(9));
    assert!(!fails(10));
}

#[test]
fn a_large_frame_leaves_unfinished_and_then_only_an_abort_shows_a_cut() {
    let long = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}", "x".repeat(TAIL));
    let pieces = [TEXT.as_bytes(), long.as_bytes()];
    let (out, failure, reason) = run(plain(ToolCalls::Gate), &pieces);
    assert_eq!(out, format!("{TEXT}{long}"));
    assert_eq!((failure.is_some(), reason), (true, Reason::Cut));
    let short = format!("data: {{\"x\":\"{}", "x".repeat(TAIL - 20));
    let pieces = [TEXT.as_bytes(), short.as_bytes()];
    let (out, ..) = run(plain(ToolCalls::Gate), &pieces);
    assert!(out.starts_with(&format!("{TEXT}data: {{\"error\":")), "{out}");
}

/// Nobody can run a call of a frame that parsers read in different ways.
#[test]
fn equal_keys_with_different_values_run_nothing() {
    let call = r#""tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]"#;
    let delta =
        |delta: &str| format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{{delta}}}}}]}}\n\n");
    let two = |one: &str, other: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":{one},\
             \"finish_reason\":{other}}}]}}\n\n"
        )
    };
    let empty = r#""tool_calls":[]"#;
    let other = call.replace(":\"f\"", ":\"g\"");
    let (calls, length) = ("\"tool_calls\"", "\"length\"");
    let streams = [
        format!("{}{}{DONE}", delta(&format!("{call},{empty}")), word("stop")),
        format!("{}{}{DONE}", delta(&format!("{empty},{call}")), word("tool_calls")),
        format!("{}{}{DONE}", delta(&format!("{call},{other}")), word("tool_calls")),
        format!("{}{}{DONE}", delta(call), two(calls, length)),
        format!("{}{}{DONE}", delta(call), two(length, calls)),
    ];
    for stream in streams {
        for tool_calls in [ToolCalls::Gate, ToolCalls::Hold] {
            for size in [1, 9, stream.len()] {
                let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
                let (out, failure, reason) = run(plain(tool_calls), &chunks);
                assert!(failure.is_some() && !reason.is_success(), "{stream}: {reason:?}");
                assert!(!out.contains("\"id\":\"c\""), "{out}");
            }
        }
    }
    // Equal values contradict nothing, and neither do texts.
    for same in [format!("{call},{call}"), format!("\"content\":\"a\",\"content\":null,{call}")] {
        let stream = format!("{}{}{DONE}", delta(&same), two(calls, calls));
        let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
        assert_eq!((out, failure), (stream, None));
    }
}

/// An error is put between frames and never into one, wherever a stream is cut.
#[test]
fn an_error_never_lands_inside_of_a_frame() {
    let large = |lead: &str| format!("{lead}{{\"x\":\"{}\"}}", "x".repeat(3 * TAIL));
    let sse = format!("{TEXT}{}\n\n{TEXT}: {}\n\n", large("data: "), "c".repeat(2 * TAIL));
    for size in [999, TAIL - 1, TAIL + 1, 2 * TAIL] {
        for cut in (0..sse.len()).step_by(4999) {
            let stream = sse.get(..cut).unwrap();
            let mut gate = plain(ToolCalls::Gate);
            let mut out = String::new();
            for chunk in stream.as_bytes().chunks(size) {
                out += &push(&mut gate, std::str::from_utf8(chunk).unwrap()).1;
            }
            let end = gate.finish(TransportEnd::Eof);
            out += std::str::from_utf8(&end.rest).unwrap();
            assert!(sse.starts_with(&out));
            if end.frame.is_some() {
                assert!(out.is_empty() || out.ends_with("\n\n"), "{cut} in {size}");
            } else {
                assert!(!end.clean, "{cut} in {size}");
            }
        }
    }
}

/// Frames that are taken out do not pile up.
#[test]
fn frames_that_were_taken_out_are_forgotten() {
    let usage = "data: {\"choices\":[],\"usage\":{\"completion_tokens\":9}}\n\n";
    let is_extra = provider::OPENAI.main.request_shape.usage.map(|usage| usage.is_extra);
    let mut gate = plain(ToolCalls::Gate).without(is_extra);
    push(&mut gate, &word("stop"));
    for _ in 0..1000 {
        assert_eq!(push(&mut gate, usage), left(""));
        assert!(gate.extra.as_ref().is_some_and(|extra| extra.out.len() <= 1));
    }
}

/// A call in one large frame: its beginning leaves, but never its end.
#[test]
fn the_end_of_a_large_call_waits() {
    let large = piece(0, 0, "f", &format!("{{\"a\":\"{}\"}}", "x".repeat(2 * TAIL)));
    let mut gate = plain(ToolCalls::Gate);
    let mut out = String::new();
    for part in large.as_bytes().chunks(1000) {
        out += &push(&mut gate, std::str::from_utf8(part).unwrap()).1;
    }
    assert!(out.len() > TAIL && out.len() < large.len());
    assert!(exposed(&provider::OPENAI, HEAD, out.as_bytes()).is_empty());
    let end = gate.finish(TransportEnd::Eof);
    assert!(!end.clean && end.rest.is_empty() && end.frame.is_none());
}

#[test]
fn the_end_is_as_gentle_as_the_wire_allows() {
    let clean = |provider: &Provider, pieces: &[String], close| {
        let mut guard = guard(provider, ToolCalls::Gate, RequestInfo::default());
        for piece in pieces {
            if push(&mut guard, piece).0 == Next::Fail {
                return guard.fail().clean;
            }
        }
        guard.finish(close).clean
    };
    let (openai, eof) = (&provider::OPENAI, TransportEnd::Eof);
    assert!(clean(openai, &[TEXT.to_owned()], eof));
    assert!(clean(openai, &[call(), word("length"), DONE.to_owned()], eof));
    // Part of a call has left.
    assert!(!clean(openai, &[piece(0, 0, "f", "{\"a")], eof));
    // After the provider's own error, the connection ends as the provider ended it.
    let error = "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n".to_owned();
    assert!(clean(openai, &[TEXT.to_owned(), error.clone()], eof));
    assert!(!clean(openai, &[TEXT.to_owned(), error], TransportEnd::Reset));
    // Cohere's clients overlook the error.
    let cohere = "data: {\"type\":\"message-start\",\"id\":\"1\"}\n\n".to_owned();
    assert!(!clean(&provider::COHERE, &[cohere], eof));
}

#[test]
fn a_client_that_waits_is_kept_waiting() {
    let mut gate = plain(ToolCalls::Gate);
    assert_eq!(gate.keep_alive(), None, "nothing is held");
    push(&mut gate, &call());
    assert_eq!(gate.keep_alive().as_deref(), Some(&b": keep-alive\n\n"[..]));
    // Gemini's clients skip nothing: half of the held frame is all that there is.
    let mut gate = guard(&provider::GOOGLE, ToolCalls::Gate, RequestInfo::default());
    let frame = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{}}}]}}]}\n\n";
    assert_eq!(push(&mut gate, frame), held(Next::Go));
    let mut out = Vec::new();
    while let Some(bytes) = gate.keep_alive() {
        assert_eq!(bytes.len(), 1);
        out.extend_from_slice(&bytes);
    }
    assert_eq!(out, frame.as_bytes()[..frame.len() / 2]);
    let last = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n";
    push(&mut gate, last);
    let end = gate.finish(TransportEnd::Eof);
    out.extend_from_slice(&end.rest);
    assert!(end.clean);
    assert_eq!(String::from_utf8(out).unwrap(), format!("{frame}{last}"));
}

#[test]
fn what_is_held_is_bounded() {
    let mut guard = plain(ToolCalls::Hold);
    let mut pass = |_| {};
    guard.push(&Bytes::from(call()), &mut pass);
    let more = Bytes::from(call().repeat(1000));
    let mut pushes = 0;
    while guard.push(&more, &mut pass) != Next::Fail {
        pushes += 1;
        assert!(pushes < 1000);
    }
    assert!(guard.held.len() <= HELD + more.len());
    let end = guard.fail();
    let Disposition::Fail(failure) = end.disposition else { panic!("it passed") };
    assert_eq!((failure.status, failure.code), (400, "endstop_too_much_held"));
    assert_eq!(end.ending.closed, endstop::Closed::Oversize);
}

/// A call before an image that is larger than all that may be held: nobody can parse the body before its
/// last bracket, so only that waits.
#[test]
fn a_body_with_a_call_before_a_large_image_passes_if_it_is_complete() {
    let image = "A".repeat(HELD + TAIL);
    let call = r#"{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}"#;
    let chat = format!(
        r#"{{"choices":[{{"index":0,"finish_reason":"WORD","message":{{"tool_calls":[{call}],"images":["{image}"]}}}}]}}"#
    );
    let gemini = format!(
        r#"{{"candidates":[{{"finishReason":"WORD","content":{{"parts":[{{"functionCall":{{"name":"f","args":{{}}}}}},{{"inlineData":{{"data":"{image}"}}}}]}}}}]}}"#
    );
    let (openai, google) = (&provider::OPENAI, &provider::GOOGLE);
    for (provider, body, whole, cut) in
        [(openai, chat, "tool_calls", "length"), (google, gemini, "STOP", "MAX_TOKENS")]
    {
        let run = |word: &str| {
            let body = body.replace("WORD", word);
            let head = Head { status: 200, content_type: "application/json" };
            let info = RequestInfo { streamed: Some(false), ..RequestInfo::default() };
            let (mode, tool_calls) = (Mode::Guard, ToolCalls::Gate);
            let terms = ResponseRules { mode, tool_calls, proves: true, background: false };
            let watcher = Watcher::new(provider, head, info);
            let mut guard = Guard::new(watcher, provider.main, terms);
            let mut out = String::new();
            for part in body.as_bytes().chunks(1 << 20) {
                let (next, left) = push(&mut guard, std::str::from_utf8(part).unwrap());
                assert_eq!(next, Next::Go, "{word}");
                out += &left;
            }
            let GuardEnd { rest, disposition, clean, .. } = guard.finish(TransportEnd::Eof);
            out += std::str::from_utf8(&rest).unwrap();
            let failed = matches!(disposition, Disposition::Fail(_));
            (out == body, serde_json::from_str::<serde_json::Value>(&out).is_ok(), clean, failed)
        };
        assert_eq!(run(whole), (true, true, true, false), "{}", provider.id);
        assert_eq!(run(cut), (false, false, false, true), "{}", provider.id);
    }
}

const CLOSED_CALL: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
);

fn messages() -> Guard {
    guard(&provider::ANTHROPIC, ToolCalls::Gate, RequestInfo::default())
}

/// A finish reason and then silence: the answer is complete, but no call of it is proven.
#[test]
fn a_call_that_waits_does_not_leave_at_a_timeout() {
    for word in ["tool_use", "max_tokens", "frobnicated"] {
        let delta = format!(
            "event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{word}\"}},\"usage\":{{\"output_tokens\":9}}}}\n\n"
        );
        let mut gate = messages();
        let out = push(&mut gate, &format!("{CLOSED_CALL}{delta}")).1;
        assert!(!out.contains("content_block_stop"), "{out}");
        let end = gate.finish(TransportEnd::TimedOut(endstop::Timer::Idle));
        assert!(matches!(end.disposition, Disposition::Fail(_)), "{word}: {:?}", end.ending);
        assert!(end.rest.is_empty() && end.frame.is_some() && !end.clean, "{word}");
    }
    // Text alone is complete.
    let text = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hi\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n";
    let mut gate = messages();
    push(&mut gate, text);
    let end = gate.finish(TransportEnd::TimedOut(endstop::Timer::Idle));
    assert!(end.clean && !matches!(end.disposition, Disposition::Fail(_)));
}

/// Clients end as they do without the gateway: by the provider's own error.
#[test]
fn the_providers_error_takes_the_place_of_a_call_that_waits() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    for cut in [0, 7, error.len() - 1] {
        let (first, rest) = error.split_at(cut);
        let mut gate = messages();
        let mut out = push(&mut gate, CLOSED_CALL).1;
        assert_eq!(push(&mut gate, first), held(Next::Go));
        assert_eq!(push(&mut gate, rest), held(Next::Fail));
        let end = gate.fail();
        assert!(end.clean && end.frame.is_none());
        out += std::str::from_utf8(&end.rest).unwrap();
        assert!(!out.contains("content_block_stop"), "{out}");
        assert!(out.ends_with(error), "{out}");
    }
}

/// Some clients act on a line: the end of a data line waits for the end of its event.
#[test]
fn no_data_line_of_an_unfinished_event_ends() {
    let name = "event: x\nid: 1\n";
    let data = format!("data: {}", "x".repeat(2 * TAIL));
    let mut gate = messages();
    let mut out = push(&mut gate, name).1;
    for part in data.as_bytes().chunks(9000) {
        out += &push(&mut gate, std::str::from_utf8(part).unwrap()).1;
    }
    assert_eq!(out, format!("{name}{data}"));
    for more in ["\n", "data: y", "\nid: 2\n"] {
        assert_eq!(push(&mut gate, more).1, "", "{more:?}");
    }
    assert_eq!(push(&mut gate, "\n").1, "\ndata: y\nid: 2\n\n");
}

/// A wire of a provider, by its id.
fn on(provider: &Provider, dialect: &str, content_type: &'static str) -> Guard {
    let wire = provider.wire_of(dialect).unwrap();
    let head = Head { status: 200, content_type };
    let info = RequestInfo { streamed: Some(true), ..RequestInfo::default() };
    let terms = ResponseRules {
        mode: Mode::Guard,
        tool_calls: ToolCalls::Gate,
        proves: true,
        background: false,
    };
    Guard::new(Watcher::new(wire, head, info), *wire, terms)
}

const SSE: &str = "text/event-stream";

/// Streams whose error frame holds a call that a client could run if it overlooks the error.
fn calls_beside_errors() -> Vec<(&'static str, Guard, String)> {
    let chat = |fields: &str, choice: &str| {
        format!(
            "data: {{{fields}\"choices\":[{{\"index\":0,{choice}\"delta\":{{\"tool_calls\":[{{\
             \"index\":0,\"id\":\"c\",\"function\":{{\"name\":\"f\",\"arguments\":\
             \"{{\\\"a\\\":\\\"ZZ\\\"}}\"}}}}]}}}}]}}\n\n"
        )
    };
    let error = r#""error":{"code":502,"message":"x"},"#;
    let item = r#"{"type":"function_call","id":"i","call_id":"c","name":"f","arguments":"{\"a\":\"ZZ\"}","status":"completed"}"#;
    let block = r#"{"type":"tool_use","id":"t","name":"f","input":{"a":"ZZ"}}"#;
    let gemini = format!(
        "data: {{{error}\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{{\
         \"name\":\"f\",\"args\":{{\"a\":\"ZZ\"}}}}}}]}}}}]}}\n\n"
    );
    let openai = || plain(ToolCalls::Gate);
    let responses = || on(&provider::OPENAI, "openai-responses", SSE);
    let google = || on(&provider::GOOGLE, "gemini-generate", SSE);
    let lines = || on(&provider::OLLAMA, "ollama-chat", "application/x-ndjson");
    let base = r#""base_resp":{"status_code":1000,"status_msg":"x"},"#;
    vec![
        ("choice", openai(), format!("{}{DONE}", chat("", error))),
        (
            "choice, word",
            openai(),
            format!("{}{DONE}", chat("", &format!("{error}\"finish_reason\":\"tool_calls\","))),
        ),
        ("top", openai(), format!("{}{DONE}", chat(error, ""))),
        ("base_resp", openai(), format!("{}{DONE}", chat(base, ""))),
        ("named", openai(), format!("event: error\n{}{DONE}", chat("", ""))),
        // A later frame completes what has left.
        (
            "rest of a call",
            openai(),
            format!(
                "{}{}{DONE}",
                piece(0, 0, "f", "{\"a\":"),
                piece(0, 0, "", "\"ZZ\"}").replace("\"choices\"", &format!("{error}\"choices\""))
            ),
        ),
        (
            "other rest of a call",
            openai(),
            format!(
                "{}{}{}{DONE}",
                piece(0, 0, "f", "{\"a\":"),
                piece(0, 0, "", "1}"),
                piece(0, 0, "", "\"ZZ\"}").replace("\"choices\"", &format!("{error}\"choices\""))
            ),
        ),
        (
            "response.failed",
            responses(),
            format!(
                "event: response.failed\ndata: {{\"type\":\"response.failed\",\"response\":{{\
                 \"status\":\"failed\",{error}\"output\":[{item}]}}}}\n\n"
            ),
        ),
        (
            "item in an error",
            responses(),
            format!(
                "event: error\ndata: {{\"type\":\"response.output_item.done\",\
                 \"output_index\":0,\"item\":{item}}}\n\n"
            ),
        ),
        (
            "block in an error",
            messages(),
            format!(
                "event: error\ndata: {{\"type\":\"content_block_start\",\"index\":0,{error}\
                 \"content_block\":{block}}}\n\n"
            ),
        ),
        ("gemini", google(), gemini.clone()),
        // Only the end of the bytes completes it.
        ("no end of the event", google(), gemini.trim_end().to_owned()),
        ("no end of the event, chat", openai(), chat("", error).trim_end().to_owned()),
        (
            "a body as events",
            openai(),
            chat(error, "").trim_end().replace("data: ", "").replace("delta", "message"),
        ),
        (
            "ollama",
            lines(),
            format!(
                "{{{error}\"message\":{{\"tool_calls\":[{{\"function\":{{\"name\":\"f\",\
                 \"arguments\":{{\"a\":\"ZZ\"}}}}}}]}}}}\n"
            ),
        ),
    ]
}

/// A frame that shows a call never leaves unproven, whether it holds an error or not.
#[test]
fn a_call_beside_an_error_never_leaves() {
    for size in [1, 50, usize::MAX] {
        for (name, guard, stream) in calls_beside_errors() {
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size.min(stream.len())).collect();
            let (out, failure, reason) = run(guard, &pieces);
            assert!(!out.contains("ZZ"), "{name}: {out}");
            assert_eq!(reason, Reason::Failed, "{name}");
            assert!(failure.is_some() && out.contains("endstop"), "{name}: {out}");
        }
    }
}

/// A client that has the beginning of a call and a clean end may run it without arguments.
#[test]
fn a_call_that_has_left_without_arguments_is_followed_by_an_abort() {
    let error = "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\n";
    for (pieces, clean) in [
        (vec![call()], true),
        (vec![piece(0, 0, "f", ""), piece(0, 0, "", "{}")], false),
        (vec![piece(0, 0, "f", ""), piece(0, 0, "", "{"), piece(0, 0, "", "}")], true),
    ] {
        let mut gate = plain(ToolCalls::Gate);
        pieces.iter().for_each(|piece| assert_eq!(push(&mut gate, piece).0, Next::Go));
        assert_eq!(push(&mut gate, error), held(Next::Fail));
        let end = gate.fail();
        assert_eq!((&*end.rest, end.clean), (error.as_bytes(), clean), "{pieces:?}");
    }
}

/// After a call without arguments has begun, a finish reason beside an error could complete it.
#[test]
fn a_finish_reason_beside_an_error_completes_no_call() {
    let error = "\"error\":{\"message\":\"x\"},\"choices\"";
    for (said, passes) in [("tool_calls", false), ("stop", false), ("error", true)] {
        let frame = word(said).replace("\"choices\"", error);
        let mut gate = plain(ToolCalls::Gate);
        push(&mut gate, &piece(0, 0, "f", ""));
        assert_eq!(push(&mut gate, &frame), held(Next::Fail));
        let end = gate.fail();
        assert_eq!(end.rest == frame.as_bytes(), passes, "{said}");
        assert_eq!(end.frame.is_none(), passes, "{said}");
    }
}

/// Finding G2: the provider's own word for a malformed call passes, streamed as plain.
#[test]
fn a_word_about_a_call_that_nobody_can_run_passes() {
    let google = |word: &str| {
        format!("data: {{\"candidates\":[{{\"content\":{{}},\"finishReason\":\"{word}\"}}]}}\n\n")
    };
    let text = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}]}\n\n";
    let gemini = || on(&provider::GOOGLE, "gemini-generate", SSE);
    for said in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"] {
        for stream in [google(said), format!("{text}{}", google(said))] {
            let (out, failure, reason) = run(gemini(), &[stream.as_bytes()]);
            assert_eq!((&out, failure), (&stream, None), "{reason:?}");
            assert_eq!(reason, Reason::MalformedToolCall);
        }
    }
    let stream = format!("{TEXT}{}{DONE}", word("tool_calls"));
    let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
    assert_eq!((out, failure), (stream, None));
    // A call that follows is held.
    let mut gate = plain(ToolCalls::Gate);
    push(&mut gate, &format!("{TEXT}{}", word("tool_calls")));
    assert_eq!(push(&mut gate, &call()).1, "");
}

/// A client may read a frame that the gateway cannot, and find a call in it.
#[test]
fn a_frame_that_cannot_be_read_waits_for_the_end() {
    let lenient = |frame: &str| frame.replace("{\"choices\"", "{\"x\":undefined,\"choices\"");
    for last in [word("length"), String::new()] {
        let stream = format!("{TEXT}{}{last}{DONE}", lenient(&call()));
        let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
        assert!(failure.is_some() && !out.contains("arguments"), "{out}");
    }
    let mut gate = plain(ToolCalls::Gate);
    let (text, stop) = (lenient(TEXT), word("stop"));
    assert_eq!(push(&mut gate, &text).1, "");
    assert_eq!(push(&mut gate, &stop).1, "");
    assert_eq!(push(&mut gate, DONE), left(&format!("{text}{stop}{DONE}")));
    // Nobody finds a call in this.
    let mut gate = plain(ToolCalls::Gate);
    assert_eq!(push(&mut gate, "data: ping\n\n"), left("data: ping\n\n"));
}

/// Nothing that could hold a call leaves unread, however large it is.
#[test]
fn what_is_not_read_yet_does_not_leave() {
    let long = "x".repeat(2 * TAIL);
    let line = format!(
        "{{\"message\":{{\"tool_calls\":[{{\"function\":{{\"name\":\"f\",\"arguments\":{{\"a\":\
         \"{long}ZZ\"}}}}}}]}},\"done\":true,\"done_reason\":\"length\"}}"
    );
    let body = format!(
        "{{\"object\":\"chat.completion\",\"choices\":[{{\"index\":0,\"message\":{{\"content\":\
         \"{long}\",\"tool_calls\":[{{\"id\":\"c\",\"function\":{{\"name\":\"f\",\
         \"arguments\":\"{{}}\"}}}}]}},\"finish_reason\":\"length\"}}]}}"
    );
    for size in [1000, 70_000, usize::MAX] {
        let lines = on(&provider::OLLAMA, "ollama-chat", "application/x-ndjson");
        let pieces: Vec<&[u8]> = line.as_bytes().chunks(size.min(line.len())).collect();
        let (out, failure, _) = run(lines, &pieces);
        assert!(failure.is_some() && !out.contains("xxx"), "{}", out.len());
        let pieces: Vec<&[u8]> = body.as_bytes().chunks(size.min(body.len())).collect();
        let (out, failure, _) = run(plain(ToolCalls::Gate), &pieces);
        assert!(failure.is_some() && !out.ends_with('}'), "{}", out.len());
        let well = body.replace("length", "tool_calls");
        let pieces: Vec<&[u8]> = well.as_bytes().chunks(size.min(well.len())).collect();
        assert_eq!(run(plain(ToolCalls::Gate), &pieces).0, well);
    }
    // Compressed bytes that cannot be decoded stay.
    let mut gate = plain(ToolCalls::Gate);
    gate.set_opaque();
    gate.stop_reading(Broken::Corrupt);
    assert_eq!(push(&mut gate, "data: {}\n\n"), held(Next::Fail));
}

/// Where the end of the body is the proof, it is waited for.
#[test]
fn a_finish_reason_alone_releases_no_call_where_the_body_must_end() {
    let call = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{}}}]},\"finishReason\":\"STOP\"}]}\n\n";
    let gemini = || on(&provider::GOOGLE, "gemini-generate", SSE);
    let mut gate = gemini();
    assert_eq!(push(&mut gate, call), held(Next::Go));
    let end = gate.finish(TransportEnd::Eof);
    assert_eq!((&*end.rest, end.clean), (call.as_bytes(), true));
    for close in [TransportEnd::Reset, TransportEnd::TimedOut(endstop::Timer::Idle)] {
        let mut gate = gemini();
        assert_eq!(push(&mut gate, call), held(Next::Go));
        let end = gate.finish(close);
        assert!(end.rest.is_empty() && matches!(end.disposition, Disposition::Fail(_)));
    }
}

/// A call that was closed and then said to be incomplete is not let go with another one.
#[test]
fn the_output_of_another_item_releases_nothing() {
    let event = |json: &str| format!("data: {json}\n\n");
    let mut gate = on(&provider::OPENAI, "openai-responses", SSE);
    let events = [
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"frob_call","id":"q"}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"i","call_id":"c","name":"f","arguments":"","status":"in_progress"}}"#,
        r#"{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{\"a\":\"ZZ"}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"i","call_id":"c","name":"f","arguments":"{\"a\":\"ZZ","status":"incomplete"}}"#,
        r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"frob_call_output","id":"z"}}"#,
    ];
    for json in events {
        assert!(!push(&mut gate, &event(json)).1.contains("ZZ"), "{json}");
    }
}

/// Guards of several wires, with a frame of text and frames of calls of each.
fn wires() -> [(Guard, &'static str, &'static [&'static str]); 5] {
    [
        (
            plain(ToolCalls::Gate),
            TEXT,
            &[
                r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"ZZ","arguments":"{}"}}]}}]}"#,
                r#"{"choices":[{"index":0,"delta":{"function_call":{"name":"ZZ","arguments":"{}"}}}]}"#,
                r#"{"choices":{"index":0,"delta":{"tool_calls":{"id":"c","function":{"name":"ZZ","arguments":"{}"}}}}}"#,
            ],
        ),
        (
            on(&provider::OPENAI, "openai-responses", SSE),
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"Hi\"}\n\n",
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"i","call_id":"c","name":"ZZ","arguments":"{\"a\":1}","status":"in_progress"}}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"i","call_id":"c","name":"ZZ","arguments":"{}","status":"completed"}}"#,
                r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","id":"i","call_id":"c","name":"ZZ","arguments":"{}","status":"completed"}]}}"#,
            ],
        ),
        (
            messages(),
            "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hi\"}}\n\n",
            &[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"ZZ","input":{}}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"t\u006fol_use","id":"t","name":"ZZ","input":{"a":1}}}"#,
                r#"{"type":"message","content":[{"type":"tool_use","id":"t","name":"ZZ","input":{}}],"stop_reason":"tool_use"}"#,
            ],
        ),
        (
            on(&provider::GOOGLE, "gemini-generate", SSE),
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}]}\n\n",
            &[
                r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"ZZ","args":{}}}]}}]}"#,
                r#"{"candidates":{"content":{"parts":{"functionCall":{"name":"ZZ","args":{}}}}}}"#,
            ],
        ),
        (
            on(&provider::COHERE, "cohere-v2", SSE),
            "data: {\"type\":\"content-delta\",\"index\":0,\"delta\":{\"message\":{\"content\":{\"text\":\"Hi\"}}}}\n\n",
            &[
                r#"{"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"a","type":"function","function":{"name":"ZZ","arguments":""}}}}}"#,
            ],
        ),
    ]
}

/// A client may read frames of another wire than that of its path.
#[test]
fn a_call_of_another_wire_waits_for_the_end() {
    let count = wires().len();
    for own in 0..count {
        let new = || wires().into_iter().nth(own).unwrap();
        for call in (0..count).filter(|other| *other != own).flat_map(|other| wires()[other].2) {
            let call = format!("data: {call}\n\n");
            for size in [1, call.len()] {
                for text in [new().1, ""] {
                    let mut gate = new().0;
                    assert_eq!(push(&mut gate, text), left(text));
                    for part in call.as_bytes().chunks(size) {
                        let part = std::str::from_utf8(part).unwrap();
                        assert_eq!(push(&mut gate, part).1, "", "{text}{call}");
                    }
                    // Alone, it may be a complete answer of its wire.
                    let end = gate.finish(TransportEnd::Reset);
                    let fails = matches!(end.disposition, Disposition::Fail(_));
                    assert!(text.is_empty() || fails && end.rest.is_empty(), "{text}{call}");
                }
            }
        }
    }
}

/// It leaves with a complete answer, and not with another.
#[test]
fn a_call_of_another_wire_leaves_with_a_complete_answer() {
    for (_, _, calls) in wires().iter().skip(1) {
        for call in *calls {
            let call = format!("data: {call}\n\n");
            for (said, passes) in [("stop", true), ("length", false), ("frobnicated", false)] {
                let stream = format!("{TEXT}{call}{}{DONE}", word(said));
                let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
                assert_eq!((out == stream, failure.is_none()), (passes, passes), "{stream}");
            }
        }
    }
    // Most events that the wire does not know hold no call.
    let mut gate = plain(ToolCalls::Gate);
    push(&mut gate, TEXT);
    for other in [
        r#"{"type":"ping"}"#,
        r#"{"type":"tool_status","tool":"search","message":"calling"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"b","name":"web_search","input":{}}}"#,
    ] {
        let other = format!("data: {other}\n\n");
        assert_eq!(push(&mut gate, &other), left(&other));
    }
}

/// Errors that hold a call of another wire, or that cannot be read, do not leave in its place.
#[test]
fn an_error_with_a_call_of_another_wire_never_leaves() {
    let item = r#"{"type":"function_call","id":"i","call_id":"c","name":"ZZ","arguments":"{}","status":"completed"}"#;
    let errors = [
        format!("data: {{\"error\":{{\"message\":\"x\"}},\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{item}}}\n\n"),
        format!("event: error\ndata: {{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{item}}}\n\n"),
        "data: {\"error\":{\"code\":500},\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"ZZ\",\"args\":{}}}]}}]}\n\n".to_owned(),
        format!("event: error\ndata: {}", call().replace("data: {", "{\"x\":undefined,").replace("\"f\"", "\"ZZ\"")),
    ];
    for error in errors {
        for lead in [String::new(), TEXT.to_owned(), call()] {
            for error in [&*error, error.trim_end()] {
                let stream = format!("{lead}{error}");
                let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
                assert!(failure.is_some() && !out.contains("ZZ"), "{stream}: {out}");
            }
        }
    }
}

/// Responses events that should hold no items.
#[test]
fn a_call_in_an_early_event_waits_for_the_end() {
    let item = r#"{"type":"function_call","id":"i","call_id":"c","name":"ZZ","arguments":"ARGS","status":"STATUS"}"#;
    for kind in ["created", "queued", "in_progress", "frobnicated"] {
        for (arguments, status) in
            [("{}", "completed"), ("{\\\"a\\\":1}", "in_progress"), ("", "completed")]
        {
            let item = item.replace("ARGS", arguments).replace("STATUS", status);
            let early = format!(
                "data: {{\"type\":\"response.{kind}\",\"response\":{{\"id\":\"r\",\"status\":\"in_progress\",\"output\":[{item}]}}}}\n\n"
            );
            let mut gate = on(&provider::OPENAI, "openai-responses", SSE);
            assert_eq!(push(&mut gate, &early), held(Next::Go));
            assert!(gate.finish(TransportEnd::Eof).rest.is_empty());
            let done = format!(
                "data: {{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{}}}\n\n",
                item.replace("in_progress", "completed")
            );
            for (last, passes) in [("completed", true), ("incomplete", false)] {
                let last = format!(
                    "data: {{\"type\":\"response.{last}\",\"response\":{{\"status\":\"{last}\",\"output\":[]}}}}\n\n"
                );
                let stream = format!("{early}{done}{last}");
                let (out, failure, _) =
                    run(on(&provider::OPENAI, "openai-responses", SSE), &[stream.as_bytes()]);
                assert_eq!((out == stream, failure.is_none()), (passes, passes), "{stream}");
            }
        }
    }
}

/// A client may read the whole message of a chunk, or the delta; a call without its list, or the form
/// of 2023.
#[test]
fn a_call_in_an_odd_place_of_a_chunk_waits_for_the_end() {
    let call = r#"{"index":0,"id":"c","function":{"name":"ZZ","arguments":"{}"}}"#;
    let (listed, single) = (format!("\"tool_calls\":[{call}]"), format!("\"tool_calls\":{call}"));
    let old = "\"function_call\":{\"name\":\"ZZ\",\"arguments\":\"{}\"}".to_owned();
    let object = listed.replace("\"{}\"", "{\"a\":1}");
    let flat = "\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"name\":\"ZZ\",\"arguments\":\"{}\"}]"
        .to_owned();
    let mut choices = Vec::new();
    for call in [listed, single, old, object, flat] {
        choices.push(format!("\"delta\":{{}},\"message\":{{{call}}}"));
        choices.push(format!(
            "\"message\":{{\"content\":\"a\",{call}}},\"delta\":{{\"content\":\"a\"}}"
        ));
        choices.push(format!("\"message\":{{{call}}}"));
        choices.push(format!("\"delta\":{{{call}}}"));
        choices.push(format!("\"delta\":null,\"message\":{{{call}}}"));
    }
    for choice in choices {
        let call = format!("data: {{\"choices\":[{{\"index\":0,{choice}}}]}}\n\n");
        for (said, passes) in [("tool_calls", true), ("length", false), ("stop", true)] {
            let stream = format!("{TEXT}{call}{}{DONE}", word(said));
            let mut gate = plain(ToolCalls::Gate);
            push(&mut gate, TEXT);
            assert_eq!(push(&mut gate, &call), held(Next::Go), "{call}");
            let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
            assert_eq!((out == stream, failure.is_none()), (passes, passes), "{stream}");
        }
    }
}

/// Nobody can run calls of a choice that says two things: nothing of them leaves.
#[test]
fn calls_that_contradict_each_other_never_leave() {
    let chunk = |choice: &str| format!("data: {{\"choices\":[{{\"index\":0,{choice}}}]}}\n\n");
    let delta = |call: &str| chunk(&format!("\"delta\":{{{call}}}"));
    let (new, old) = (
        r#""tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"ARGS"}}]"#,
        r#""function_call":{"name":"f","arguments":"ARGS"}"#,
    );
    let with = |call: &str, arguments: &str| call.replace("ARGS", arguments);
    let (open, whole) = ("{\\\"a\\\":", "{\\\"a\\\":\\\"ZZ\\\"}");
    let streams = [
        // Each form would complete the other.
        vec![delta(&with(new, open)), delta(&with(old, whole))],
        vec![delta(&with(old, open)), delta(&with(new, whole))],
        vec![delta(&format!("{},{}", with(new, open), with(old, whole)))],
        // Plain JSON behind pieces of a string.
        vec![
            delta(&with(new, open)),
            delta(&with(new, "ARGS").replace("\"ARGS\"", "{\"a\":\"ZZ\"}")),
        ],
        // The message and the delta differ.
        vec![chunk(&format!(
            "\"delta\":{{{}}},\"message\":{{{}}}",
            with(new, open),
            with(new, whole)
        ))],
        vec![
            delta(&with(new, open)),
            chunk(&format!("\"delta\":{{}},\"message\":{{{}}}", with(new, whole))),
        ],
        vec![delta("\"tool_calls\":\"ZZ\"")],
    ];
    for frames in streams {
        let stream = format!("{}{}{DONE}", frames.concat(), word("tool_calls"));
        for size in [1, stream.len()] {
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            let (out, failure, reason) = run(plain(ToolCalls::Gate), &pieces);
            assert!(failure.is_some() && !reason.is_success(), "{stream}: {reason:?}");
            assert!(!out.contains("ZZ"), "{stream}: {out}");
        }
    }
    // A message that repeats the call so far contradicts nothing (Perplexity).
    let whole = "{\\\"a\\\":1}";
    let rest = delta(r#""tool_calls":[{"index":0,"function":{"arguments":"1}"}}]"#);
    let frames = [
        chunk(&format!("\"delta\":{{{}}},\"message\":{{{}}}", with(new, open), with(new, open))),
        rest.replace("}]}\n", &format!(",\"message\":{{{}}}}}]}}\n", with(new, whole))),
    ];
    let stream = format!("{}{}{DONE}", frames.concat(), word("tool_calls"));
    let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
    assert_eq!((out, failure), (stream, None));
}

/// Plain bodies with calls in odd places fail unless the response says that they are complete.
#[test]
fn a_call_in_an_odd_place_of_a_body_fails_unless_it_is_complete() {
    let call = r#"{"id":"c","function":{"name":"f","arguments":"{}"}}"#;
    let choice = |fields: &str| {
        format!("{{\"choices\":[{{\"index\":0,{fields},\"finish_reason\":\"WORD\"}}]}}")
    };
    let bodies = [
        (choice(&format!("\"message\":{{}},\"delta\":{{\"tool_calls\":[{call}]}}")), true),
        (choice(&format!("\"message\":{{\"tool_calls\":{call}}}")), true),
        (choice("\"message\":{\"function_call\":{\"name\":\"f\",\"arguments\":{}}}"), true),
        (
            choice(&format!(
                "\"message\":{{\"tool_calls\":[{call}],\"function_call\":{{\"name\":\"g\",\"arguments\":\"{{}}\"}}}}"
            )),
            false,
        ),
        (choice("\"message\":{\"tool_calls\":\"[]\"}"), false),
        (format!("{{\"x\":\"WORD\",\"message\":{{\"tool_calls\":[{call}]}}}}"), false),
        (
            format!(
                "{{\"x\":\"WORD\",\"error\":{{\"message\":\"x\"}},\"message\":{{\"tool_calls\":[{call}]}}}}"
            ),
            false,
        ),
    ];
    let terms = ResponseRules {
        mode: Mode::Guard,
        tool_calls: ToolCalls::Gate,
        proves: true,
        background: false,
    };
    for (body, may_pass) in bodies {
        for (word, is_complete) in [("tool_calls", true), ("length", false)] {
            let body = body.replace("WORD", word);
            let head = Head { status: 200, content_type: "application/json" };
            let watcher = Watcher::new(&provider::OPENAI, head, RequestInfo::default());
            let ending = watcher.finish_with(body.as_bytes(), TransportEnd::Eof);
            let passes = disposition(&ending, terms, Some(200)) == Disposition::Pass;
            assert_eq!(passes, may_pass && is_complete, "{body}: {ending:?}");
        }
    }
}

/// One message of an AWS event stream.
fn message(name: &str, payload: &str) -> Vec<u8> {
    let headers = [(":message-type", "event"), (":event-type", name)];
    endstop::frame::aws::encode(&headers, payload.as_bytes())
}

/// Pushes a frame and reports whether anything left.
fn leaves(guard: &mut Guard, frame: &[u8]) -> bool {
    let mut count = 0;
    guard.push(&Bytes::copy_from_slice(frame), &mut |bytes| count += bytes.len());
    count > 0
}

const AWS: &str = "application/vnd.amazon.eventstream";

/// boto3 decodes more than the other clients do.
#[test]
fn a_call_in_unusual_base64_never_leaves() {
    use base64::Engine as _;
    let base64 = |json: &str| base64::engine::general_purpose::STANDARD.encode(json);
    let chunk = |written: &str| message("chunk", &format!("{{\"bytes\":\"{written}\"}}"));
    let call = base64(
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":1}}}"#,
    );
    let (start, rest) = call.split_at(4);
    for frame in [
        chunk(&format!("\\u0065{}", call.get(1..).unwrap())),
        chunk(&format!("{start}!{rest}")),
        chunk(&format!("{start} {rest}")),
        chunk(&format!("{start}-{rest}")),
        chunk(&format!("AAAA\",\"bytes\":\"{call}")),
        chunk(&format!("{call}\",\"bytes\":\"AAAA")),
    ] {
        let mut gate = on(&provider::BEDROCK, "anthropic-messages", AWS);
        let lead = r#"{"type":"message_start","message":{"type":"message","content":[]}}"#;
        assert!(leaves(&mut gate, &chunk(&base64(lead))));
        assert!(!leaves(&mut gate, &frame), "{}", String::from_utf8_lossy(&frame));
        assert!(gate.finish(TransportEnd::Eof).rest.is_empty());
    }
    // Text leaves, however its slashes are written.
    let text = base64(
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"??????>>>"}}"#,
    );
    let mut gate = on(&provider::BEDROCK, "anthropic-messages", AWS);
    assert!(leaves(&mut gate, &chunk(&text.replace('/', "\\/"))));
}

/// Clients end the open block, whatever number the end has.
#[test]
fn the_end_of_another_block_waits_while_a_call_is_open() {
    let event = |json: &str| format!("data: {json}\n\n");
    for index in ["7", "-1", "\"1\"", "null", "1.5"] {
        let mut gate = messages();
        for json in [
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":\"b"}}"#,
        ] {
            assert_eq!(push(&mut gate, &event(json)), left(&event(json)));
        }
        let stop = event(&format!("{{\"type\":\"content_block_stop\",\"index\":{index}}}"));
        assert_eq!(push(&mut gate, &stop), held(Next::Go), "{index}");
        assert!(gate.finish(TransportEnd::Eof).rest.is_empty());
    }
    let mut gate = on(&provider::COHERE, "cohere-v2", SSE);
    let start = event(
        r#"{"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"c","type":"function","function":{"name":"f","arguments":""}}}}}"#,
    );
    assert_eq!(push(&mut gate, &start), left(&start));
    let stop = event(r#"{"type":"tool-call-end","index":3}"#);
    assert_eq!(push(&mut gate, &stop), held(Next::Go));
    let mut gate = on(&provider::BEDROCK, "bedrock-converse", AWS);
    let start = r#"{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"t","name":"f"}}}"#;
    assert!(leaves(&mut gate, &message("contentBlockStart", start)));
    let delta = r#"{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{\"a\":"}}}"#;
    assert!(leaves(&mut gate, &message("contentBlockDelta", delta)));
    let stop = message("contentBlockStop", r#"{"contentBlockIndex":3}"#);
    assert!(!leaves(&mut gate, &stop));
}

/// Responses events that say two things, and items that only the caller runs.
#[test]
fn a_function_call_waits_for_the_end_whatever_surrounds_it() {
    let item = |fields: &str| {
        format!(
            "{{\"type\":\"function_call\",\"id\":\"i\",\"call_id\":\"c\",\"name\":\"ZZ\",\"arguments\":\"{{}}\",\"status\":\"completed\"{fields}}}"
        )
    };
    let done = |index: u32, item: &str| {
        format!(
            "data: {{\"type\":\"response.output_item.done\",\"output_index\":{index},\"item\":{item}}}\n\n"
        )
    };
    let output = done(1, r#"{"type":"function_call_output","call_id":"c","output":"x"}"#);
    let mut streams: Vec<Vec<String>> = vec![
        vec![done(0, &item(",\"execution\":\"server\""))],
        vec![done(0, &item("")), output.clone()],
        vec![done(0, &item("")), output.replace("function_call_output", "shell_call_output")],
        // The number of one of the provider's own items.
        vec![
            "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":0,\"delta\":\"x\"}\n\n".to_owned(),
            done(0, r#"{"type":"web_search_call","id":"w","status":"completed"}"#),
            done(0, &item("")),
        ],
        // The number of a text.
        vec![
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":5,\"delta\":\"hi\"}\n\n".to_owned(),
            "data: {\"type\":\"response.function_call_arguments.done\",\"output_index\":5,\"name\":\"f\",\"arguments\":\"{\\\"ZZ\\\":1}\"}\n\n".to_owned(),
        ],
        vec![
            "data: {\"type\":\"response.output_text.delta\",\"output_index\":5,\"delta\":\"hi\"}\n\n".to_owned(),
            "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"function_call\",\"id\":\"i\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"\",\"status\":\"in_progress\"}}\n\n".to_owned(),
            "data: {\"type\":\"response.function_call_arguments.done\",\"output_index\":5,\"item_id\":\"i\",\"arguments\":\"{\\\"ZZ\\\":1}\"}\n\n".to_owned(),
        ],
    ];
    for name in ["incomplete", "failed", "cancelled", "completed", "done"] {
        streams.push(vec![format!("event: response.{name}\n{}", done(0, &item("")))]);
    }
    for frames in streams {
        let pieces: Vec<&[u8]> = frames.iter().map(String::as_bytes).collect();
        let (out, failure, _) = run(on(&provider::OPENAI, "openai-responses", SSE), &pieces);
        assert!(failure.is_some() && !out.contains("ZZ"), "{frames:?}: {out}");
    }
    // Half of the arguments are not complete because a result follows.
    let half = item("").replace("\"{}\"", "\"{\\\"a\\\":\"");
    let last = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n";
    for (item, passes) in [(half, false), (item(""), true)] {
        let stream = format!("{}{output}{last}", done(0, &item));
        let (out, failure, _) =
            run(on(&provider::OPENAI, "openai-responses", SSE), &[stream.as_bytes()]);
        assert_eq!((out == stream, failure.is_none()), (passes, passes), "{stream}");
    }
}

/// Code makes the call, but the client runs it.
#[test]
fn a_call_of_code_waits_for_the_end() {
    let mut gate = messages();
    let frames = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{"a":1},"caller":{"type":"x","tool_id":"s"}}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"code_execution_tool_result","tool_use_id":"s","content":{}}}"#,
        r#"{"type":"content_block_stop","index":1}"#,
    ];
    for json in frames {
        assert_eq!(push(&mut gate, &format!("data: {json}\n\n")), held(Next::Go), "{json}");
    }
    assert!(gate.finish(TransportEnd::Eof).rest.is_empty());
    let calls: String = frames.iter().map(|json| format!("data: {json}\n\n")).collect();
    for (said, passes) in [("end_turn", true), ("max_tokens", false)] {
        let stream = format!(
            "{calls}data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{said}\"}}}}\n\ndata: {{\"type\":\"message_stop\"}}\n\n"
        );
        let (out, failure, _) = run(messages(), &[stream.as_bytes()]);
        assert_eq!((out == stream, failure.is_none()), (passes, passes), "{stream}");
    }
}

/// Clients read the function or the custom tool, and tell odd numbers apart or not.
#[test]
fn a_call_that_clients_read_differently_never_leaves() {
    let delta = |calls: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{calls}]}}}}]}}\n\n"
        )
    };
    let call = |index: &str, arguments: &str| {
        delta(&format!(
            "{{\"index\":{index},\"id\":\"c\",\"type\":\"function\",\"function\":{{\"name\":\"f\",\"arguments\":\"{arguments}\"}}}}"
        ))
    };
    let both = |arguments: &str| {
        delta(&format!(
            "{{\"index\":0,\"id\":\"c\",\"function\":{{\"name\":\"ZZ\",\"arguments\":\"{arguments}\"}},\"custom\":{{\"name\":\"ZZ\",\"input\":\"y\"}}}}"
        ))
    };
    let (open, whole) = ("{\\\"q\\\":\\\"", "{\\\"ZZ\\\":1}");
    let mut streams = vec![
        vec![both(whole)],
        vec![both(open)],
        vec![call("0", open), delta(r#"{"index":0,"custom":{"name":"f","input":"ZZ"}}"#)],
    ];
    for (first, second) in [("1", "1.5"), ("0", "-2"), ("5000000000", "6000000000"), ("0", "0.5")] {
        streams.push(vec![call(first, open), call(second, whole)]);
    }
    for frames in streams {
        for end in [String::new(), format!("{}{DONE}", word("tool_calls"))] {
            let stream = format!("{TEXT}{}{end}", frames.concat());
            let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
            assert!(failure.is_some() && !out.contains("ZZ"), "{stream}: {out}");
        }
    }
    // Some hosts number a single call -1. It is another call than the first one.
    let (single, first) = (call("-1", whole), call("0", open));
    let stream = format!("{TEXT}{single}{}{DONE}", word("tool_calls"));
    let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
    assert_eq!((out, failure), (stream, None));
    for end in [String::new(), format!("{}{DONE}", word("tool_calls"))] {
        let stream = format!("{TEXT}{first}{single}{end}");
        let (out, failure, _) = run(plain(ToolCalls::Gate), &[stream.as_bytes()]);
        assert!(failure.is_some() && !out.contains("ZZ"), "{stream}: {out}");
    }
}

#[test]
fn a_gemini_call_with_arguments_waits_whatever_it_announces() {
    for more in [
        r#""willContinue":true"#,
        r#""partialArgs":[{"jsonPath":"$.b","stringValue":"x","willContinue":true}]"#,
    ] {
        let call = format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"functionCall\":{{\"name\":\"f\",\"args\":{{\"a\":1}},{more}}}}}]}}}}]}}\n\n"
        );
        let mut gate = on(&provider::GOOGLE, "gemini-generate", SSE);
        assert_eq!(push(&mut gate, &call), held(Next::Go), "{call}");
        assert!(gate.finish(TransportEnd::Eof).rest.is_empty());
    }
}

#[test]
fn a_call_beside_text_in_one_block_of_a_body_is_a_call() {
    let wire = provider::BEDROCK.wire_of("bedrock-converse").unwrap();
    let terms = ResponseRules {
        mode: Mode::Guard,
        tool_calls: ToolCalls::Gate,
        proves: true,
        background: false,
    };
    for (said, passes) in [("tool_use", true), ("max_tokens", false)] {
        let body = format!(
            "{{\"output\":{{\"message\":{{\"role\":\"assistant\",\"content\":[{{\"text\":\"\",\"toolUse\":{{\"toolUseId\":\"t\",\"name\":\"f\",\"input\":{{\"a\":1}}}}}}]}}}},\"stopReason\":\"{said}\"}}"
        );
        let head = Head { status: 200, content_type: "application/json" };
        let watcher = Watcher::new(wire, head, RequestInfo::default());
        let ending = watcher.finish_with(body.as_bytes(), TransportEnd::Eof);
        let passed = disposition(&ending, terms, Some(200)) == Disposition::Pass;
        assert_eq!(passed, passes, "{body}: {ending:?}");
    }
}
