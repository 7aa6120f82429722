//! The state machine of a turn: its matrix, its terminal paths, its limits under random inputs, and
//! turns that would never end without limits.

use std::fmt::Write;

use endstop::tool_call::{Allow, Refusal};
use endstop::{Confidence, Ending, FaultKind, Reason, Shown};
use endstop_turn::continuation::{
    Completeness, EndedResponse, Issue, Machine, Outcome, PlannedRequest, RequestKind, StateName,
    Step, Todo, TurnEnd, TurnEvent, TurnInput, TurnStart,
};
use endstop_turn::policy::{
    self, AgentLimits, Budget, Counter, Decision, Limit, MAX_CAP, MIN_CAP, Millis, Money, Piece,
    Policy, Price, TerminationReport,
};
use expect_test::expect_file;

use crate::dice::Dice;
use crate::endings::{HOLDS, Holds, ending, failed, plain, used, with};

const TEXT: &str = "A piece of text that is long enough to be progress.";

fn ended(ending: Ending) -> EndedResponse {
    let text = if ending.shown.text { TEXT } else { "" };
    EndedResponse::new(ending, Piece::of(text))
}

/// Creates a response with a unique text, so that nothing repeats.
fn fresh(ending: Ending, number: u64) -> EndedResponse {
    let text = if ending.shown.text { format!("{number}: {TEXT}") } else { String::new() };
    EndedResponse::new(ending, Piece::of(&text))
}

fn begin(policy: Policy, cap: u64) -> TurnStart {
    let budget = Budget { cap: Some(cap), ..Budget::default() };
    TurnStart { policy, budget, ..TurnStart::new("turn-1") }
}

fn start() -> Machine {
    Machine::begin(begin(Policy::default(), 1_000), 0).0
}

fn told(machine: Machine, ending: Ending) -> (Machine, Step) {
    machine.step(TurnInput::Ended(&ended(ending)), 1)
}

/// Says that the request of this step is built.
fn prepared((machine, step): (Machine, Step)) -> (Machine, Step) {
    assert!(matches!(step.todo, Todo::Prepare(_)), "{step:?}");
    machine.step(TurnInput::Prepared, 1)
}

fn call(reason: Reason) -> Ending {
    ending(reason, Confidence::High, Holds::Call.shown())
}

fn cut_call() -> Ending {
    ending(Reason::OutputLimit, Confidence::High, Holds::CutCall.shown())
}

/// Returns one machine for each state that waits.
fn machines() -> Vec<(&'static str, Machine)> {
    let limit = told(start(), plain(Reason::OutputLimit)).0;
    let sent = limit.clone().step(TurnInput::Prepared, 1).0;
    vec![
        ("Request", start()),
        ("ExecuteTools", told(start(), call(Reason::ToolCall)).0),
        ("ContinuePending", limit),
        ("RequestContinuation", sent),
        ("RepairToolCall", prepared(told(start(), cut_call())).0),
        ("ResumePaused", prepared(told(start(), plain(Reason::Paused))).0),
        ("RetryPending", told(start(), plain(Reason::Cut)).0),
        ("Complete", told(start(), plain(Reason::Complete)).0),
        ("Abort", told(start(), plain(Reason::Safety)).0),
    ]
}

fn todo_word(todo: &Todo) -> String {
    match todo {
        Todo::Send(next) => format!("send {}{}", how(next), if next.again { " again" } else { "" }),
        Todo::Prepare(next) => format!("prepare {}", how(next)),
        Todo::Wait { .. } => "wait".to_owned(),
        Todo::RunTools => "run tools".to_owned(),
        Todo::Finish(outcome) => format!("finish: {}", outcome.terminated.name()),
        Todo::Ignored => "ignored".to_owned(),
    }
}

fn how(next: &PlannedRequest) -> &'static str {
    match next.how {
        RequestKind::First => "first",
        RequestKind::AfterTools => "after tools",
        RequestKind::Continue => "continue",
        RequestKind::ResumeText => "resume text",
        RequestKind::Repair => "repair",
        RequestKind::Resume => "resume",
        RequestKind::Poll => "poll",
    }
}

fn path(action: &Step) -> String {
    let names: Vec<String> = action.passed.iter().map(|name| format!("{name:?}")).collect();
    format!("{:<48} {}", names.join(" > "), todo_word(&action.todo))
}

fn endings() -> Vec<(String, Ending)> {
    let mut all: Vec<(String, Ending)> =
        Reason::ALL.into_iter().map(|reason| (reason.name().to_owned(), plain(reason))).collect();
    all.push(("tool_call with a call".to_owned(), call(Reason::ToolCall)));
    let low = ending(Reason::ToolCall, Confidence::Low, Holds::Call.shown());
    all.push(("tool_call, unsure".to_owned(), low));
    all.push(("output_limit in a call".to_owned(), cut_call()));
    for (name, holds) in [("reasoning", Holds::Reasoning), ("nothing", Holds::Nothing)] {
        for reason in [Reason::OutputLimit, Reason::Complete, Reason::Unknown] {
            let ending = ending(reason, Confidence::High, holds.shown());
            all.push((format!("{} with {name}", reason.name()), ending));
        }
    }
    let unknown = ending(Reason::Unknown, Confidence::Low, Holds::Call.shown());
    all.push(("unknown with a call".to_owned(), unknown));
    all.push(("failed: bad key".to_owned(), failed(FaultKind::Auth)));
    let pending = with(plain(Reason::Unknown), |it| {
        it.over = false;
    });
    all.push(("not over".to_owned(), pending));
    all
}

#[test]
fn the_machine_matrix() {
    let mut text = String::from(
        "The machine: for each state and input, the states that are passed and the next thing to do.\n",
    );
    for (name, machine) in machines() {
        assert_eq!(format!("{:?}", machine.state()), name);
        writeln!(text, "\n== {name}").unwrap();
        let mut row = |input: &str, action: &Step| {
            writeln!(text, "{input:<28} {}", path(action)).unwrap();
        };
        for (word, ending) in endings() {
            let ended = fresh(ending, 7);
            let (after, action) = machine.clone().step(TurnInput::Ended(&ended), 10);
            assert_eq!(action.passed.last(), Some(&after.state()));
            if action.todo == Todo::Ignored {
                assert_eq!(after.outcome(), machine.outcome());
                assert!(matches!(action.events.as_slice(), [TurnEvent::InputIgnored { .. }]));
                continue;
            }
            row(&word, &action);
        }
        let inputs = [
            ("prepared", TurnInput::Prepared, 10),
            ("unavailable", TurnInput::Unavailable, 10),
            ("tick, soon", TurnInput::Tick, 10),
            ("tick, after the wait", TurnInput::Tick, 1_000),
            ("tick, after the time", TurnInput::Tick, 1_800_000),
            ("tools_done", TurnInput::ToolsDone, 10),
            ("tools_done, late", TurnInput::ToolsDone, 1_800_000),
            ("tools_lost", TurnInput::ToolsLost, 10),
            ("cancel", TurnInput::Cancel, 10),
        ];
        for (word, input, now) in inputs {
            let (_, action) = machine.clone().step(input, now);
            if action.todo != Todo::Ignored {
                row(word, &action);
            }
        }
    }
    expect_file!["snapshots/machine.txt"].assert_eq(&text);
}

