//! The allow rule: tool calls run only if the response ended well, and every complete call may run
//! then.

use endstop::dialect::{self, Dialect};
use endstop::provider::{self, Profile};
use endstop::tool_call::{
    self, Allow, Assembly, Call, CallState, Refusal, ToolCall, Unproven, allow, allow_by_ending,
    in_text,
};
use endstop::{
    Closed, Confidence, Ending, Event, Head, Reader, Reason, RequestInfo, Timer, TransportEnd,
    Watcher,
};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, Arguments, Content, Sent, builder, one_call};
use crate::call::Compare;
use crate::case;
use crate::oracle;
use crate::sample::{Dice, everything};

fn read(mut reader: Reader, chunks: &[&[u8]], close: TransportEnd) -> (Ending, Vec<ToolCall>) {
    let mut assembly = Assembly::default();
    for chunk in chunks {
        reader.read(chunk, |event| assembly.observe(&event));
    }
    let ending = reader.finish(close, |event| assembly.observe(&event));
    let calls = assembly.finish(&ending);
    let by_ending = allow_by_ending(&ending) == Allow::Run;
    assert_eq!(by_ending, allow(&ending, &calls) == Allow::Run, "{ending:?} {calls:?}");
    (ending, calls)
}

fn reader(profile: &Profile) -> Reader {
    Reader::new(profile, Head { status: 200, content_type: "" }, RequestInfo::default())
}

/// In every case of the corpus, a call runs if and only if the case ends as a tool call.
#[test]
fn of_every_case() {
    let mut allowed = 0;
    for case in case::all() {
        let bytes = case.bytes();
        let (ending, calls) = read(case.reader(case.wire()), &[&bytes], case.close());
        let runs = allow(&ending, &calls) == Allow::Run;
        let good = case.want.reason == "tool_call" && ending.confidence >= Confidence::Medium;
        let named = calls.iter().all(|call| !call.name.is_empty());
        assert_eq!(runs, good && named, "{}: {:?} {calls:?}", case.label(), allow(&ending, &calls));
        allowed += usize::from(runs);
        for call in &calls {
            assert!(
                runs || call.state != CallState::Complete || ending.reason == Reason::ToolCall,
                "{}",
                case.label()
            );
        }
    }
    assert!(allowed > 30, "{allowed}");
}

/// A call is whole by its type if and only if it may run, and is the call that was assembled.
#[test]
fn whole_calls_are_those_that_may_run() {
    let mut allowed = 0;
    for case in case::all() {
        let bytes = case.bytes();
        let (ending, calls) = read(case.reader(case.wire()), &[&bytes], case.close());
        match (tool_call::whole(&ending, &calls), allow(&ending, &calls)) {
            (Err(refusal), why) => assert_eq!(Allow::Refuse(refusal), why, "{}", case.label()),
            (Ok(whole), why) => {
                assert_eq!((why, whole.len()), (Allow::Run, calls.len()), "{}", case.label());
                allowed += whole.len();
                for (whole, call) in whole.iter().zip(&calls) {
                    assert_eq!((whole.id(), whole.name()), (&*call.id, &*call.name));
                    assert_eq!((whole.arguments(), whole.assembled()), (call.object(), call));
                    assert!(format!("{whole:?}").contains(&call.name));
                }
            }
        }
        for call in &calls {
            let unproven = Call::<Unproven>::from(call.clone());
            assert_eq!(unproven.arguments_so_far(), call.arguments);
        }
    }
    assert!(allowed > 30, "{allowed}");
}

/// For every finish reason of every wire, only a natural stop and the one for tool calls let a call
/// run.
#[test]
fn of_every_word() {
    for dialect in dialect::ALL {
        for words in dialect.words {
            let known = words.rows.iter().map(|(word, reason)| (json!(word), Some(*reason)));
            for (word, reason) in known.chain([(json!("frobnicated"), None), (json!(null), None)]) {
                let field = words.field;
                let answer = Answer { dialect, field, word, content: one_call(), piece: 3 };
                for (form, bytes) in answer.forms() {
                    let (ending, calls) =
                        read(reader(profile(dialect)), &[&bytes], TransportEnd::Eof);
                    let natural = matches!(reason, Some(Reason::Complete | Reason::ToolCall));
                    let vague = words.vague.contains(&answer.word.as_str().unwrap_or_default());
                    let wanted = natural && !vague;
                    let runs = allow(&ending, &calls) == Allow::Run;
                    assert_eq!(
                        runs, wanted,
                        "{} {form} {}: {}",
                        dialect.id, answer.word, ending.sentence
                    );
                }
            }
        }
    }
}

/// Number of trials of each wire and form.
const TRIALS: usize = 300;
/// Number of cuts of each stream or body.
const CUTS: usize = 12;