/// Drives a turn with responses until it is over, and returns the outcome and the requests.
fn drive(
    begin: TurnStart,
    mut answer: impl FnMut(&PlannedRequest, u32) -> EndedResponse,
) -> (Outcome, Vec<PlannedRequest>) {
    let mut now = 0;
    let (mut machine, mut action) = Machine::begin(begin, now);
    let mut sent = Vec::new();
    for _ in 0..1_000_000 {
        (machine, action) = match action.todo {
            Todo::Send(next) => {
                let ended = answer(&next, sent.len() as u32);
                sent.push(next);
                machine.step(TurnInput::Ended(&ended), now)
            }
            Todo::Prepare(_) => machine.step(TurnInput::Prepared, now),
            Todo::Wait { ms } => {
                now += ms;
                machine.step(TurnInput::Tick, now)
            }
            Todo::RunTools => machine.step(TurnInput::ToolsDone, now),
            Todo::Finish(outcome) => return (*outcome, sent),
            Todo::Ignored => panic!("ignored"),
        };
    }
    panic!("the turn never ends");
}

#[test]
fn a_turn_that_is_always_cut_off_stops_after_three_continuations() {
    let (outcome, sent) = drive(begin(Policy::default(), 1_000), |next, number| {
        fresh(used(plain(Reason::OutputLimit), 100, next.cap.unwrap()), number.into())
    });
    assert_eq!(sent.len(), 4);
    assert_eq!((outcome.finish, outcome.terminated), (Completeness::Partial, TurnEnd::RetryLimit));
    assert_eq!(outcome.reason, Some(Reason::OutputLimit), "the answer was cut off");
    assert_eq!((outcome.pieces, outcome.spent.completion_tokens), (4, 4_000));
    assert!(outcome.notice.unwrap().starts_with("The answer is incomplete: "));
}

#[test]
fn runaway_turns_stop_at_the_caps() {
    // With unlimited attempts, four times the first output limit is the bound.
    let eager = AgentLimits { continuation_max_attempts: u32::MAX, ..AgentLimits::DEFAULT };
    let policy = |agent| Policy { agent, ..Policy::default() };
    let (outcome, sent) = drive(begin(policy(eager), 1_000), |next, number| {
        fresh(used(plain(Reason::OutputLimit), 100, next.cap.unwrap()), number.into())
    });
    assert_eq!((sent.len(), outcome.spent.completion_tokens), (4, 4_000));
    assert_eq!(outcome.terminated, TurnEnd::BudgetExhausted);

    // A provider that reports no tokens is counted by the output limit.
    let (outcome, sent) = drive(begin(policy(eager), 1_000), |_, number| {
        fresh(plain(Reason::OutputLimit), number.into())
    });
    assert_eq!((sent.len(), outcome.spent.completion_tokens), (4, 4_000));

    // Without an output limit, the character limit applies.
    let open = TurnStart { policy: policy(eager), ..TurnStart::new("t") };
    let (outcome, sent) = drive(open.clone(), |_, number| {
        let text: String = (0..3_000).map(|word| format!("{number}.{word} ")).collect();
        EndedResponse::new(plain(Reason::OutputLimit), Piece::of(&text))
    });
    assert_eq!(outcome.decision.unwrap().metadata.limit, Some(Limit::OutputChars));
    assert!(sent.len() < 12 && outcome.spent.output_chars < 120_000 + 30_000);

    // Empty output: no request is sent again.
    let (outcome, sent) = drive(open.clone(), |_, _| {
        let nothing = ending(Reason::OutputLimit, Confidence::High, Shown::default());
        ended(used(nothing, 100, 0))
    });
    assert_eq!((sent.len(), outcome.terminated), (1, TurnEnd::NoProgress));
    assert_eq!(outcome.finish, Completeness::Aborted);

    // Identical output: the first repetition ends the turn.
    let (outcome, sent) = drive(open.clone(), |_, _| ended(plain(Reason::OutputLimit)));
    assert_eq!((sent.len(), outcome.terminated), (2, TurnEnd::NoProgress));
    assert_eq!(outcome.finish, Completeness::Partial);

    // Two alternating pieces.
    let (outcome, sent) =
        drive(open.clone(), |_, number| fresh(plain(Reason::OutputLimit), (number % 2).into()));
    assert_eq!((sent.len(), outcome.terminated), (3, TurnEnd::NoProgress));

    // An overlap loop: each piece is the tail of the last one plus a few characters.
    let (outcome, sent) = drive(open.clone(), |next, number| {
        let ended = fresh(plain(Reason::OutputLimit), number.into());
        let overlap =
            if next.how == RequestKind::Continue { ended.piece.unwrap().chars - 3 } else { 0 };
        EndedResponse { piece: ended.piece.map(|piece| piece.trimmed(overlap)), ..ended }
    });
    assert_eq!((sent.len(), outcome.terminated), (2, TurnEnd::NoProgress));

    // 33 million tokens: the input grows with every request, and tools are called forever.
    let mut input = 0;
    let (outcome, sent) = drive(begin(Policy::default(), 4_000), |_, _| {
        input += 115_000;
        ended(used(call(Reason::ToolCall), input, 500))
    });
    assert_eq!(outcome.terminated, TurnEnd::BudgetExhausted);
    let tokens = outcome.spent.input_tokens + outcome.spent.output_tokens;
    assert!(tokens < 20_000_000 + input + 500, "{tokens}");
    assert!(sent.len() < 30, "{}", sent.len());
    // The same with little input: the request limit applies.
    let (outcome, sent) =
        drive(begin(Policy::default(), 4_000), |_, _| ended(used(call(Reason::ToolCall), 10, 5)));
    assert_eq!((sent.len(), outcome.terminated), (200, TurnEnd::BudgetExhausted));

    // Always paused, always failing, always cut, always polled.
    for (ending, counter, most) in [
        (plain(Reason::Paused), Counter::Resumes, 10),
        (failed(FaultKind::Overloaded), Counter::Retries, 2),
        (plain(Reason::Cut), Counter::Cuts, 2),
    ] {
        let (outcome, sent) = drive(open.clone(), |_, number| fresh(ending.clone(), number.into()));
        assert_eq!(outcome.terminated, TurnEnd::RetryLimit, "{counter:?}");
        assert_eq!(sent.len(), most + 1);
        assert_eq!(outcome.spent.count(counter), most as u32);
    }
    let pending = with(plain(Reason::Unknown), |it| {
        it.over = false;
    });
    let (outcome, sent) = drive(open, |_, number| fresh(pending.clone(), number.into()));
    assert_eq!((sent.len(), outcome.terminated), (200, TurnEnd::BudgetExhausted));
}

#[test]
fn counters_hold_through_tool_iterations_and_reset_with_the_turn() {
    // Cut off, continued to a tool call, cut off again after the tools, and so on.
    let (outcome, sent) = drive(begin(Policy::persistent(), 1_000), |next, number| {
        let user = EndedResponse::new;
        match next.how {
            RequestKind::Continue => fresh(used(call(Reason::ToolCall), 10, 10), number.into()),
            RequestKind::First | RequestKind::AfterTools => {
                let piece = Piece::of(&format!("{number}: {TEXT}"));
                user(used(plain(Reason::OutputLimit), 10, 10), piece)
            }
            RequestKind::ResumeText
            | RequestKind::Repair
            | RequestKind::Resume
            | RequestKind::Poll => panic!("{next:?}"),
        }
    });
    assert_eq!(outcome.spent.continuations, 8);
    assert_eq!(sent.len(), 17);
    assert_eq!(outcome.terminated, TurnEnd::RetryLimit);
    assert_eq!(start().spent().continuations, 0);
}