/// Random calls on every wire, streamed and plain, truncated anywhere: a truncated call never runs.
/// A complete one always does, and it equals the sent one.
#[test]
fn of_random_calls_cut_anywhere() {
    let mut wrong = Vec::new();
    let mut tried = 0;
    for dialect in dialect::ALL.iter().filter(|dialect| builder(dialect.id).carries_calls()) {
        let trials = if everything() { 20 * TRIALS } else { TRIALS };
        for trial in 0..trials {
            let mut dice = Dice::of(0x8ebc_6af0_9c88_c6e3, trial);
            let found = try_random_calls(dialect, &mut dice);
            tried += found.len();
            let first = found.into_iter().flatten().next();
            let mine = wrong.iter().filter(|(id, _)| *id == dialect.id).count();
            // A few failures per wire are enough.
            if let Some(what) = first.filter(|_| mine < 3) {
                wrong.push((dialect.id, format!("{} trial {trial}: {what}", dialect.id)));
            }
        }
    }
    println!("{tried} responses with random calls");
    let wrong: Vec<String> = wrong.into_iter().map(|(_, what)| what).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns what is wrong with each form of a random turn.
fn try_random_calls(dialect: &'static Dialect, dice: &mut Dice) -> Vec<Option<String>> {
    let good = good_words(dialect);
    let (field, word, runs) = match good.is_empty() {
        // A wire without a finish reason never lets a call run.
        true => ("", json!(null), false),
        false => {
            let (field, word) = dice.pick(&good);
            (*field, json!(word), true)
        }
    };
    let sent = random_calls(dice, builder(dialect.id).takes_free_text());
    let content = Content::Calls(sent.clone());
    let answer = Answer { dialect, field, word, content, piece: 1 + dice.roll(12) };
    answer
        .forms()
        .into_iter()
        .map(|(form, bytes)| {
            let what = try_form(dialect, dice, form, &bytes, &sent, runs)?;
            Some(format!("{form}: {what}\n    {}", String::from_utf8_lossy(&bytes)))
        })
        .collect()
}

fn try_form(
    dialect: &'static Dialect,
    dice: &mut Dice,
    form: &str,
    bytes: &[u8],
    sent: &[Sent],
    runs: bool,
) -> Option<String> {
    let (ending, calls) = read(reader(profile(dialect)), &dice.cut(bytes, 60), TransportEnd::Eof);
    let compare = Compare::of(dialect.id, bytes);
    let is = |(call, sent): (&ToolCall, &Sent)| is_as_sent(compare, call, sent);
    if calls.len() != sent.len() || !calls.iter().zip(sent).all(is) {
        return Some(format!("sent {sent:?}, got {calls:?}"));
    }
    if (allow(&ending, &calls) == Allow::Run) != runs {
        return Some(format!("{:?}: {}", allow(&ending, &calls), ending.sentence));
    }
    // The last byte of a plain body proves its end.
    let marks = (form == "streamed").then(|| oracle::marks(profile(dialect), bytes)).flatten();
    let proof = marks.map_or(bytes.len(), |marks| marks.earliest);
    for _ in 0..CUTS {
        let cut = dice.roll(bytes.len());
        let close = *dice.pick(&[TransportEnd::Eof, TransportEnd::Reset, TransportEnd::ClientGone]);
        let (ending, calls) = read(reader(profile(dialect)), &dice.cut(&bytes[..cut], 60), close);
        if allow(&ending, &calls) == Allow::Run && cut < proof {
            return Some(format!("runs when cut at {cut}: {}", ending.sentence));
        }
    }
    None
}

/// A call without parameters is the same in each of the hosts' spellings.
fn is_as_sent(compare: Compare, call: &ToolCall, sent: &Sent) -> bool {
    let same = match &sent.arguments {
        Arguments::Json(value) => compare.same(&call.arguments, &value.to_string()),
        Arguments::Text(text) => call.arguments == *text,
        Arguments::Absent | Arguments::Blank | Arguments::Null => {
            ["", "{}", "null"].contains(&call.arguments.trim())
        }
    };
    same && call.name == sent.name
}

/// Returns the finish reasons after which calls may run.
fn good_words(dialect: &'static Dialect) -> Vec<(&'static str, &'static str)> {
    let rows = dialect.words.iter().flat_map(|words| {
        let good = words.rows.iter().filter(|(word, reason)| {
            matches!(reason, Reason::Complete | Reason::ToolCall) && !words.vague.contains(word)
        });
        good.map(|(word, _)| (words.field, *word))
    });
    rows.collect()
}

fn profile(dialect: &Dialect) -> &'static Profile {
    provider::ALL.iter().find_map(|known| known.wire_of(dialect.id)).unwrap()
}

fn random_calls(dice: &mut Dice, free_text: bool) -> Vec<Sent> {
    (0..1 + dice.roll(4))
        .map(|_| {
            let arguments = match dice.roll(10) {
                0 => Arguments::Absent,
                1 => Arguments::Blank,
                2 => Arguments::Null,
                3 => Arguments::Json(json!({})),
                4 if free_text => Arguments::Text(random_text(dice)),
                _ => Arguments::Json(random_object(dice, 4)),
            };
            Sent { name: (*dice.pick(NAMES)).to_owned(), arguments }
        })
        .collect()
}

/// Names of tools and keys, some of them finish reasons or fields of the wires.
const NAMES: &[&str] = &[
    "f",
    "get_weather",
    "fs-read.v2",
    "stop",
    "finish_reason",
    "stop_reason",
    "error",
    "type",
    "status",
    "done",
    "usage",
    "tool_calls",
    "arguments",
    "größe",
    "名前",
    "🔧",
];

/// Pieces of text, among them the characters that frames and JSON consist of.
const TEXTS: &[&str] = &[
    "a",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\"",
    "\\",
    "/",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "data: ",
    "[DONE]",
    "\u{0}",
    "\u{1f}",
    "é",
    "漢字",
    "😀",
    "\u{2028}",
    "\u{feff}",
    "</tool_call>",
    "null",
    "\\ud83d",
    "\"finish_reason\":\"length\"",
    "message_stop",
];

fn random_text(dice: &mut Dice) -> String {
    (0..1 + dice.roll(8)).map(|_| *dice.pick(TEXTS)).collect()
}

fn random_object(dice: &mut Dice, depth: usize) -> Value {
    let keys = (0..dice.roll(4)).map(|_| {
        let key =
            if dice.roll(4) == 0 { random_text(dice) } else { (*dice.pick(NAMES)).to_owned() };
        (key, random_value(dice, depth))
    });
    Value::Object(keys.collect::<Map<_, _>>())
}

fn random_value(dice: &mut Dice, depth: usize) -> Value {
    match dice.roll(if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => json!(dice.roll(2) == 0),
        2 => json!(i64::try_from(dice.roll(2000)).unwrap() - 1000),
        3 => json!(f64::from(u32::try_from(dice.roll(1000)).unwrap()) / 8.0),
        4 => json!(random_text(dice)),
        5 => (0..dice.roll(4)).map(|_| random_value(dice, depth - 1)).collect(),
        _ => random_object(dice, depth - 1),
    }
}

/// One unfinished call holds back all calls of the response.
#[test]
fn the_decision_is_per_response() {
    let body = |second: &str| {
        json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "function": {"name": "g", "arguments": second}},
        ]}}]})
        .to_string()
    };
    let decide = |second: &str| {
        let (ending, calls) =
            read(reader(&provider::OPENAI.main), &[body(second).as_bytes()], TransportEnd::Eof);
        (calls.len(), allow(&ending, &calls))
    };
    // Blank and null arguments mean a call without parameters.
    for good in ["{\"x\":1}", "", " ", "null"] {
        assert_eq!(decide(good), (2, Allow::Run), "{good}");
    }
    for bad in ["{\"x\":", "{x}", "[1]", "12", "\"text\"", "nul"] {
        let (calls, decision) = decide(bad);
        assert_eq!(calls, 2);
        assert!(matches!(decision, Allow::Refuse(Refusal::Ending(_))), "{bad}: {decision:?}");
    }
}

/// Invalid JSON is kept unchanged: nothing replaces it.
#[test]
fn arguments_are_never_replaced() {
    let body =
        json!({"choices": [{"index": 0, "finish_reason": "length", "message": {"tool_calls": [
        {"id": "a", "function": {"name": "f", "arguments": "{\"path\":\"/et"}}]}}]})
        .to_string();
    let (_, calls) = read(reader(&provider::OPENAI.main), &[body.as_bytes()], TransportEnd::Eof);
    assert_eq!((calls[0].arguments.as_str(), calls[0].state), ("{\"path\":\"/et", CallState::Open));
}

#[test]
fn states_of_calls() {
    let stream = |parts: &[&str]| {
        let events: String = parts.iter().map(|part| format!("data: {part}\n\n")).collect();
        read(reader(&provider::ANTHROPIC.main), &[events.as_bytes()], TransportEnd::Eof).1
    };
    let start = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#;
    let whole = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#;
    let half = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}"#;
    let broken = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{a"}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    assert_eq!(stream(&[start])[0].state, CallState::Open);
    assert_eq!(stream(&[start, half])[0].state, CallState::Open);
    assert_eq!(stream(&[start, whole])[0].state, CallState::Parsable);
    assert_eq!(stream(&[start, whole, stop])[0].state, CallState::Closed);
    assert_eq!(stream(&[start, broken, stop])[0].state, CallState::Malformed);
    let list = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"[1]"}}"#;
    let half_list = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"[1"}}"#;
    assert_eq!(stream(&[start, list, stop])[0].state, CallState::Malformed);
    assert_eq!(stream(&[start, half_list])[0].state, CallState::Malformed);
    let nameless = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"","input":{}}}"#;
    assert_eq!(stream(&[nameless, whole, stop])[0].state, CallState::Orphaned);
    let orphan = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}]}"#;
    let events = format!("data: {orphan}\n\n");
    let (_, calls) = read(reader(&provider::OPENAI.main), &[events.as_bytes()], TransportEnd::Eof);
    assert_eq!(calls[0].state, CallState::Orphaned);
}