#[test]
fn healthy_tool_iterations_use_up_nothing_that_recovery_needs() {
    let (outcome, sent) = drive(begin(Policy::default(), 1_000), |_, number| match number {
        0..50 => ended(used(call(Reason::ToolCall), 1_000, 900)),
        50 => fresh(used(plain(Reason::OutputLimit), 1_000, 1_000), 50),
        _ => fresh(used(plain(Reason::Complete), 1_000, 300), 51),
    });
    assert_eq!((sent.len(), outcome.terminated), (52, TurnEnd::Completed));
    assert_eq!((outcome.finish, outcome.notice), (Completeness::Complete, None));
    assert_eq!(outcome.spent.completion_tokens, 1_300);
    assert_eq!(outcome.spent.output_tokens, 50 * 900 + 1_300);
}

#[test]
fn a_cut_tool_call_is_asked_for_once_and_then_told_of() {
    let repair_events = |action: &Step| -> Vec<(bool, Option<bool>)> {
        let of = |event: &TurnEvent| {
            let TurnEvent::ToolPayloadRepair { attempted, succeeded, issue, detail, .. } = event
            else {
                return None;
            };
            assert_eq!(*issue, Issue::Unfinished);
            assert!(!detail.is_empty());
            Some((*attempted, *succeeded))
        };
        action.events.iter().filter_map(of).collect()
    };
    let (machine, action) = told(start(), cut_call());
    assert_eq!(todo_word(&action.todo), "prepare repair");
    assert_eq!(repair_events(&action), []);
    let (machine, action) = machine.step(TurnInput::Prepared, 1);
    assert_eq!(todo_word(&action.todo), "send repair");
    assert_eq!(repair_events(&action), [(true, None)]);
    // The call comes back complete.
    let (_, action) = told(machine.clone(), call(Reason::ToolCall));
    assert_eq!(action.todo, Todo::RunTools);
    assert_eq!(repair_events(&action), [(true, Some(true))]);
    // The call is cut again: a partial answer with a notice.
    let (machine, action) = told(machine, cut_call());
    assert_eq!(
        action.passed,
        [StateName::EvaluateStop, StateName::AbortPartial, StateName::Complete]
    );
    assert_eq!(repair_events(&action), [(true, Some(false)), (false, Some(false))]);
    let outcome = machine.outcome().unwrap();
    assert_eq!(
        (outcome.finish, outcome.terminated),
        (Completeness::Partial, TurnEnd::ToolCallUnfinished)
    );
    assert!(outcome.notice.as_deref().unwrap().contains("tool call"));
    // A repair whose stream is cut is sent again as a repair, and counts as a cut.
    let (machine, _) = prepared(told(start(), cut_call()));
    let (machine, _) = told(machine, plain(Reason::Cut));
    let (machine, action) = machine.step(TurnInput::Tick, 60_000);
    assert_eq!(todo_word(&action.todo), "send repair again");
    assert_eq!((machine.spent().repairs, machine.spent().cuts), (1, 1));
    // The request cannot ask for it again: nothing is counted, and the notice says so.
    let (machine, action) = told(start(), cut_call()).0.step(TurnInput::Unavailable, 2);
    assert_eq!(repair_events(&action), [(false, Some(false))]);
    assert!(!action.events.iter().any(|event| matches!(event, TurnEvent::RetryAttempt { .. })));
    let outcome = machine.outcome().unwrap();
    assert_eq!((outcome.finish, outcome.terminated), (Completeness::Partial, TurnEnd::Unavailable));
    assert_eq!((outcome.spent.iterations, outcome.spent.repairs), (1, 0));
    assert!(outcome.notice.as_deref().unwrap().contains("a tool call is incomplete"));
}

#[test]
fn another_model_that_cannot_be_asked_leaves_the_refusal() {
    let other = |ending: Ending| {
        let decision = Some(Decision::new(policy::Action::OtherModel, "ask another model"));
        let ended = EndedResponse { decision, ..ended(ending) };
        let (machine, action) = start().step(TurnInput::Ended(&ended), 1);
        assert!(matches!(&action.todo, Todo::Prepare(next) if next.other_model), "{action:?}");
        machine
    };
    let (machine, action) = other(plain(Reason::Refused)).step(TurnInput::Unavailable, 2);
    assert!(!action.events.iter().any(|event| matches!(event, TurnEvent::RetryAttempt { .. })));
    let outcome = machine.outcome().unwrap();
    assert_eq!((outcome.terminated, outcome.spent.retries), (TurnEnd::SafetyBlocked, 0));
    let (machine, _) = other(plain(Reason::Unknown)).step(TurnInput::Unavailable, 2);
    assert_eq!(machine.outcome().unwrap().terminated, TurnEnd::Unavailable);
    // The text so far does not belong to the other model's answer.
    let (machine, _) = other(plain(Reason::Unknown)).step(TurnInput::Prepared, 2);
    let (machine, _) = machine.step(TurnInput::Ended(&ended(failed(FaultKind::Auth))), 3);
    let outcome = machine.outcome().unwrap();
    assert_eq!((outcome.finish, outcome.kept_chars), (Completeness::Aborted, 0));
}

#[test]
fn another_model_is_asked_within_the_cost_limit_at_its_own_price() {
    let price =
        |output| Some(Price { input: Money::from_micros(0), output: Money::from_micros(output) });
    let agent =
        AgentLimits { turn_max_cost: Some(Money::from_micros(100_000)), ..AgentLimits::DEFAULT };
    let budget = Budget { price: price(100_000), ..Budget::default() };
    let begin =
        TurnStart { policy: Policy { agent, ..Policy::default() }, budget, ..TurnStart::new("t") };
    let other = |output| {
        let decision = Some(Decision::new(policy::Action::OtherModel, "ask another model"));
        let ended = EndedResponse { decision, ..ended(plain(Reason::Refused)) };
        let machine = Machine::begin(begin.clone(), 0).0;
        let (mut machine, _) = machine.step(TurnInput::Ended(&ended), 1);
        machine.change_model("acme", price(output));
        machine.step(TurnInput::Prepared, 2)
    };
    let (machine, action) = other(1_000_000_000);
    let Todo::Send(next) = action.todo else { panic!("{action:?}") };
    let cap = next.cap.unwrap();
    assert!(cap <= 100 && cap > 90, "{cap}");
    // What it used is paid at its own price, although the response names none.
    let ended = ended(used(plain(Reason::Complete), 0, cap));
    let (machine, _) = machine.step(TurnInput::Ended(&ended), 3);
    let spent = machine.outcome().unwrap().spent.cost.micros();
    assert!(spent <= 100_000 && spent > 90_000, "{spent}");
    let (machine, _) = other(10_000_000_000);
    let outcome = machine.outcome().unwrap();
    assert_eq!((outcome.terminated, outcome.spent.iterations), (TurnEnd::BudgetExhausted, 1));
    assert!(outcome.notice.as_deref().unwrap().contains("(turn_max_cost)"), "{outcome:?}");
}