#[test]
fn calls_written_in_text_run_only_when_whole() {
    let ending = |word: &str, text: &str| {
        let body =
            json!({"choices": [{"index": 0, "message": {"content": text}, "finish_reason": word}]})
                .to_string();
        read(reader(&provider::OPENAI.main), &[body.as_bytes()], TransportEnd::Eof).0
    };
    let decide = |word: &str, text: &str| {
        let ending = ending(word, text);
        let calls = in_text(text, &ending);
        (calls.len(), allow(&ending, &calls))
    };
    let whole = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let fenced = "Sure:\n```json\n{\"name\": \"f\", \"parameters\": {}}\n```\n";
    let function = "<function=f>{\"a\": 1}</function>";
    for text in [whole, fenced, function] {
        assert_eq!(decide("stop", text), (1, Allow::Run), "{text}");
        assert!(matches!(decide("length", text), (1, Allow::Refuse(_))), "{text}");
    }
    for text in [
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
        "<tool_call>\n{\"name\": \"f\", \"argu",
        "<function=f>{\"a\": 1}",
        "<function=f>{\"a\": </function>",
        "```json\n{\"name\": \"f\", \"arguments\": {",
        "<tool_call>nonsense</tool_call>",
    ] {
        assert!(
            matches!(decide("stop", text), (1, Allow::Refuse(Refusal::Call(_)))),
            "{text}: {:?}",
            decide("stop", text)
        );
    }
    assert_eq!(
        decide("stop", "```json\n{\"city\": \"Paris\"}\n```"),
        (0, Allow::Refuse(Refusal::NoCalls))
    );
    let state = |text: &str| in_text(text, &ending("stop", text))[0].state;
    assert_eq!(state("<tool_call>nonsense</tool_call>"), CallState::Malformed);
    assert_eq!(state("<tool_call>{\"name\": \"f\", \"argu"), CallState::Open);
    assert_eq!(state("```json\n{\"name\": \"f\", \"arguments\": {"), CallState::Open);
}

#[test]
fn calls_are_never_complete_before_the_end() {
    let body = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\n";
    let mut assembly = Assembly::default();
    let mut reader = reader(&provider::OPENAI.main);
    reader.read(body, |event| assembly.observe(&event));
    assert_eq!(assembly.so_far()[0].state, CallState::Parsable);
    reader.read(
        b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
        |event| assembly.observe(&event),
    );
    assert_eq!(assembly.so_far()[0].state, CallState::Closed);
}

#[test]
fn calls_that_take_text_need_their_close_too() {
    let item = |kind: &str, status: &str| {
        format!(
            "data: {{\"type\":\"response.output_item.{kind}\",\"output_index\":0,\"item\":{{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"shell\",\"input\":\"ls\",\"status\":\"{status}\"}}}}\n\n"
        )
    };
    let profile = provider::OPENAI.wire_of("openai-responses").unwrap();
    let state =
        |stream: String| read(reader(profile), &[stream.as_bytes()], TransportEnd::Eof).1[0].state;
    assert_eq!(state(item("added", "in_progress")), CallState::Open);
    assert_eq!(state(item("added", "in_progress") + &item("done", "completed")), CallState::Closed);
    let end = "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n";
    let whole = item("added", "in_progress") + &item("done", "completed") + end;
    let (ending, calls) = read(reader(profile), &[whole.as_bytes()], TransportEnd::Eof);
    assert_eq!((calls[0].arguments.as_str(), allow(&ending, &calls)), ("ls", Allow::Run));
}

#[test]
fn what_cannot_all_be_followed_does_not_run() {
    let body =
        json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": [
        {"id": "a", "function": {"name": "f", "arguments": "{}"}}]}}]})
        .to_string();
    let (mut ending, calls) =
        read(reader(&provider::OPENAI.main), &[body.as_bytes()], TransportEnd::Eof);
    assert_eq!(allow(&ending, &calls), Allow::Run);
    ending.shown.excess = 1;
    assert_eq!(allow(&ending, &calls), Allow::Refuse(Refusal::TooMany));
    ending.shown.excess = 0;
    ending.confidence = Confidence::Low;
    assert_eq!(allow(&ending, &calls), Allow::Refuse(Refusal::Unsure));
    ending.over = false;
    assert_eq!(allow(&ending, &calls), Allow::Refuse(Refusal::Ending(Reason::ToolCall)));
}

#[test]
fn a_call_without_parameters_has_an_empty_object() {
    let call = |arguments: &str| {
        let mut assembly = Assembly::default();
        assembly.observe(&Event::ToolCallStart { choice: 0, call: 0, id: "", name: "f" });
        assembly.observe(&Event::ToolCallDelta { choice: 0, call: 0, arguments });
        assembly.so_far()[0].object().to_owned()
    };
    for bare in ["", " ", "null", "{}"] {
        assert_eq!(call(bare), "{}");
    }
    assert_eq!(call("{\"a\":1}"), "{\"a\":1}");
}

/// Arguments are kept up to a limit, whatever the chunks. Above it, no call runs.
#[test]
fn arguments_are_bounded() {
    let ending = {
        let body = json!({"choices": [{"message": {"tool_calls": [{"id": "c", "function":
            {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]});
        read(reader(&provider::OPENAI.main), &[body.to_string().as_bytes()], TransportEnd::Eof).0
    };
    let runs = |megabytes: usize| {
        let mut assembly = Assembly::default();
        let mut push = |arguments: &str| {
            assembly.observe(&Event::ToolCallDelta { choice: 0, call: 0, arguments });
        };
        push("{\"a\":\"");
        (0..megabytes).for_each(|_| push(&"x".repeat(1 << 20)));
        push("\"}");
        assembly.observe(&Event::ToolCallStart { choice: 0, call: 0, id: "c", name: "f" });
        assembly.observe(&Event::ToolCallEnd { choice: 0, call: 0 });
        allow(&ending, &assembly.finish(&ending)) == Allow::Run
    };
    assert!(runs(2) && runs(15));
    assert!(!runs(16) && !runs(17));
}

fn start(assembly: &mut Assembly, choice: u32, id: &str, name: &str) {
    assembly.observe(&Event::ToolCallStart { choice, call: 0, id, name });
}

fn push(assembly: &mut Assembly, choice: u32, arguments: &str) {
    assembly.observe(&Event::ToolCallDelta { choice, call: 0, arguments });
}

fn end(assembly: &mut Assembly, choice: u32) {
    assembly.observe(&Event::ToolCallEnd { choice, call: 0 });
}

fn states(assembly: &Assembly) -> Vec<CallState> {
    assembly.so_far().iter().map(|call| call.state).collect()
}

/// The end of a call closes only that call. A call of another choice with the same number stays
/// open.
#[test]
fn an_end_is_that_of_one_choice() {
    let mut assembly = Assembly::default();
    for choice in [0, 1] {
        start(&mut assembly, choice, "", "f");
        push(&mut assembly, choice, "{}");
    }
    end(&mut assembly, 0);
    assert_eq!(states(&assembly), [CallState::Closed, CallState::Parsable]);
}

/// A repeated head belongs to the same call unless it contradicts it. Two names for one call make
/// it invalid.
#[test]
fn a_second_head_is_a_new_call_or_a_contradiction() {
    let heads = |first: (&str, &str), arguments: &str, second: (&str, &str)| {
        let mut assembly = Assembly::default();
        start(&mut assembly, 0, first.0, first.1);
        push(&mut assembly, 0, arguments);
        start(&mut assembly, 0, second.0, second.1);
        states(&assembly)
    };
    assert_eq!(heads(("", "f"), "{}", ("", "f")), [CallState::Parsable]);
    assert_eq!(heads(("", "f"), "{}", ("", "g")), [CallState::Parsable, CallState::Open]);
    assert_eq!(heads(("", "f"), "{", ("", "g")), [CallState::Malformed]);
    assert_eq!(heads(("1", "f"), "{}", ("1", "g")), [CallState::Malformed]);
    assert_eq!(heads(("1", "f"), "{}", ("2", "f")), [CallState::Parsable, CallState::Open]);
    assert_eq!(heads(("1", ""), "{}", ("1", "f")), [CallState::Parsable]);
}

#[test]
fn a_bare_call_is_complete_when_its_response_ended_well() {
    let mut assembly = Assembly::default();
    start(&mut assembly, 0, "1", "f");
    end(&mut assembly, 0);
    assert_eq!(states(&assembly), [CallState::Closed]);
    let calls = assembly.finish(&tool_call_ending());
    assert_eq!(calls[0].state, CallState::Complete);
}

fn tool_call_ending() -> Ending {
    tool_call().0
}

fn tool_call() -> (Ending, ToolCall) {
    let body = br#"{"choices":[{"message":{"tool_calls":[{"id":"1","type":"function","function":
        {"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let (ending, mut calls) = read(reader(&provider::OPENAI.main), &[body], TransportEnd::Eof);
    assert_eq!(allow(&ending, &calls), Allow::Run);
    (ending, calls.remove(0))
}

/// Each condition of the rule alone keeps both forms from running a call.
#[test]
fn the_rule_asks_about_each_thing() {
    let good = tool_call_ending();
    assert_eq!(allow_by_ending(&good), Allow::Run);
    let call = |state| {
        let mut call = tool_call().1;
        call.state = state;
        call
    };
    let both = |change: fn(&mut Ending), want: Refusal| {
        let mut ending = good.clone();
        change(&mut ending);
        assert_eq!(allow(&ending, &[call(CallState::Complete)]), Allow::Refuse(want));
        assert_eq!(allow_by_ending(&ending), Allow::Refuse(want));
        assert!(!want.sentence().is_empty());
    };
    both(|ending| ending.shown.excess = 1, Refusal::TooMany);
    both(|ending| ending.over = false, Refusal::Ending(Reason::ToolCall));
    both(|ending| ending.reason = Reason::Cut, Refusal::Ending(Reason::Cut));
    both(|ending| ending.confidence = Confidence::Low, Refusal::Unsure);
    both(|ending| ending.closed = Closed::Reset, Refusal::Unsure);
    both(|ending| ending.closed = Closed::ClientGone, Refusal::Unsure);
    for state in [CallState::Open, CallState::Parsable, CallState::Closed, CallState::Malformed] {
        assert_eq!(allow(&good, &[call(state)]), Allow::Refuse(Refusal::Call(state)));
    }
    let sentences: Vec<String> =
        [Refusal::NoCalls, Refusal::Unsure, Refusal::TooMany, Refusal::Schema]
            .map(Refusal::sentence)
            .into();
    assert!(sentences.iter().all(|sentence| sentence.contains(' ')), "{sentences:?}");
}

/// Calls that a client could run if it does not wait for the end.
#[test]
fn what_has_passed_is_exposed_when_it_could_run() {
    let exposed = |events: &[&str]| {
        let head = Head { status: 200, content_type: "text/event-stream" };
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        tool_call::exposed(provider::OPENAI.main, head, body.as_bytes()).len()
    };
    let delta = |arguments: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"1","function":{{"name":"f","arguments":{arguments}}}}}]}}}}]}}"#
        )
    };
    assert_eq!(exposed(&[&delta(r#""{\"a\"""#)]), 0);
    assert_eq!(exposed(&[&delta(r#""{\"a\"""#), &delta(r#"":1}""#)]), 1);
}

fn stream(profile: &Profile, events: &[&str], close: TransportEnd) -> (Ending, Allow) {
    let head = Head { status: 200, content_type: "text/event-stream" };
    let reader = Reader::new(profile, head, RequestInfo::default());
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    // An event that ends with an ellipsis is cut off there.
    let body = body.split('…').next().unwrap().to_owned();
    let (ending, calls) = read(reader, &[body.as_bytes()], close);
    let allowed = allow(&ending, &calls);
    (ending, allowed)
}

/// Where the finish reason and the end of the body are the proof, a call needs both, and nothing after.
#[test]
fn a_finish_reason_alone_runs_no_call() {
    let gemini = &provider::GOOGLE.main;
    let call =
        r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}}}]}}]}"#;
    let stop = r#"{"candidates":[{"finishReason":"STOP"}]}"#;
    let text = r#"{"candidates":[{"content":{"parts":[{"text":"and"}]}}]}"#;
    let ended = |events: &[&str], close| stream(gemini, events, close).1;
    assert_eq!(ended(&[call, stop], TransportEnd::Eof), Allow::Run);
    for (events, close) in [
        (vec![call, stop], TransportEnd::Reset),
        (vec![call, stop, "{\"cand…"], TransportEnd::Eof),
        (vec![call, stop, text], TransportEnd::Eof),
        (vec![call], TransportEnd::Eof),
    ] {
        assert!(matches!(ended(&events, close), Allow::Refuse(_)), "{events:?}");
    }
}