#[test]
#[cfg(feature = "toml")]
fn limits_for_a_provider_apply_to_the_first_request() {
    let begin = |table: &str| {
        let policy =
            Policy::from_toml("p.toml", &format!("[providers.acme.agent]\n{table}")).unwrap();
        let start = TurnStart { policy, provider: "acme".to_owned(), ..TurnStart::new("t") };
        Machine::begin(start, 0)
    };
    let first = |table: &str| {
        let (_, action) = begin(table);
        let Todo::Send(next) = action.todo else { panic!("{action:?}") };
        next
    };
    assert_eq!(first("turn_max_completion_tokens = 100").cap, Some(100));
    assert_eq!(first("turn_max_time = \"1s\"").deadline_ms, 1_000);
    let (machine, _) = begin("turn_max_iterations = 0");
    assert_eq!(machine.outcome().unwrap().spent.iterations, 0);
    let (machine, _) = begin("turn_max_time = \"1s\"");
    assert!(machine.step(TurnInput::Tick, 1_000).0.is_over());
}

#[test]
fn all_tokens_bound_every_request_with_its_input() {
    let agent = AgentLimits { turn_max_total_tokens: 500, ..AgentLimits::DEFAULT };
    let policy = Policy { agent, ..Policy::default() };
    let begin = TurnStart { policy, input_tokens: Some(60), ..TurnStart::new("t") };
    let mut conversation = 60;
    let (outcome, sent) = drive(begin.clone(), |next, number| {
        let output = next.cap.unwrap().min(100);
        let ended = fresh(used(plain(Reason::OutputLimit), conversation, output), number.into());
        conversation += output;
        ended
    });
    assert_eq!(sent[0].cap, Some(440), "what is left after the input");
    assert_eq!(outcome.decision.unwrap().metadata.limit, Some(Limit::TotalTokens));
    let spent = outcome.spent;
    assert!(spent.input_tokens + spent.output_tokens <= 500, "{spent:?}");
    assert!(sent.len() > 1);
    // Results of tools count before they are sent.
    let (machine, _) = Machine::begin(begin.clone(), 0);
    let (mut machine, action) = told(machine, used(call(Reason::ToolCall), 60, 40));
    assert_eq!(action.todo, Todo::RunTools);
    machine.lengthen(250);
    let (_, action) = machine.clone().step(TurnInput::ToolsDone, 2);
    let Todo::Send(next) = action.todo else { panic!("{action:?}") };
    assert_eq!(next.cap, Some(500 - 100 - 100 - 250));
    machine.lengthen(40);
    let (machine, _) = machine.step(TurnInput::ToolsDone, 2);
    assert_eq!(machine.outcome().unwrap().terminated, TurnEnd::BudgetExhausted);
    // A request that is too large is not sent at all.
    let large = TurnStart { input_tokens: Some(490), ..begin };
    assert!(Machine::begin(large, 0).0.is_over());
    // A limit that no response reaches is not sent: providers reject it.
    let (_, action) = Machine::begin(TurnStart::new("t"), 0);
    let Todo::Send(next) = action.todo else { panic!("{action:?}") };
    assert_eq!(next.cap, None);
}

#[test]
fn the_first_requests_input_costs_money_before_it_is_sent() {
    let price =
        Price { input: Money::from_micros(1_000_000), output: Money::from_micros(10_000_000) };
    let agent =
        AgentLimits { turn_max_cost: Some(Money::from_micros(2_000)), ..AgentLimits::DEFAULT };
    let budget = Budget { price: Some(price), ..Budget::default() };
    let policy = Policy { agent, ..Policy::default() };
    let begin = TurnStart { policy, budget, input_tokens: Some(1_000), ..TurnStart::new("t") };
    let (_, action) = Machine::begin(begin.clone(), 0);
    let Todo::Send(next) = action.todo else { panic!("{action:?}") };
    assert_eq!(next.cap, Some(100), "half of the money is for the input");
    let large = TurnStart { input_tokens: Some(2_000), ..begin };
    assert_eq!(Machine::begin(large, 0).0.outcome().unwrap().terminated, TurnEnd::BudgetExhausted);
}

#[test]
fn what_is_told_of_a_response_is_heeded() {
    // The assembled calls are refused, although the ending alone would allow them.
    let mut refused = ended(call(Reason::ToolCall));
    assert_eq!(start().step(TurnInput::Ended(&refused), 1).1.todo, Todo::RunTools);
    refused.tools = Some(Allow::Refuse(Refusal::TooMany));
    let (_, action) = start().step(TurnInput::Ended(&refused), 1);
    assert_eq!(todo_word(&action.todo), "prepare repair");
    // The provider asks for a wait.
    let mut later = ended(failed(FaultKind::RateLimit));
    later.retry_after_ms = Some(7_000);
    let (_, action) = start().step(TurnInput::Ended(&later), 1);
    assert_eq!(action.todo, Todo::Wait { ms: 7_000 });
    // Different turns wait for different times.
    let waits = |turn: &str| {
        let machine = Machine::begin(TurnStart::new(turn), 0).0;
        let (_, action) = machine.step(TurnInput::Ended(&ended(failed(FaultKind::Overloaded))), 1);
        let Todo::Wait { ms } = action.todo else { panic!("{action:?}") };
        ms
    };
    let different: std::collections::BTreeSet<u64> =
        (0..20).map(|number| waits(&format!("turn-{number}"))).collect();
    assert!(different.len() > 5, "{different:?}");
    // No request may take longer than the turn.
    let policy = Policy {
        agent: AgentLimits { turn_max_time: Millis(5_000), ..AgentLimits::DEFAULT },
        ..Policy::default()
    };
    let (_, action) = Machine::begin(begin(policy, 1_000), 300);
    let Todo::Send(next) = action.todo else { panic!("{action:?}") };
    assert_eq!(next.deadline_ms, 5_300);
}

#[test]
fn what_came_before_a_failure_stands() {
    let continued = || {
        let (machine, _) = told(start(), plain(Reason::OutputLimit));
        machine.step(TurnInput::Prepared, 1).0
    };
    for (reason, finish, why) in [
        (Reason::ContextLimit, Completeness::Partial, TurnEnd::ContextLimit),
        (Reason::Safety, Completeness::Aborted, TurnEnd::SafetyBlocked),
        (Reason::Refused, Completeness::Aborted, TurnEnd::SafetyBlocked),
        (Reason::Cancelled, Completeness::Aborted, TurnEnd::Cancelled),
        (Reason::Complete, Completeness::Complete, TurnEnd::Completed),
    ] {
        let ended = fresh(plain(reason), 2);
        let (machine, _) = continued().step(TurnInput::Ended(&ended), 2);
        let outcome = machine.outcome().unwrap();
        assert_eq!((outcome.finish, outcome.terminated), (finish, why), "{reason:?}");
        assert_eq!(outcome.notice.is_none(), finish == Completeness::Complete);
    }
    let refused = ended(failed(FaultKind::InvalidRequest));
    let outcome = continued().step(TurnInput::Ended(&refused), 2).0.outcome().cloned().unwrap();
    assert_eq!(
        (outcome.finish, outcome.terminated),
        (Completeness::Partial, TurnEnd::RequestRefused)
    );
    let outcome = start().step(TurnInput::Ended(&refused), 2).0.outcome().cloned().unwrap();
    assert_eq!(
        (outcome.finish, outcome.terminated),
        (Completeness::Aborted, TurnEnd::RequestRefused)
    );
    let outcome = continued().step(TurnInput::Cancel, 2).0.outcome().cloned().unwrap();
    assert_eq!((outcome.finish, outcome.terminated), (Completeness::Aborted, TurnEnd::Cancelled));
    let late = continued().step(TurnInput::Tick, 1_800_000).0.outcome().cloned().unwrap();
    assert_eq!((late.finish, late.terminated), (Completeness::Partial, TurnEnd::BudgetExhausted));
    assert!(!continued().step(TurnInput::Tick, 1_799_999).0.is_over());
}