/// The last event of Responses can take back that a call is whole.
#[test]
fn a_call_that_is_called_incomplete_at_the_end_does_not_run() {
    let responses = provider::OPENAI.wire_of("openai-responses").unwrap();
    let item = |status: &str| {
        format!(
            r#"{{"type":"function_call","id":"i","call_id":"c","name":"f","arguments":"{{}}","status":"{status}"}}"#
        )
    };
    let done = format!(
        r#"{{"type":"response.output_item.done","output_index":0,"item":{}}}"#,
        item("completed")
    );
    let completed = |status: &str| {
        format!(
            r#"{{"type":"response.completed","response":{{"status":"completed","output":[{}]}}}}"#,
            item(status)
        )
    };
    let ended = |last: &str| stream(responses, &[&done, last], TransportEnd::Eof).1;
    assert_eq!(ended(&completed("completed")), Allow::Run);
    assert!(matches!(ended(&completed("incomplete")), Allow::Refuse(_)));
}

/// xAI runs custom tools itself: an answer that follows such calls shows that they were its own.
#[test]
fn custom_calls_before_an_answer_were_the_providers() {
    let xai = provider::XAI.wire_of("openai-responses").unwrap();
    let custom = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"custom_tool_call","id":"i","call_id":"c","name":"x_search","input":"q","status":"completed"}}"#;
    let text = r#"{"type":"response.output_text.delta","output_index":1,"delta":"Found."}"#;
    let message = r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Found."}]}}"#;
    let end = r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#;
    let (ending, allowed) = stream(xai, &[custom, text, message, end], TransportEnd::Eof);
    assert_eq!((ending.reason, allowed), (Reason::Complete, Allow::Refuse(Refusal::NoCalls)));
    let (ending, allowed) = stream(xai, &[custom, end], TransportEnd::Eof);
    assert_eq!((ending.reason, allowed), (Reason::ToolCall, Allow::Run));
}

/// Two names for one id are a contradiction, even where the arguments are whole.
#[test]
fn a_call_with_two_names_does_not_run() {
    let head = |name: &str, arguments: &str| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"1","function":{{"name":"{name}","arguments":"{arguments}"}}}}]}}}}]}}"#
        )
    };
    let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
    let ended = |second: &str| {
        let events = [&*head("f", "{}"), &*head(second, ""), end, "[DONE]"];
        stream(&provider::OPENAI.main, &events, TransportEnd::Eof).1
    };
    assert_eq!(ended("f"), Allow::Run);
    assert!(matches!(ended("g"), Allow::Refuse(_)));
}

/// A frame's mark says whether a call has begun.
#[test]
fn marks_tell_of_calls() {
    let head = Head { status: 200, content_type: "text/event-stream" };
    let mut watcher = Watcher::new(&provider::OPENAI, head, RequestInfo::default());
    let mut seen = Vec::new();
    let text = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    let call = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\n";
    for event in [text, call] {
        watcher.follow(event.as_bytes(), |mark| seen.push(mark.has_calls()));
    }
    assert_eq!(seen, [false, true]);
}

/// Without an end marker, a clean end of the body lets a call run, and nothing else does.
#[test]
fn a_call_runs_only_after_a_clean_close() {
    let call = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    let ended = |close| stream(&provider::OPENAI.main, &[call], close);
    let (ending, allowed) = ended(TransportEnd::Eof);
    assert_eq!((ending.confidence, allowed), (Confidence::Medium, Allow::Run));
    for (close, reason) in [
        (TransportEnd::Reset, Reason::Cut),
        (TransportEnd::Truncated, Reason::Cut),
        (TransportEnd::TimedOut(Timer::Idle), Reason::TimedOut),
        (TransportEnd::Interrupted, Reason::Cancelled),
        (TransportEnd::ShutDown, Reason::Cancelled),
        (TransportEnd::ClientGone, Reason::ToolCall),
        (TransportEnd::Dropped, Reason::ToolCall),
    ] {
        let (ending, allowed) = ended(close);
        assert_eq!(ending.reason, reason, "{close:?}");
        assert!(matches!(allowed, Allow::Refuse(_)), "{close:?}");
        assert!(matches!(allow_by_ending(&ending), Allow::Refuse(_)), "{close:?}");
        // With the end marker, a later close does not matter.
        let (ending, allowed) = stream(&provider::OPENAI.main, &[call, "[DONE]"], close);
        assert_eq!((ending.reason, allowed), (Reason::ToolCall, Allow::Run), "{close:?}");
    }
    let text = r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    let (ending, _) = stream(&provider::OPENAI.main, &[text], TransportEnd::Reset);
    assert_eq!((ending.reason, ending.confidence), (Reason::Complete, Confidence::Medium));
}

/// Returns for each event whether a client could run a call after it.
fn gate(profile: &Profile, request: &RequestInfo, events: &[&str]) -> Vec<bool> {
    let head = Head { status: 200, content_type: "text/event-stream" };
    let mut watcher = Watcher::new(profile, head, request.clone());
    let mut closed = Vec::new();
    for event in events {
        watcher.follow(format!("data: {event}\n\n").as_bytes(), |mark| {
            closed.push(mark.choices().any(|choice| choice.could_run(mark.is_proven())));
        });
    }
    closed
}

/// Another parser may read arguments that this one does not, so that the gate closes before them.
#[test]
fn arguments_that_only_others_read_close_the_gate() {
    let delta = |arguments: &str| {
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "1",
            "function": {"name": "f", "arguments": arguments}}]}}]})
        .to_string()
    };
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(600), "]".repeat(600));
    for (arguments, want) in
        [("{\"a\":NaN}", true), ("{'a':1}", true), (&*deep, true), ("{\"a\":", false), ("", false)]
    {
        let event = delta(arguments);
        let none = RequestInfo::default();
        assert_eq!(gate(&provider::OPENAI.main, &none, &[&event]), [want], "{arguments:.20}");
        let head = Head { status: 200, content_type: "text/event-stream" };
        let bytes = format!("data: {event}\n\n");
        let exposed = tool_call::exposed(provider::OPENAI.main, head, bytes.as_bytes()).len();
        assert_eq!(exposed, usize::from(want), "{arguments:.20}");
        let stop = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
        let events = [&*event, stop, "[DONE]"];
        let (ending, allowed) = stream(&provider::OPENAI.main, &events, TransportEnd::Eof);
        let runs = allowed == Allow::Run;
        assert_eq!(runs, arguments.is_empty(), "{arguments:.20}: {}", ending.sentence);
    }
}