#[test]
fn unknown_endings_are_never_taken_for_whole() {
    let of = |confidence, holds: Holds| {
        let (machine, _) = told(start(), ending(Reason::Unknown, confidence, holds.shown()));
        let outcome = machine.outcome().cloned().unwrap();
        assert_eq!(outcome.terminated, TurnEnd::UnknownEnding);
        assert!(outcome.notice.is_some());
        outcome.finish
    };
    assert_eq!(of(Confidence::Low, Holds::Text), Completeness::Complete);
    assert_eq!(of(Confidence::Medium, Holds::Text), Completeness::Complete);
    assert_eq!(of(Confidence::Medium, Holds::Call), Completeness::Aborted);
    assert_eq!(of(Confidence::Medium, Holds::Nothing), Completeness::Aborted);
    assert_eq!(of(Confidence::Medium, Holds::Reasoning), Completeness::Aborted);
    // A complete answer with low confidence has a notice.
    let (machine, _) =
        told(start(), ending(Reason::Complete, Confidence::Low, Holds::Text.shown()));
    let outcome = machine.outcome().unwrap();
    assert_eq!(outcome.finish, Completeness::Complete);
    assert!(outcome.notice.as_deref().unwrap().starts_with("The answer may be incomplete"));
}

#[test]
fn events_say_what_happened() {
    let (machine, action) = told(start(), used(plain(Reason::OutputLimit), 50, 900));
    let json = serde_json::to_value(&action.events).unwrap();
    assert_eq!(json[0]["event"], "stop_reason_observed");
    assert_eq!(json[0]["provider"], "acme");
    assert_eq!(json[0]["model"], "m");
    assert_eq!(json[0]["reason"], "output_limit");
    assert_eq!(json[0]["raw"], "output_limit");
    assert_eq!((&json[0]["turn"], &json[0]["iteration"]), (&"turn-1".into(), &1.into()));
    let (machine, action) = machine.step(TurnInput::Prepared, 5);
    let json = serde_json::to_value(&action.events).unwrap();
    assert_eq!(json[0]["event"], "continuation_attempt");
    assert_eq!((&json[0]["index"], &json[0]["iteration"]), (&1.into(), &2.into()));
    assert_eq!(json[0]["cumulative_tokens"], 900);
    assert_eq!(json[0]["cumulative_chars"], TEXT.len());
    assert_eq!(json[0]["budget_left"]["attempts"], 2);
    assert_eq!(json[0]["budget_left"]["tokens"], 3_100);
    assert_eq!(json[0]["budget_left"]["ms"], 1_799_995);
    let done = fresh(used(plain(Reason::Complete), 50, 90), 9);
    let (_, action) = machine.step(TurnInput::Ended(&done), 6);
    let json = serde_json::to_value(&action.events).unwrap();
    assert_eq!(json[1]["event"], "continuation_terminated");
    assert_eq!(
        (&json[1]["terminated"], &json[1]["finish"]),
        (&"completed".into(), &"complete".into())
    );
    assert_eq!((&json[1]["pieces"], &json[1]["cumulative_tokens"]), (&2.into(), &990.into()));
    assert_eq!(json[2]["event"], "turn_ended");
    assert_eq!(
        (&json[2]["terminated"], &json[2]["continued"]),
        (&"completed".into(), &true.into())
    );
    assert_eq!(json.as_array().unwrap().len(), 3);
    // Other attempts have their own events.
    let (machine, _) = told(start(), plain(Reason::Cut));
    let (_, action) = machine.step(TurnInput::Tick, 9_000);
    assert_eq!(serde_json::to_value(&action.events).unwrap()[0]["event"], "retry_attempt");
    let (_, action) = prepared(told(start(), plain(Reason::Paused)));
    assert_eq!(serde_json::to_value(&action.events).unwrap()[0]["event"], "resume_attempt");
    // Continuing delivered text after a cut is a continuation.
    let delivers = TurnStart { delivers: true, ..begin(Policy::default(), 1_000) };
    let (machine, _) = told(Machine::begin(delivers, 0).0, plain(Reason::Cut));
    let (machine, action) = prepared(machine.step(TurnInput::Tick, 9_000));
    let json = serde_json::to_value(&action.events).unwrap();
    assert_eq!(json[0]["event"], "continuation_attempt");
    assert_eq!(json[0]["counter"], "cuts");
    assert_eq!(machine.state(), StateName::RequestContinuation);
}

#[test]
fn every_terminated_word_is_its_name() {
    for why in [
        TurnEnd::Completed,
        TurnEnd::RetryLimit,
        TurnEnd::BudgetExhausted,
        TurnEnd::SafetyBlocked,
        TurnEnd::NoProgress,
        TurnEnd::ContextLimit,
        TurnEnd::ConversationLimit,
        TurnEnd::ReasoningExhausted,
        TurnEnd::ToolCallUnfinished,
        TurnEnd::ToolCallUncertain,
        TurnEnd::ToolCallsLeft,
        TurnEnd::ToolsLost,
        TurnEnd::ProviderFailed,
        TurnEnd::RequestRefused,
        TurnEnd::TimedOut,
        TurnEnd::CutStream,
        TurnEnd::Cancelled,
        TurnEnd::UnknownEnding,
        TurnEnd::StoppedByPolicy,
        TurnEnd::Unavailable,
    ] {
        assert_eq!(serde_json::to_value(why).unwrap(), why.name());
    }
}

#[cfg(feature = "toml")]
#[test]
fn rules_that_stop_end_the_turn_under_their_own_names() {
    let stops = |reason: Reason, ended: EndedResponse| {
        let text = format!("[rules.{}]\naction = \"stop\"", reason.name());
        let policy = Policy::from_toml("p", &text).unwrap();
        let machine = Machine::begin(begin(policy, 1_000), 0).0;
        machine.step(TurnInput::Ended(&ended), 1).0.outcome().cloned().unwrap()
    };
    for (reason, why, finish) in [
        (Reason::Cut, TurnEnd::CutStream, Completeness::Aborted),
        (Reason::Failed, TurnEnd::ProviderFailed, Completeness::Aborted),
        (Reason::TimedOut, TurnEnd::TimedOut, Completeness::Aborted),
        (Reason::OutputLimit, TurnEnd::StoppedByPolicy, Completeness::Partial),
        (Reason::Paused, TurnEnd::StoppedByPolicy, Completeness::Partial),
        (Reason::MalformedToolCall, TurnEnd::ToolCallUnfinished, Completeness::Partial),
        (Reason::ContextLimit, TurnEnd::ContextLimit, Completeness::Aborted),
        (Reason::Recitation, TurnEnd::SafetyBlocked, Completeness::Aborted),
    ] {
        let outcome = stops(reason, ended(plain(reason)));
        assert_eq!((outcome.terminated, outcome.finish), (why, finish), "{reason:?}");
    }
    let left = stops(Reason::ToolCall, ended(call(Reason::ToolCall)));
    assert_eq!((left.terminated, left.finish), (TurnEnd::ToolCallsLeft, Completeness::Complete));
}