/// An item that begins with its arguments could run at once. One whose main field is still empty
/// could not.
#[test]
fn items_that_begin_with_their_arguments_close_the_gate() {
    let responses = provider::OPENAI.wire_of("openai-responses").unwrap();
    let added = |kind: &str, field: &str, value: Value| {
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"type": kind, "id": "i", "call_id": "c", "status": "in_progress", field: value}})
        .to_string()
    };
    for (kind, field, value, want) in [
        (
            "local_shell_call",
            "action",
            json!({"type": "exec", "command": ["ls"], "env": {}, "working_directory": ""}),
            true,
        ),
        ("local_shell_call", "action", json!({"type": "exec", "command": [], "env": {}}), false),
        ("shell_call", "action", json!({"commands": [], "timeout_ms": null}), false),
        ("shell_call", "action", json!({"commands": ["ls"], "timeout_ms": null}), true),
        ("computer_call", "action", json!({"type": "click", "x": 1, "y": 2, "keys": []}), true),
        (
            "apply_patch_call",
            "operation",
            json!({"type": "delete_file", "path": "a", "diff": ""}),
            true,
        ),
        (
            "apply_patch_call",
            "operation",
            json!({"type": "update_file", "path": "a", "diff": ""}),
            false,
        ),
        (
            "apply_patch_call",
            "operation",
            json!({"type": "create_file", "path": "a", "diff": "+x"}),
            true,
        ),
        ("function_call", "arguments", json!(""), false),
        ("function_call", "arguments", json!("{\"a\":\"\"}"), true),
    ] {
        let event = added(kind, field, value);
        assert_eq!(gate(responses, &RequestInfo::default(), &[&event]), [want], "{event}");
    }
}

/// Calls that the provider runs never close the gate.
#[test]
fn calls_of_the_provider_leave_the_gate_open() {
    let start = |kind: &str| {
        json!({"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse":
            {"name": "nova_grounding", "toolUseId": "t", "type": kind}}}})
        .to_string()
    };
    let input =
        r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{}"}}}}"#;
    let stop = r#"{"contentBlockStop":{"contentBlockIndex":0}}"#;
    for (kind, want) in [("server_tool_use", false), ("tool_use", true), ("", true)] {
        let start = start(kind);
        let events = [&*start, input, stop];
        let gate = gate(&provider::BEDROCK.main, &RequestInfo::default(), &events);
        assert_eq!(gate, [false, want, want], "{kind}");
    }
    let xai = provider::XAI.wire_of("openai-responses").unwrap();
    let request = RequestInfo { tools: Some(vec!["f".to_owned()]), ..RequestInfo::default() };
    let item = |event: &str, name: &str| {
        json!({"type": format!("response.output_item.{event}"), "output_index": 0, "item":
            {"type": "custom_tool_call", "call_id": "c", "name": name, "input": "q"}})
        .to_string()
    };
    let delta = r#"{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"q"}"#;
    for (name, want) in [("x_keyword_search", false), ("f", true)] {
        let (added, done) = (item("added", name), item("done", name));
        let gate = gate(xai, &request, &[&added, delta, &done]);
        assert_eq!(gate, [want, want, want], "{name}");
    }
}

/// Of two equal keys, parsers take the last or the first. An error in either reading counts.
#[test]
fn an_error_of_two_equal_keys_counts() {
    let error = r#""error":{"message":"The server had an error","type":"server_error"}"#;
    let choice = |word: &str| {
        format!(
            r#""choices":[{{"index":0,"message":{{"tool_calls":[{{"id":"1","function":{{"name":"f","arguments":"{{}}"}}}}]}},"finish_reason":"{word}"}}]"#
        )
    };
    let ended = |body: String| {
        let (ending, calls) =
            read(reader(&provider::OPENAI.main), &[body.as_bytes()], TransportEnd::Eof);
        (ending.reason, allow(&ending, &calls) == Allow::Run)
    };
    let choice = choice("tool_calls");
    assert_eq!(ended(format!(r#"{{{choice},{error},"error":null}}"#)), (Reason::Failed, false));
    assert_eq!(ended(format!(r#"{{{choice},"error":null,{error}}}"#)), (Reason::Failed, false));
    assert_eq!(ended(format!(r#"{{{error},"error":null}}"#)), (Reason::Failed, false));
    assert_eq!(
        ended(format!(r#"{{{choice},"error":null,"error":null}}"#)),
        (Reason::ToolCall, true)
    );
}