#[test]
fn a_strategy_decides_and_the_machine_holds_it_to_the_limits() {
    let stubborn = |_: &Ending, _: &policy::DecisionContext| {
        Decision::new(policy::Action::Retry, "again and again")
    };
    let mut now = 0;
    let (mut machine, mut action) = Machine::begin(begin(Policy::default(), 1_000), now);
    let mut sent = 0;
    while !machine.is_over() {
        (machine, action) = match action.todo {
            Todo::Send(_) => {
                sent += 1;
                let ended = machine.decided(&stubborn, ended(plain(Reason::Complete)), now);
                machine.step(TurnInput::Ended(&ended), now)
            }
            Todo::Wait { ms } => {
                now += ms;
                machine.step(TurnInput::Tick, now)
            }
            Todo::Prepare(_) | Todo::RunTools | Todo::Finish(_) | Todo::Ignored => {
                panic!("{action:?}")
            }
        };
    }
    assert_eq!(sent, 3);
    assert_eq!(machine.outcome().unwrap().terminated, TurnEnd::RetryLimit);
    // The strategy and the machine get the same context.
    let response = ended(used(plain(Reason::OutputLimit), 7, 900));
    let context = start().context(&response, 5);
    assert_eq!((context.spent.completion_tokens, context.spent.elapsed_ms), (900, 5));
    assert_eq!(context.conversation_tokens, Some(907));
    assert_eq!(context.spent.iterations, 1);
}

#[test]
fn money_runs_out() {
    let price =
        Price { input: Money::from_micros(1_000_000), output: Money::from_micros(10_000_000) };
    let agent =
        AgentLimits { turn_max_cost: Some(Money::from_micros(25_000)), ..AgentLimits::DEFAULT };
    let budget = Budget { cap: Some(1_000), price: Some(price), ..Budget::default() };
    let policy = Policy { agent, ..Policy::default() };
    let begin = TurnStart { policy, budget, ..TurnStart::new("t") };
    let mut conversation = 100;
    let (outcome, sent) = drive(begin, |next, number| {
        let output = next.cap.unwrap();
        let ended = fresh(used(plain(Reason::OutputLimit), conversation, output), number.into());
        conversation += output;
        ended
    });
    assert_eq!(outcome.decision.unwrap().metadata.limit, Some(Limit::Cost));
    assert!(outcome.spent.cost <= Money::from_micros(25_000), "{:?}", outcome.spent.cost);
    assert!(sent.len() == 3, "{sent:?}");
}

#[test]
fn reasoning_that_is_counted_beside_the_output_counts() {
    let quirky = endstop::provider::ALL
        .iter()
        .find_map(|provider| provider.wires().find(|wire| wire.quirks.reasoning_beside_output));
    let wire = quirky.unwrap();
    let usage = endstop::Usage { output: Some(100), reasoning: Some(50), ..Default::default() };
    let beside = with(plain(Reason::OutputLimit), |it| {
        it.provider = wire.provider.to_owned();
        it.dialect = wire.dialect.id.into();
        it.usage = usage;
    });
    let (machine, _) = told(start(), beside);
    assert_eq!(machine.spent().output_tokens, 150);
    let within = with(plain(Reason::OutputLimit), |it| {
        it.usage = usage;
    });
    assert_eq!(told(start(), within).0.spent().output_tokens, 100);
}

#[test]
fn time_never_goes_back() {
    let (machine, _) = Machine::begin(begin(Policy::default(), 1_000), 5_000);
    let (machine, _) = machine.step(TurnInput::Tick, 9_000);
    let (machine, _) = machine.step(TurnInput::Tick, 1);
    assert_eq!(machine.spent().elapsed_ms, 4_000);
    let (machine, action) = machine.step(TurnInput::Ended(&ended(plain(Reason::Cut))), 2);
    let Todo::Wait { ms } = action.todo else { panic!("{action:?}") };
    let (machine, action) = machine.step(TurnInput::Tick, 9_000 + ms - 1);
    assert_eq!(action.todo, Todo::Wait { ms: 1 });
    let (_, action) = machine.step(TurnInput::Tick, 9_000 + ms);
    assert_eq!(todo_word(&action.todo), "send first again");
}

#[test]
fn a_report_on_a_closed_turn() {
    let (machine, _) = told(start(), plain(Reason::Safety));
    let report = TerminationReport::new(
        plain(Reason::Safety),
        policy::DecisionContext::default(),
        &Policy::default(),
    )
    .closed(machine.outcome().cloned().unwrap());
    let text = report.to_string();
    assert!(text.contains("turn ended    safety_blocked"), "{text}");
    assert!(text.contains("turn          turn-1"), "{text}");
    let notice = "notice        The turn ended without an answer: the provider blocked the answer";
    assert!(text.contains(notice), "{text}");
    assert_eq!(serde_json::to_value(&report).unwrap()["outcome"]["terminated"], "safety_blocked");
}

#[test]
fn only_a_turn_that_was_continued_ends_a_continuation() {
    let names = |action: &Step| -> Vec<String> {
        let name = |event: &TurnEvent| {
            serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned()
        };
        action.events.iter().map(name).collect()
    };
    // Never continued: a complete answer, a blocked one, a retry, a repair, a pause, a cancelled
    // turn.
    let (_, action) = told(start(), plain(Reason::Complete));
    assert_eq!(names(&action), ["stop_reason_observed", "turn_ended"]);
    let (_, action) = told(start(), plain(Reason::Safety));
    assert_eq!(names(&action), ["stop_reason_observed", "turn_ended"]);
    for first in [plain(Reason::Cut), cut_call(), plain(Reason::Paused)] {
        let (machine, _) = told(start(), first);
        let (machine, _) = machine.step(TurnInput::Tick, 60_000);
        let (machine, _) = machine.step(TurnInput::Prepared, 60_000);
        let (_, action) = told(machine, plain(Reason::Complete));
        let events = names(&action);
        assert!(!events.contains(&"continuation_terminated".to_owned()), "{events:?}");
        assert_eq!(events.last().map(String::as_str), Some("turn_ended"));
    }
    let (_, action) = start().step(TurnInput::Cancel, 1);
    assert_eq!(names(&action), ["turn_ended"]);
    // Continued, and ended by a limit.
    let agent = AgentLimits { continuation_max_attempts: 1, ..AgentLimits::DEFAULT };
    let machine = Machine::begin(begin(Policy { agent, ..Policy::default() }, 1_000), 0).0;
    let (machine, _) = told(machine, plain(Reason::OutputLimit));
    let (machine, _) = machine.step(TurnInput::Prepared, 1);
    let (_, action) = machine.step(TurnInput::Ended(&fresh(plain(Reason::OutputLimit), 3)), 2);
    assert_eq!(names(&action), ["stop_reason_observed", "continuation_terminated", "turn_ended"]);
    let json = serde_json::to_value(&action.events).unwrap();
    for event in [&json[1], &json[2]] {
        assert_eq!(
            (&event["terminated"], &event["limit"]),
            (&"retry_limit".into(), &"attempts".into())
        );
    }
}

#[test]
fn what_is_wrong_with_a_tool_call_is_typed() {
    use endstop::tool_call::CallState;
    let issue = |ended: &EndedResponse| {
        let (_, action) = prepared(start().step(TurnInput::Ended(ended), 1));
        let found = action.events.iter().find_map(|event| {
            let TurnEvent::ToolPayloadRepair { issue, .. } = event else { return None };
            Some(*issue)
        });
        found.unwrap()
    };
    let with = |reason, change: fn(&mut Shown)| {
        let mut shown = Holds::Call.shown();
        change(&mut shown);
        ended(ending(reason, Confidence::High, shown))
    };
    let limit = Reason::OutputLimit;
    assert_eq!(issue(&ended(cut_call())), Issue::Unfinished);
    assert_eq!(issue(&with(limit, |shown| shown.malformed_tool_calls = 1)), Issue::Malformed);
    assert_eq!(issue(&with(limit, |shown| shown.nameless_tool_calls = 1)), Issue::NoName);
    let tools = Reason::ToolCall;
    assert_eq!(issue(&with(tools, |shown| shown.unfinished_tool_calls = 1)), Issue::Unfinished);
    assert_eq!(issue(&with(tools, |shown| shown.malformed_tool_calls = 1)), Issue::Malformed);
    assert_eq!(issue(&with(tools, |shown| shown.nameless_tool_calls = 1)), Issue::NoName);
    assert_eq!(issue(&ended(plain(Reason::MalformedToolCall))), Issue::Malformed);
    // The assembled calls give more detail.
    let refused =
        |refusal| EndedResponse { tools: Some(Allow::Refuse(refusal)), ..with(tools, |_| {}) };
    assert_eq!(issue(&refused(Refusal::Schema)), Issue::Schema);
    assert_eq!(issue(&refused(Refusal::Call(CallState::Malformed))), Issue::Malformed);
    assert_eq!(issue(&refused(Refusal::Call(CallState::Orphaned))), Issue::NoName);
    assert_eq!(issue(&refused(Refusal::Call(CallState::Parsable))), Issue::Unfinished);
    assert_eq!(issue(&refused(Refusal::TooMany)), Issue::Unfinished);
    for issue in [Issue::Unfinished, Issue::Malformed, Issue::NoName, Issue::Schema] {
        assert_eq!(serde_json::to_value(issue).unwrap(), issue.name());
    }
    // The event names the repaired problem, whether or not the repair returned a call.
    let malformed = with(tools, |shown| shown.malformed_tool_calls = 1);
    let (machine, _) = prepared(start().step(TurnInput::Ended(&malformed), 1));
    for reason in [Reason::ToolCall, Reason::Complete] {
        let holds = if reason == Reason::ToolCall { Holds::Call } else { Holds::Text };
        let (_, action) = told(machine.clone(), ending(reason, Confidence::High, holds.shown()));
        let json = serde_json::to_value(&action.events).unwrap();
        assert_eq!(json[1]["issue"], "malformed", "{json}");
        assert_eq!(json[1]["succeeded"], reason == Reason::ToolCall);
    }
}

#[test]
fn a_long_conversation_ends_the_turn_before_it_grows() {
    let agent = AgentLimits { conversation_max_messages: Some(6), ..AgentLimits::DEFAULT };
    let begin = TurnStart {
        conversation_messages: Some(3),
        ..begin(Policy { agent, ..Policy::default() }, 1_000)
    };
    // Each round of tools adds at least two messages: 3, 5, 7.
    let (outcome, sent) = drive(begin.clone(), |_, _| ended(call(Reason::ToolCall)));
    assert_eq!((sent.len(), outcome.terminated), (3, TurnEnd::ConversationLimit));
    let decision = outcome.decision.unwrap();
    assert_eq!(decision.action, policy::Action::Compact);
    assert_eq!(decision.metadata.conversation_messages, Some(7));
    assert!(outcome.notice.unwrap().contains("too many messages"));
    // The user's request is sent even if the conversation is too long.
    let long = TurnStart { conversation_messages: Some(99), ..begin };
    let (outcome, sent) = drive(long, |_, _| ended(plain(Reason::Complete)));
    assert_eq!((sent.len(), outcome.terminated), (1, TurnEnd::Completed));
}

#[cfg(feature = "toml")]
#[test]
fn a_turn_counts_its_money_by_the_prices_of_its_policy() {
    let policy = Policy::from_toml(
        "p.toml",
        "[agent]\nturn_max_cost = 0.025\n[prices]\nm = { input = 1, output = 10 }",
    )
    .unwrap();
    let (outcome, sent) = drive(begin(policy, 1_000), |_, number| {
        fresh(used(plain(Reason::OutputLimit), 100, 1_000), number.into())
    });
    assert_eq!(outcome.decision.unwrap().metadata.limit, Some(Limit::Cost));
    assert_eq!((sent.len(), outcome.spent.cost), (3, Money::from_micros(3 * 10_100)));
}

/// Returns limits that random turns reach quickly.
fn tight(dice: &mut Dice) -> TurnStart {
    let few = |dice: &mut Dice| dice.roll(4) as u32;
    let agent = AgentLimits {
        continuation_max_attempts: few(dice),
        continuation_max_total_completion_tokens: dice.pick(&[None, Some(500), Some(2_000)]),
        continuation_max_output_chars: dice.pick(&[100, 400, 120_000]),
        continuation_tool_repair_attempts: few(dice),
        continuation_max_raises: few(dice),
        retry_max_attempts: few(dice),
        cut_max_attempts: few(dice),
        resume_max_attempts: few(dice),
        poll_max_attempts: few(dice),
        turn_max_iterations: 1 + dice.roll(20) as u32,
        turn_max_total_tokens: dice.pick(&[1_000, 10_000, 20_000_000]),
        turn_max_time: Millis(dice.pick(&[5_000, 100_000, 1_800_000])),
        turn_max_cost: dice.pick(&[None, Some(Money::from_micros(20_000))]),
        conversation_max_messages: dice.pick(&[None, None, Some(5)]),
        conversation_max_tokens: dice.pick(&[None, None, Some(4_000)]),
        ..AgentLimits::DEFAULT
    };
    let base = Policy::preset(dice.pick(&Policy::PRESETS)).unwrap();
    let price =
        Price { input: Money::from_micros(1_000_000), output: Money::from_micros(9_000_000) };
    let budget = Budget {
        cap: dice.pick(&[None, Some(100), Some(1_000)]),
        cap_is_users: dice.roll(2) == 0,
        model_max: dice.pick(&[None, Some(4_000)]),
        window: dice.pick(&[None, Some(8_000)]),
        price: dice.pick(&[None, Some(price)]),
    };
    TurnStart {
        turn: format!("turn-{}", dice.roll(1_000)),
        policy: Policy { agent, ..base },
        provider: String::new(),
        budget,
        delivers: dice.roll(2) == 0,
        conversation_messages: Some(1),
        input_tokens: dice.pick(&[None, Some(50), Some(2_000)]),
    }
}

fn random_ended(dice: &mut Dice, action: &Step, budget: Budget) -> EndedResponse {
    let reason = dice.pick(&Reason::ALL);
    let confidence = dice.pick(&[Confidence::Low, Confidence::Medium, Confidence::High]);
    let mut ending = ending(reason, confidence, dice.pick(&HOLDS).shown());
    ending.over = dice.roll(20) > 0;
    if dice.roll(4) == 0 {
        ending.fault = failed(FaultKind::RateLimit).fault;
    }
    // Providers keep within the output limit.
    let cap = if let Todo::Send(next) = &action.todo { next.cap } else { None };
    let cap = cap.or(budget.cap).or(budget.model_max).unwrap_or(5_000);
    if dice.roll(3) > 0 {
        let output = dice.roll(cap + 1);
        ending = used(ending, dice.roll(3_000), output);
    }
    let mut ended = fresh(ending, dice.roll(3));
    ended.retry_after_ms = dice.pick(&[None, None, Some(70), Some(100_000)]);
    ended.tools = dice.pick(&[None, Some(Allow::Run)]);
    if dice.roll(3) == 0 {
        ended.decision = Some(Decision::new(dice.pick(&policy::Action::ALL), "so we like it"));
    }
    ended
}

/// Checks the invariants of every step.
fn check(
    machine: &Machine,
    action: &Step,
    agent: &AgentLimits,
    budget: &Budget,
    ended: Option<&EndedResponse>,
) {
    let spent = machine.spent();
    for (count, most) in [
        (spent.continuations, agent.continuation_max_attempts),
        (spent.raises, agent.continuation_max_raises),
        (spent.repairs, agent.continuation_tool_repair_attempts),
        (spent.retries, agent.retry_max_attempts),
        (spent.cuts, agent.cut_max_attempts),
        (spent.resumes, agent.resume_max_attempts),
        (spent.polls, agent.poll_max_attempts),
        (spent.iterations, agent.turn_max_iterations),
    ] {
        assert!(count <= most, "{count} of {most}: {machine:?}");
    }
    let sends = match &action.todo {
        Todo::Send(next) | Todo::Prepare(next) => Some(next),
        Todo::Wait { .. } | Todo::RunTools | Todo::Finish(_) | Todo::Ignored => None,
    };
    if let Some(next) = sends {
        // Every request is within the limits.
        assert!(spent.elapsed_ms < agent.turn_max_time.0);
        assert!(spent.input_tokens + spent.output_tokens < agent.turn_max_total_tokens);
        if let Some(most) = agent.turn_max_cost {
            assert!(spent.cost < most);
        }
        let left = agent.turn_max_total_tokens - spent.input_tokens - spent.output_tokens;
        if left <= MAX_CAP {
            let cap = next.cap.unwrap();
            assert!((MIN_CAP..=left).contains(&cap), "{next:?} of {left}");
        }
        if next.counter.is_some() {
            assert!(spent.output_chars < agent.continuation_max_output_chars);
            if let Some(most) = agent.completion_tokens(budget) {
                let left = most - spent.completion_tokens;
                assert!(left >= MIN_CAP && next.cap.unwrap() <= left, "{next:?} of {left}");
            }
        }
    }
    if action.todo == Todo::RunTools {
        let ending = &ended.unwrap().ending;
        assert!(ending.confidence >= Confidence::Medium && ending.over);
        assert!([Reason::ToolCall, Reason::Complete].contains(&ending.reason));
    }
    let ends: Vec<bool> = action
        .events
        .iter()
        .filter_map(|event| {
            let TurnEvent::TurnEnded { continued, .. } = event else { return None };
            Some(*continued)
        })
        .collect();
    assert_eq!(ends.len(), usize::from(matches!(action.todo, Todo::Finish(_))));
    let terminated =
        action.events.iter().any(|event| matches!(event, TurnEvent::ContinuationTerminated { .. }));
    assert_eq!(terminated, ends == [true], "{action:?}");
    assert_eq!(machine.is_over(), machine.outcome().is_some());
}

/// Runs a turn on random inputs, mostly those that apply to the state, until it ends.
fn random_turn(seed: u64, steps: usize, mut restore: impl FnMut(Machine) -> Machine) -> Machine {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..4 {
        dice.roll(2);
    }
    let begin = tight(&mut dice);
    let (agent, budget) = (begin.policy.agent, begin.budget);
    let mut now = dice.roll(1_000);
    let (mut machine, mut action) = Machine::begin(begin, now);
    let mut last = action.clone();
    let mut step = 0;
    while !machine.is_over() {
        assert!(step < steps + 500, "the turn never ends: {machine:?}");
        machine = restore(machine);
        now += dice.roll(400);
        let wild = step < steps && dice.roll(4) == 0;
        let ended = random_ended(&mut dice, &last, budget);
        let inputs = [
            TurnInput::Ended(&ended),
            TurnInput::Prepared,
            TurnInput::Unavailable,
            TurnInput::Tick,
            TurnInput::ToolsDone,
            TurnInput::ToolsLost,
            TurnInput::Cancel,
        ];
        let input = match machine.state() {
            _ if wild => inputs[dice.roll(inputs.len() as u64) as usize],
            StateName::ContinuePending => TurnInput::Prepared,
            StateName::ExecuteTools => TurnInput::ToolsDone,
            StateName::RetryPending => {
                now += 30_000;
                TurnInput::Tick
            }
            StateName::Request
            | StateName::EvaluateStop
            | StateName::Complete
            | StateName::RequestContinuation
            | StateName::AbortPartial
            | StateName::RepairToolCall
            | StateName::ResumePaused
            | StateName::Abort => TurnInput::Ended(&ended),
        };
        (machine, action) = machine.step(input, now);
        let ended = matches!(input, TurnInput::Ended(_)).then_some(&ended);
        check(&machine, &action, &agent, &budget, ended);
        if action.todo != Todo::Ignored {
            last = action;
        }
        step += 1;
    }
    machine
}

#[test]
fn random_inputs_never_pass_a_limit_and_always_end() {
    let mut ends = std::collections::BTreeMap::<&str, u32>::new();
    for seed in 0..120_000 {
        let machine = random_turn(seed, 40, |machine| machine);
        *ends.entry(machine.outcome().unwrap().terminated.name()).or_default() += 1;
    }
    println!("{ends:?}");
    assert!(ends.len() >= 15, "{ends:?}");
}

#[test]
fn a_turn_restored_at_every_step_ends_the_same() {
    for seed in 0..5_000 {
        let restored = random_turn(seed, 40, |machine| {
            let text = serde_json::to_string(&machine).unwrap();
            let back: Machine = serde_json::from_str(&text).unwrap();
            assert_eq!(back, machine);
            back
        });
        assert_eq!(restored, random_turn(seed, 40, |machine| machine));
    }
}
