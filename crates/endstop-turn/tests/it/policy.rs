//! Decisions: as a table, at every limit, and for endings that look alike.

use std::fmt::Write;

use endstop::tool_call::{Allow, CallState, Refusal};
use endstop::{Closed, Confidence, Ending, FaultKind, Reason, Shown, Timer, Unreachable, Usage};
use endstop_turn::policy::{
    Action, AgentLimits, Budget, Cause, Decision, DecisionContext, DecisionDetails, Limit, MIN_CAP,
    Money, Piece, Policy, Price, ResumeBy, Spent, Strategy, Suggested, TerminationReport, decide,
    hold,
};
use expect_test::expect_file;

use crate::endings::{HOLDS, Holds, ending, failed, plain, with};

const CONFIDENCES: [Confidence; 3] = [Confidence::High, Confidence::Medium, Confidence::Low];

/// Returns contexts with different budgets and spending, by name.
fn budgets(policy: &Policy) -> Vec<(&'static str, DecisionContext)> {
    let agent = policy.agent;
    let budget = Budget { cap: Some(1_000), model_max: Some(8_000), ..Budget::default() };
    let plenty = DecisionContext {
        budget,
        piece: Some(Piece::of("A text that is long enough to be called progress, whatever.")),
        ..DecisionContext::default()
    };
    let spent = |spent: Spent| DecisionContext { spent, ..plenty.clone() };
    let attempts = Spent {
        continuations: agent.continuation_max_attempts,
        raises: agent.continuation_max_raises,
        retries: agent.retry_max_attempts,
        cuts: agent.cut_max_attempts,
        repairs: agent.continuation_tool_repair_attempts,
        resumes: agent.resume_max_attempts,
        polls: agent.poll_max_attempts,
        ..Spent::default()
    };
    let tokens = agent.completion_tokens(&budget).unwrap();
    vec![
        ("plenty", plenty.clone()),
        (
            "user's cap",
            DecisionContext { budget: Budget { cap_is_users: true, ..budget }, ..plenty.clone() },
        ),
        ("delivered", DecisionContext { delivered: true, ..plenty.clone() }),
        ("no attempts", spent(attempts)),
        ("no tokens", spent(Spent { completion_tokens: tokens, ..Spent::default() })),
        ("no time", spent(Spent { elapsed_ms: agent.turn_max_time.0, ..Spent::default() })),
    ]
}

fn cell(decisions: &[Decision]) -> String {
    let words: Vec<String> = decisions
        .iter()
        .map(|decision| match decision.metadata.limit {
            Some(limit) => {
                let limit = serde_json::to_value(limit).unwrap();
                format!("{} ({})", decision.action.name(), limit.as_str().unwrap())
            }
            None => decision.action.name().to_owned(),
        })
        .collect();
    match words.as_slice() {
        [high, medium, low] if high == medium && medium == low => high.clone(),
        _ => words.join(" / "),
    }
}

#[test]
fn the_policy_matrix() {
    let mut text = String::from(
        "Decisions by reason, content and budget. One action if confidence makes no difference,\n\
         otherwise those for high / medium / low confidence. In brackets: the limit that was reached.\n",
    );
    for name in Policy::PRESETS {
        let policy = Policy::preset(name).unwrap();
        writeln!(text, "\n== {name}").unwrap();
        for reason in Reason::ALL {
            for holds in HOLDS {
                writeln!(text, "\n{} with {holds:?}", reason.name()).unwrap();
                let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
                for (budget, context) in budgets(&policy) {
                    let decisions = CONFIDENCES.map(|confidence| {
                        let ending = ending(reason, confidence, holds.shown());
                        let decision = decide(&ending, &context, &policy);
                        check(&ending, &context, &decision);
                        decision
                    });
                    let cell = cell(&decisions);
                    match lines.iter_mut().find(|(known, _)| *known == cell) {
                        Some((_, budgets)) => budgets.push(budget),
                        None => lines.push((cell, vec![budget])),
                    }
                }
                let all = budgets(&policy).len();
                for (cell, budgets) in lines {
                    let budgets = match budgets.len() {
                        some if some == all => "always".to_owned(),
                        _ => budgets.join(", "),
                    };
                    writeln!(text, "    {budgets}: {cell}").unwrap();
                }
            }
        }
    }
    expect_file!["snapshots/policy.txt"].assert_eq(&text);
}

/// Checks the invariants of every decision.
#[track_caller]
fn check(ending: &Ending, context: &DecisionContext, decision: &Decision) {
    let what = format!("{ending:?}\n{context:?}\n{decision:?}");
    assert_eq!(decision.should_continue, decision.action.continues_turn(), "{what}");
    let Budget { cap, cap_is_users, model_max, .. } = context.budget;
    let fixed = cap_is_users || context.cap.or(cap).zip(model_max).is_some_and(|(a, b)| a >= b);
    let continues = decision.action == Action::Continue;
    let usual = decision.action.suggested();
    let want = if continues && fixed { Some(Suggested::Retry) } else { usual };
    assert_eq!(decision.suggested, want, "{what}");
    assert!(!decision.sentence.is_empty(), "{what}");
    if decision.action == Action::RunTools {
        assert!(ending.confidence >= Confidence::Medium, "{what}");
        assert_eq!(ending.reason, Reason::ToolCall, "{what}");
        assert_eq!(ending.shown.unfinished_tool_calls, 0, "{what}");
    }
    if decision.action == Action::Continue {
        assert_eq!(ending.shown.tool_calls, 0, "an open tool call is never continued: {what}");
        assert_eq!(ending.reason, Reason::OutputLimit, "{what}");
        assert!(ending.shown.text, "zero output is never continued: {what}");
    }
    if let Some(limit) = decision.metadata.limit {
        assert_eq!(decision.action, limit.calls_for(), "{what}");
        assert!(decision.metadata.instead_of.is_some(), "{what}");
    }
    assert_eq!(decision.ending, Some(ending.reason), "{what}");
    says_no_more_than_it_does(decision);
    let text = serde_json::to_string(decision).unwrap();
    assert_eq!(&serde_json::from_str::<Decision>(&text).unwrap(), decision, "{text}");
}

/// Checks that a sentence announces only the action that the decision takes.
#[track_caller]
fn says_no_more_than_it_does(decision: &Decision) {
    let Decision { sentence, action, .. } = decision;
    for (words, own) in [
        ("continue it", Action::Continue),
        ("attempt ", Action::Continue),
        ("send the request again in", Action::Retry),
        ("send the request again with a limit", Action::RaiseBudget),
        ("ask for it again", Action::RepairToolCall),
        ("ask for one complete call", Action::RepairToolCall),
        ("run them", Action::RunTools),
        ("resume with", Action::Resume),
        ("poll again", Action::Resume),
        ("continue after the delivered text", Action::Resume),
        ("compact the conversation", Action::Compact),
        ("use the answer", Action::Stop),
    ] {
        // A limit says "no attempt to continue is left".
        let says = sentence.replace("no attempt ", "").contains(words);
        assert!(!says || *action == own, "{action:?}: {sentence}");
    }
    if let Some((at, rest)) =
        sentence.split_once("(attempt ").and_then(|(_, rest)| rest.split_once(" of "))
    {
        let most = rest.split(')').next().unwrap();
        assert!(at.parse::<u32>().unwrap() <= most.parse::<u32>().unwrap(), "{sentence}");
    }
}

#[test]
fn the_words_that_users_know() {
    let words: Vec<_> = Action::ALL.into_iter().map(Action::suggested).collect();
    assert_eq!(
        words,
        [
            Some(Suggested::Stop),
            None,
            Some(Suggested::IncreaseBudget),
            Some(Suggested::Retry),
            Some(Suggested::Retry),
            Some(Suggested::Retry),
            Some(Suggested::IncreaseBudget),
            Some(Suggested::Retry),
            Some(Suggested::ModifyPrompt),
            Some(Suggested::ModifyPrompt),
        ]
    );
    for action in Action::ALL {
        assert_eq!(serde_json::to_value(action).unwrap(), action.name());
        let new = Decision::new(action, "so");
        assert_eq!(
            (new.should_continue, new.suggested),
            (action.continues_turn(), action.suggested())
        );
    }
    assert_eq!(serde_json::to_value(Suggested::ModifyPrompt).unwrap(), "modify_prompt");
    assert_eq!(serde_json::to_value(Suggested::IncreaseBudget).unwrap(), "increase_budget");
}

fn context(cap: u64) -> DecisionContext {
    DecisionContext {
        budget: Budget { cap: Some(cap), ..Budget::default() },
        piece: Some(Piece::of("a piece of text that is long enough")),
        ..DecisionContext::default()
    }
}

#[test]
fn four_look_alikes_stay_apart() {
    let policy = Policy::default();
    let of = |ending: &Ending| {
        let decision = decide(ending, &context(1_000), &policy);
        (decision.action, decision.cause)
    };
    assert_eq!(of(&plain(Reason::OutputLimit)), (Action::Continue, Cause::OutputLimit));
    assert_eq!(of(&plain(Reason::ContextLimit)), (Action::Compact, Cause::ContextFull));
    let shown = ending(Reason::OutputLimit, Confidence::High, Holds::Reasoning.shown());
    assert_eq!(of(&shown), (Action::ChangePrompt, Cause::ReasoningExhausted));
    // Some wires only count the reasoning.
    let counted = ending(Reason::OutputLimit, Confidence::High, Shown::default());
    let usage = Usage { reasoning: Some(1_000), ..Usage::default() };
    let counted = with(counted, |it| {
        it.usage = usage;
    });
    assert_eq!(of(&counted), (Action::ChangePrompt, Cause::ReasoningExhausted));
    assert!(decide(&counted, &context(1_000), &policy).metadata.lower_effort);
    // This holds even for a policy that prefers to raise the limit.
    let decision = decide(&counted, &context(1_000), &Policy::persistent());
    assert_eq!(decision.action, Action::ChangePrompt);
    let none = with(counted, |it| {
        it.usage = Usage { reasoning: Some(0), ..Usage::default() };
    });
    let zero = DecisionContext { piece: Some(Piece::of("")), ..context(1_000) };
    let decision = decide(&none, &zero, &policy);
    assert_eq!((decision.action, decision.metadata.limit), (Action::Stop, Some(Limit::NoProgress)));
    assert_eq!(of(&plain(Reason::Cut)), (Action::Retry, Cause::CutStream));
    assert_eq!(of(&failed(FaultKind::Server)), (Action::Retry, Cause::ProviderFailed));
}

#[test]
fn a_cut_stream_whose_text_is_out_goes_on_from_there() {
    let policy = Policy::default();
    let delivered = DecisionContext { delivered: true, ..context(1_000) };
    for reason in [Reason::Cut, Reason::Failed, Reason::TimedOut] {
        let decision = decide(&plain(reason), &delivered, &policy);
        assert_eq!(decision.action, Action::Resume);
        assert_eq!(decision.metadata.resume_by, Some(ResumeBy::Text));
        assert!(!decision.metadata.discard);
        let again = decide(&plain(reason), &context(1_000), &policy);
        assert_eq!(again.action, Action::Retry);
        assert!(again.metadata.discard);
        let empty = ending(reason, Confidence::High, Shown::default());
        assert_eq!(decide(&empty, &delivered, &policy).action, Action::Retry);
        let call = ending(reason, Confidence::High, Holds::CutCall.shown());
        assert_eq!(decide(&call, &delivered, &policy).action, Action::RepairToolCall);
    }
}

#[test]
fn failures_are_told_apart_by_what_can_be_done() {
    let policy = Policy::default();
    let action = |ending: &Ending| {
        let decision = decide(ending, &context(1_000), &policy);
        (decision.action, decision.cause)
    };
    for kind in [FaultKind::Auth, FaultKind::Quota, FaultKind::NotFound, FaultKind::InvalidRequest]
    {
        assert_eq!(action(&failed(kind)), (Action::Stop, Cause::RequestRefused), "{kind:?}");
    }
    for kind in [
        FaultKind::Other,
        FaultKind::Overloaded,
        FaultKind::RateLimit,
        FaultKind::Server,
        FaultKind::BadPayload,
    ] {
        assert_eq!(action(&failed(kind)), (Action::Retry, Cause::ProviderFailed), "{kind:?}");
    }
    let unreachable = |why| {
        let closed = Closed::Unreachable(why);
        with(failed(FaultKind::Other), |it| {
            it.closed = closed;
            it.fault = None;
        })
    };
    for why in [Unreachable::Blocked, Unreachable::Tls] {
        assert_eq!(action(&unreachable(why)).0, Action::Stop, "{why:?}");
    }
    for why in [Unreachable::Refused, Unreachable::Dns, Unreachable::Proxy, Unreachable::Other] {
        assert_eq!(action(&unreachable(why)).0, Action::Retry, "{why:?}");
    }
    let timer = |timer| {
        with(plain(Reason::TimedOut), |it| {
            it.closed = Closed::TimedOut(timer);
        })
    };
    assert_eq!(action(&timer(Timer::Idle)).0, Action::Retry);
    assert_eq!(action(&timer(Timer::ClientWrite)).0, Action::Stop);
}

#[test]
fn a_response_that_is_not_over_is_polled() {
    let pending = with(ending(Reason::Unknown, Confidence::Low, Shown::default()), |it| {
        it.over = false;
    });
    let decision = decide(&pending, &DecisionContext::default(), &Policy::default());
    assert_eq!(decision.action, Action::Resume);
    assert_eq!(decision.metadata.resume_by, Some(ResumeBy::Poll));
    assert_eq!(decision.metadata.wait_ms, Some(2_000));
}

#[test]
fn tools_run_only_when_everything_vouches_for_them() {
    let policy = Policy::default();
    let call = |confidence| ending(Reason::ToolCall, confidence, Holds::Call.shown());
    let told = |tools| DecisionContext { tools, ..context(1_000) };
    let action = |ending: &Ending, tools| decide(ending, &told(tools), &policy).action;
    assert_eq!(action(&call(Confidence::High), None), Action::RunTools);
    assert_eq!(action(&call(Confidence::Medium), Some(Allow::Run)), Action::RunTools);
    assert_eq!(action(&call(Confidence::Low), Some(Allow::Run)), Action::Stop);
    assert_eq!(action(&call(Confidence::Low), None), Action::Stop);
    let open = Some(Allow::Refuse(Refusal::Call(CallState::Open)));
    assert_eq!(action(&call(Confidence::High), open), Action::RepairToolCall);
    assert_eq!(action(&call(Confidence::High), Some(Allow::Refuse(Refusal::Unsure))), Action::Stop);
    let cut = ending(Reason::ToolCall, Confidence::High, Holds::CutCall.shown());
    assert_eq!(action(&cut, Some(Allow::Run)), Action::RepairToolCall);
    // Tool calls written as text.
    assert_eq!(action(&plain(Reason::Complete), Some(Allow::Run)), Action::RunTools);
    let unsure = ending(Reason::Complete, Confidence::Low, Holds::Text.shown());
    assert_eq!(action(&unsure, Some(Allow::Run)), Action::Stop);
    // A custom strategy cannot run them either.
    let run = Decision::new(Action::RunTools, "because we like to");
    for refused in [call(Confidence::Low), cut, plain(Reason::OutputLimit), plain(Reason::Cut)] {
        let held = hold(run.clone(), &refused, &told(None), &policy);
        assert_eq!(held.action, Action::Stop, "{refused:?}");
    }
    assert_eq!(hold(run, &call(Confidence::High), &told(None), &policy).action, Action::RunTools);
}

#[test]
fn raising_needs_room_and_a_cap_that_is_not_the_users() {
    let policy = Policy::persistent();
    let limit = plain(Reason::OutputLimit);
    let with = |cap, cap_is_users, model_max| DecisionContext {
        budget: Budget { cap, cap_is_users, model_max, ..Budget::default() },
        ..context(1)
    };
    let of = |context: &DecisionContext| {
        let decision = decide(&limit, context, &policy);
        (decision.action, decision.metadata.next_cap, decision.metadata.discard)
    };
    let raised = (Action::RaiseBudget, Some(2_000), true);
    assert_eq!(of(&with(Some(1_000), false, Some(8_000))), raised);
    assert_eq!(of(&with(Some(1_000), false, Some(1_500))).1, Some(1_500));
    let not = (Action::Continue, Some(1_000), false);
    // The sentence says that the limit is not raised, and why.
    let why = |context: &DecisionContext| {
        let decision = decide(&limit, context, &policy);
        assert_eq!(decision.metadata.instead_of, Some(Action::RaiseBudget));
        assert_eq!(decision.metadata.limit, None);
        decision.sentence
    };
    for (context, because) in [
        (with(Some(1_000), true, Some(8_000)), "the user set it"),
        (with(Some(1_000), false, None), "the model's maximum is not known"),
        (with(None, false, Some(8_000)), "the request's limit is not known"),
        (with(Some(1_000), false, Some(1_000)), "the model or the budget allows no more tokens"),
    ] {
        assert_eq!(
            why(&context),
            format!(
                "the answer stopped at the output limit; the limit is not raised, because {because}; \
                 continue it (attempt 1 of 8)"
            )
        );
    }
    assert_eq!(of(&with(Some(1_000), true, Some(8_000))), not);
    assert_eq!(of(&with(Some(1_000), false, None)), not);
    assert_eq!(of(&with(Some(1_000), false, Some(1_000))), not);
    assert_eq!(of(&with(None, false, None)), (Action::Continue, None, false));
    let delivered = DecisionContext { delivered: true, ..with(Some(1_000), false, Some(8_000)) };
    assert_eq!(of(&delivered), not);
    assert!(why(&delivered).contains("the text has been delivered"));
    let once = DecisionContext {
        spent: Spent { continuations: 1, raises: 1, ..Spent::default() },
        cap: Some(2_000),
        ..with(Some(1_000), false, Some(8_000))
    };
    assert_eq!(of(&once), (Action::Continue, Some(2_000), false));
    assert!(
        why(&once).contains("the output limit cannot be raised again in this turn"),
        "{}",
        why(&once)
    );
    // The default policy continues. It raises the limit only for several choices.
    let room = with(Some(1_000), false, Some(8_000));
    assert_eq!(decide(&limit, &room, &Policy::default()).action, Action::Continue);
    let two = super::endings::with(limit, |it| {
        it.choices = vec![it.choices[0].clone(), it.choices[0].clone()];
    });
    assert_eq!(decide(&two, &room, &Policy::default()).action, Action::RaiseBudget);
    let fixed = with(Some(1_000), true, Some(8_000));
    assert_eq!(decide(&two, &fixed, &Policy::default()).action, Action::Stop);
}

#[test]
fn a_repair_asks_with_a_higher_cap_where_it_may() {
    let call = ending(Reason::OutputLimit, Confidence::High, Holds::CutCall.shown());
    let with = |cap, cap_is_users, model_max| {
        let budget = Budget { cap, cap_is_users, model_max, ..Budget::default() };
        let decision = decide(
            &call,
            &DecisionContext { budget, ..DecisionContext::default() },
            &Policy::default(),
        );
        assert_eq!(decision.action, Action::RepairToolCall);
        decision.metadata.next_cap
    };
    assert_eq!(with(Some(1_000), false, Some(8_000)), Some(2_000));
    assert_eq!(with(Some(1_000), false, Some(1_200)), Some(1_200));
    assert_eq!(with(Some(1_000), true, Some(8_000)), Some(1_000));
    assert_eq!(with(Some(1_000), false, None), Some(1_000));
    assert_eq!(with(None, false, None), None);
}

#[test]
fn a_context_window_that_is_nearly_full_is_compacted() {
    let with = |window, used| {
        let budget = Budget { cap: Some(1_000), window, ..Budget::default() };
        let context = DecisionContext { budget, conversation_tokens: used, ..context(1) };
        decide(&plain(Reason::OutputLimit), &context, &Policy::default()).action
    };
    assert_eq!(with(Some(10_000), Some(9_488)), Action::Continue);
    assert_eq!(with(Some(10_000), Some(9_489)), Action::Compact);
    assert_eq!(with(None, Some(9_489)), Action::Continue);
    assert_eq!(with(Some(10_000), None), Action::Continue);
}

/// Checks the decision one below a limit, at the limit, and one above it.
#[track_caller]
fn at_limit(
    ending: &Ending,
    limits: AgentLimits,
    limit: Limit,
    action: Action,
    set: impl Fn(&mut DecisionContext, i64),
) {
    let policy = Policy { agent: limits, ..Policy::default() };
    for (offset, want) in [(-1, None), (0, Some(limit)), (1, Some(limit))] {
        let mut context = context(1_000);
        set(&mut context, offset);
        let decision = decide(ending, &context, &policy);
        let what = format!("{limit:?} at {offset}: {decision:?}");
        assert_eq!(decision.metadata.limit, want, "{what}");
        says_no_more_than_it_does(&decision);
        let wanted = want.map_or(action, Limit::calls_for);
        assert_eq!(decision.action, wanted, "{what}");
        assert_eq!(decision.metadata.instead_of, want.map(|_| action), "{what}");
    }
}

fn plus(limit: u64, offset: i64) -> u64 {
    limit.checked_add_signed(offset).unwrap()
}

#[test]
fn every_limit_below_at_and_above() {
    let limits = AgentLimits {
        continuation_max_attempts: 3,
        continuation_tool_repair_attempts: 2,
        retry_max_attempts: 4,
        cut_max_attempts: 5,
        resume_max_attempts: 6,
        poll_max_attempts: 7,
        turn_max_cost: Some(Money::from_micros(5_000)),
        ..AgentLimits::DEFAULT
    };
    let cut_off = plain(Reason::OutputLimit);
    let call = ending(Reason::OutputLimit, Confidence::High, Holds::CutCall.shown());
    let tools = ending(Reason::ToolCall, Confidence::High, Holds::Call.shown());
    let pending = with(plain(Reason::Unknown), |it| {
        it.over = false;
    });
    let count = |offset: i64, limit: u32| plus(u64::from(limit), offset) as u32;
    at_limit(&cut_off, limits, Limit::Attempts, Action::Continue, |context, offset| {
        context.spent.continuations = count(offset, 3);
    });
    at_limit(&call, limits, Limit::Repairs, Action::RepairToolCall, |context, offset| {
        context.spent.repairs = count(offset, 2);
    });
    at_limit(&plain(Reason::TimedOut), limits, Limit::Retries, Action::Retry, |context, offset| {
        context.spent.retries = count(offset, 4);
    });
    at_limit(&plain(Reason::Cut), limits, Limit::Cuts, Action::Retry, |context, offset| {
        context.spent.cuts = count(offset, 5);
        // Failures have their own counter.
        context.spent.retries = 99;
    });
    at_limit(&plain(Reason::Paused), limits, Limit::Resumes, Action::Resume, |context, offset| {
        context.spent.resumes = count(offset, 6);
    });
    at_limit(&pending, limits, Limit::Polls, Action::Resume, |context, offset| {
        context.spent.polls = count(offset, 7);
    });
    for (ending, action) in [
        (&cut_off, Action::Continue),
        (&call, Action::RepairToolCall),
        (&plain(Reason::Cut), Action::Retry),
        (&plain(Reason::Failed), Action::Retry),
        (&plain(Reason::Paused), Action::Resume),
    ] {
        // Four times the first output limit, less an amount too small for a request.
        at_limit(ending, limits, Limit::CompletionTokens, action, |context, offset| {
            context.spent.completion_tokens = plus(4_000 - MIN_CAP + 1, offset);
        });
        at_limit(ending, limits, Limit::OutputChars, action, |context, offset| {
            context.spent.output_chars = plus(120_000, offset);
        });
    }
    // The turn's limits also apply to actions that are not recovery.
    for (ending, action) in [
        (&cut_off, Action::Continue),
        (&call, Action::RepairToolCall),
        (&plain(Reason::Paused), Action::Resume),
        (&tools, Action::RunTools),
    ] {
        at_limit(ending, limits, Limit::Iterations, action, |context, offset| {
            context.spent.iterations = count(offset, 200);
        });
        at_limit(ending, limits, Limit::TotalTokens, action, |context, offset| {
            let next = context.conversation_tokens.unwrap_or(0);
            context.spent.input_tokens = plus(19_999_000 - next - MIN_CAP + 1, offset);
            context.spent.output_tokens = 1_000;
        });
        at_limit(ending, limits, Limit::WallTime, action, |context, offset| {
            context.spent.elapsed_ms = plus(1_800_000, offset);
        });
        at_limit(ending, limits, Limit::Cost, action, |context, offset| {
            context.spent.cost = Money::from_micros(plus(5_000, offset));
        });
    }
    let long = AgentLimits {
        conversation_max_messages: Some(40),
        conversation_max_tokens: Some(9_000),
        ..limits
    };
    for (ending, action) in [
        (&cut_off, Action::Continue),
        (&call, Action::RepairToolCall),
        (&plain(Reason::Paused), Action::Resume),
        (&tools, Action::RunTools),
    ] {
        at_limit(ending, long, Limit::ConversationMessages, action, |context, offset| {
            context.conversation_messages = Some(count(offset, 40));
        });
        at_limit(ending, long, Limit::ConversationTokens, action, |context, offset| {
            context.conversation_tokens = Some(plus(9_000, offset));
        });
    }
    let many = DecisionContext {
        spent: Spent { completion_tokens: u64::MAX, output_chars: u64::MAX, ..Spent::default() },
        ..context(1_000)
    };
    assert_eq!(decide(&tools, &many, &Policy::default()).action, Action::RunTools);
}

#[test]
fn the_token_limit_is_given_or_four_times_the_first_cap() {
    let limits = AgentLimits::DEFAULT;
    let budget = |cap, model_max| Budget { cap, model_max, ..Budget::default() };
    assert_eq!(limits.completion_tokens(&budget(Some(1_000), Some(9_000))), Some(4_000));
    assert_eq!(limits.completion_tokens(&budget(None, Some(9_000))), Some(36_000));
    assert_eq!(limits.completion_tokens(&budget(None, None)), None);
    assert_eq!(limits.completion_tokens(&budget(Some(u64::MAX), None)), Some(u64::MAX));
    let given = AgentLimits { continuation_max_total_completion_tokens: Some(77), ..limits };
    assert_eq!(given.completion_tokens(&budget(Some(1_000), None)), Some(77));
}

#[test]
fn the_next_cap_never_passes_what_is_left() {
    let next = |spent: u64, model_max: Option<u64>| {
        let context = DecisionContext {
            budget: Budget { cap: Some(1_000), model_max, ..Budget::default() },
            spent: Spent { completion_tokens: spent, ..Spent::default() },
            ..context(1)
        };
        decide(&plain(Reason::OutputLimit), &context, &Policy::default()).metadata.next_cap
    };
    assert_eq!(next(1_000, None), Some(1_000));
    assert_eq!(next(3_000, None), Some(1_000));
    assert_eq!(next(3_001, None), Some(999));
    assert_eq!(next(3_984, None), Some(16));
    assert_eq!(next(3_985, None), None);
    assert_eq!(next(1_000, Some(800)), Some(800));
}

#[test]
fn money_is_counted_before_it_is_spent() {
    // 1 USD per million input tokens, 10 USD per million output tokens.
    let price =
        Price { input: Money::from_micros(1_000_000), output: Money::from_micros(10_000_000) };
    assert_eq!(price.of(1_000, 100), Money::from_micros(2_000));
    assert_eq!(price.of(1, 0), Money::from_micros(1));
    let agent =
        AgentLimits { turn_max_cost: Some(Money::from_micros(10_000)), ..AgentLimits::DEFAULT };
    let policy = Policy { agent, ..Policy::default() };
    let of = |spent: u64, conversation: u64| {
        let context = DecisionContext {
            budget: Budget { cap: Some(1_000), price: Some(price), ..Budget::default() },
            conversation_tokens: Some(conversation),
            spent: Spent { cost: Money::from_micros(spent), ..Spent::default() },
            ..context(1)
        };
        let decision = decide(&plain(Reason::OutputLimit), &context, &policy);
        (decision.metadata.next_cap, decision.metadata.limit)
    };
    assert_eq!(of(0, 0), (Some(1_000), None));
    // 10,000 less 4,000 spent less 1,000 for the input pays for 500 tokens.
    assert_eq!(of(4_000, 1_000), (Some(500), None));
    // 160 pays for sixteen tokens, 159 does not.
    assert_eq!(of(8_840, 1_000), (Some(16), None));
    assert_eq!(of(8_841, 1_000), (None, Some(Limit::Cost)));
    assert_eq!(of(9_000, 1_000), (None, Some(Limit::Cost)));
    assert_eq!(of(10_000, 0), (None, Some(Limit::Cost)));
    let free = Price { output: Money::default(), ..price };
    let context = DecisionContext {
        budget: Budget { price: Some(free), ..Budget::default() },
        conversation_tokens: Some(20_000),
        ..context(1)
    };
    assert_eq!(agent.affordable(&context), Some(0), "the input alone costs too much");
    let context = DecisionContext { conversation_tokens: Some(1), ..context };
    assert_eq!(agent.affordable(&context), None);
}

#[test]
fn money_survives_being_written() {
    for micros in [0, 1, 999_999, 500_000, 123_456_789_012, 1 << 53, u64::MAX] {
        let money = Money::from_micros(micros);
        let text = serde_json::to_string(&money).unwrap();
        assert_eq!(serde_json::from_str::<Money>(&text).unwrap(), money, "{text}");
    }
    assert_eq!(serde_json::to_string(&Money::from_micros(500_000)).unwrap(), "0.5");
    assert!(serde_json::from_str::<Money>("-0.1").is_err());
    assert_eq!(Money::MAX.plus(Money::MAX), Money::MAX);
    assert_eq!(Money::from_micros(3).less(Money::from_micros(5)), Money::default());
    assert_eq!(Money::from_micros(3).plus(Money::from_micros(5)).micros(), 8);
}

#[test]
fn progress_below_at_and_above() {
    let policy = Policy::default();
    let limit = |text: &str, trimmed, continuations, seen: &[u64]| {
        let piece = Some(Piece::of(text).trimmed(trimmed));
        let spent = Spent { continuations, ..Spent::default() };
        let context = DecisionContext { piece, spent, seen: seen.to_vec(), ..context(1_000) };
        decide(&plain(Reason::OutputLimit), &context, &policy).metadata.limit
    };
    // A first answer needs one character, a continuation eight new characters.
    assert_eq!(limit("1", 0, 0, &[]), None);
    assert_eq!(limit("1", 1, 0, &[]), Some(Limit::NoProgress));
    assert_eq!(limit("", 0, 0, &[]), Some(Limit::NoProgress));
    assert_eq!(limit("1234567", 0, 1, &[]), Some(Limit::NoProgress));
    assert_eq!(limit("12345678", 0, 1, &[]), None);
    assert_eq!(limit("123456789", 0, 1, &[]), None);
    // An overlap loop: only seven characters are new.
    assert_eq!(limit("12345678901234567890", 13, 1, &[]), Some(Limit::NoProgress));
    assert_eq!(limit("12345678901234567890", 12, 1, &[]), None);
    let same = Piece::of("12345678").hash;
    assert_eq!(limit("12345678", 0, 1, &[same]), Some(Limit::Repetition));
    assert_eq!(limit("12345678", 0, 1, &[1, same, 2]), Some(Limit::Repetition));
    assert_eq!(limit(&"over and over ".repeat(50), 0, 0, &[]), Some(Limit::Repetition));
    // A response after a cut also counts as a continuation.
    let context = DecisionContext {
        piece: Some(Piece::of("1234567")),
        spent: Spent { cuts: 1, ..Spent::default() },
        delivered: true,
        ..context(1_000)
    };
    let decision = decide(&plain(Reason::Cut), &context, &policy);
    assert_eq!(decision.metadata.limit, Some(Limit::NoProgress));
    // If the text was not kept, the shown facts decide.
    let unseen = DecisionContext { piece: None, ..context.clone() };
    assert_eq!(decide(&plain(Reason::OutputLimit), &unseen, &policy).action, Action::Continue);
    // A strategy cannot continue without progress.
    let nothing = DecisionContext { piece: Some(Piece::of("")), ..context };
    for action in [Action::Continue, Action::Resume] {
        let held = hold(Decision::new(action, "go on"), &plain(Reason::Cut), &nothing, &policy);
        assert_eq!(held.metadata.limit, Some(Limit::NoProgress), "{action:?}");
    }
}

#[test]
fn waits_double_up_to_the_longest_and_differ_by_turn() {
    let policy = Policy {
        agent: AgentLimits { retry_max_attempts: 99, ..AgentLimits::DEFAULT },
        ..Policy::default()
    };
    let wait = |retries, seed, retry_after_ms| {
        let spent = Spent { retries, ..Spent::default() };
        let context = DecisionContext { spent, seed, retry_after_ms, ..context(1_000) };
        let decision = decide(&failed(FaultKind::RateLimit), &context, &policy);
        (decision.metadata.wait_ms, decision.metadata.limit)
    };
    for seed in 0..100 {
        for (retries, longest) in
            [(0, 500), (1, 1_000), (2, 2_000), (5, 16_000), (6, 30_000), (63, 30_000), (64, 30_000)]
        {
            let ms = wait(retries, seed, None).0.unwrap();
            assert!((longest - longest / 4..=longest).contains(&ms), "{retries}: {ms}");
        }
    }
    let different: std::collections::BTreeSet<_> =
        (0..100).map(|seed| wait(3, seed, None).0).collect();
    assert!(different.len() > 50, "{}", different.len());
    assert_eq!(wait(0, 1, Some(59_999)), (Some(59_999), None));
    assert_eq!(wait(0, 1, Some(60_000)), (Some(60_000), None));
    assert_eq!(wait(0, 1, Some(60_001)), (None, Some(Limit::RetryAfter)));
    // A wait that ends after the turn's time limit is not started.
    let late = DecisionContext {
        spent: Spent { elapsed_ms: 1_740_000, ..Spent::default() },
        retry_after_ms: Some(59_999),
        ..context(1_000)
    };
    assert_eq!(decide(&failed(FaultKind::Server), &late, &policy).action, Action::Retry);
    let late = DecisionContext { retry_after_ms: Some(60_000), ..late };
    let decision = decide(&failed(FaultKind::Server), &late, &policy);
    assert_eq!(decision.metadata.limit, Some(Limit::WallTime));
}

#[cfg(feature = "toml")]
#[test]
fn rules_and_overrides_hold_where_they_say() {
    let policy = Policy::from_toml(
        "p.toml",
        "[rules.output_limit]\nmin_confidence = \"high\"\nmax_attempts = 1\n\
         [rules.unknown]\naction = \"retry\"\n\
         [rules.malformed_tool_call]\naction = \"retry\"\n\
         [rules.tool_call]\naction = \"stop\"\n\
         [rules.refused]\naction = \"stop\"\n\
         [providers.acme.rules.paused]\naction = \"stop\"\n\
         [providers.acme.agent]\nretry_empty = false",
    )
    .unwrap();
    let of = |ending: &Ending| decide(ending, &context(1_000), &policy);
    assert_eq!(of(&plain(Reason::OutputLimit)).action, Action::Continue);
    let medium = ending(Reason::OutputLimit, Confidence::Medium, Holds::Text.shown());
    assert_eq!(of(&medium).action, Action::Stop);
    assert_eq!(of(&medium).metadata.instead_of, Some(Action::Continue));
    assert!(
        of(&medium).sentence.contains("requires at least high confidence"),
        "{}",
        of(&medium).sentence
    );
    let once =
        DecisionContext { spent: Spent { continuations: 1, ..Spent::default() }, ..context(1_000) };
    let decision = decide(&plain(Reason::OutputLimit), &once, &policy);
    assert_eq!(decision.metadata.limit, Some(Limit::Attempts));
    assert_eq!(of(&plain(Reason::Unknown)).action, Action::Retry);
    assert_eq!(of(&plain(Reason::MalformedToolCall)).action, Action::Retry);
    let call = of(&ending(Reason::ToolCall, Confidence::High, Holds::Call.shown()));
    assert_eq!((call.action, call.cause), (Action::Stop, Cause::ToolCalls));
    let refused = of(&plain(Reason::Refused));
    assert_eq!((refused.action, refused.cause), (Action::Stop, Cause::Blocked));
    assert_eq!(of(&plain(Reason::Paused)).action, Action::Stop);
    let elsewhere = with(plain(Reason::Paused), |it| {
        it.provider = "other".to_owned();
    });
    assert_eq!(of(&elsewhere).action, Action::Resume);
    let empty = ending(Reason::Complete, Confidence::High, Shown::default());
    assert_eq!(of(&empty).action, Action::Stop);
    let elsewhere = with(empty, |it| {
        it.provider = "other".to_owned();
    });
    assert_eq!(of(&elsewhere).action, Action::Retry);
}

#[test]
fn a_rule_stops_every_reason_that_it_may() {
    for reason in Reason::ALL {
        let change = endstop_turn::policy::RuleChange {
            action: Some(Action::Stop),
            ..endstop_turn::policy::RuleChange::default()
        };
        let policy = Policy { rules: [(reason, change)].into(), ..Policy::default() };
        let decision = decide(&plain(reason), &context(1_000), &policy);
        assert_eq!(decision.action, Action::Stop, "{reason:?}");
    }
}

#[test]
fn a_strategy_can_be_a_closure_and_is_held_to_the_limits() {
    let stubborn = |_: &Ending, _: &DecisionContext| Decision::new(Action::Retry, "again");
    let decision = stubborn.decide(&plain(Reason::Complete), &DecisionContext::default());
    let held = |context: &DecisionContext| {
        hold(decision.clone(), &plain(Reason::Failed), context, &Policy::default())
    };
    let first = held(&context(1_000));
    assert_eq!(first.action, Action::Retry);
    assert!(first.metadata.wait_ms.is_some() && first.metadata.discard);
    assert_eq!(first.cause, Cause::ProviderFailed);
    let spent =
        DecisionContext { spent: Spent { retries: 2, ..Spent::default() }, ..context(1_000) };
    assert_eq!(held(&spent).metadata.limit, Some(Limit::Retries));
    assert_eq!(
        Policy::default().decide(&plain(Reason::Complete), &DecisionContext::default()).action,
        Action::Stop
    );
    // The other fields of a strategy's decision are kept.
    let told = Decision {
        cause: Cause::Blocked,
        metadata: DecisionDetails {
            wait_ms: Some(7),
            next_cap: Some(50),
            lower_effort: true,
            ..DecisionDetails::default()
        },
        ..decision.clone()
    };
    let held = hold(told, &plain(Reason::Failed), &context(1_000), &Policy::default());
    let DecisionDetails { wait_ms, next_cap, lower_effort, .. } = held.metadata;
    assert_eq!(
        (held.cause, wait_ms, next_cap, lower_effort),
        (Cause::Blocked, Some(7), Some(50), true)
    );
    let paused = hold(
        Decision::new(Action::Resume, "on"),
        &plain(Reason::Paused),
        &context(1_000),
        &Policy::default(),
    );
    assert_eq!(paused.metadata.resume_by, Some(ResumeBy::Protocol));
    let pending = with(plain(Reason::Unknown), |it| {
        it.over = false;
    });
    let polled =
        hold(Decision::new(Action::Resume, "on"), &pending, &context(1_000), &Policy::default());
    assert_eq!(polled.metadata.resume_by, Some(ResumeBy::Poll));
}

#[test]
fn a_policy_survives_being_written() {
    for name in Policy::PRESETS {
        let policy = Policy::preset(name).unwrap();
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    }
}

#[test]
fn the_report_says_everything_and_no_text() {
    let ending = plain(Reason::OutputLimit);
    let context = DecisionContext { conversation_messages: Some(12), ..context(1_000) };
    let report = TerminationReport::new(ending, context, &Policy::default());
    let text = report.to_string();
    for says in [
        "output limit (high confidence): the provider said `output_limit`",
        "finish reason `output_limit` in `finish_reason`",
        "what to do    continue: the answer stopped at the output limit; continue it (attempt 1 of 3)",
        "policy        default",
        "next limit    1000 tokens",
        "3 attempts, 1 repair, 4000 tokens, 120000 characters, 1800 s",
        "conversation  12 messages, an unknown number of tokens",
        "finish_reason length, termination token_limit_reached",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["decision"]["action"], "continue");
    assert_eq!(json["decision"]["suggested_action"], "increase_budget");
    assert_eq!(json["decision"]["metadata"]["left"]["attempts"], 3);
    assert_eq!(json["signal"]["reason"], "token_limit_reached");
    assert_eq!(json["ending"]["reason"], "output_limit");
    assert!(!json.to_string().contains("long enough"));
}

#[test]
fn a_decision_is_exchanged_in_the_words_that_were_asked_for() {
    let cut_off = plain(Reason::OutputLimit);
    let conversation = DecisionContext {
        conversation_messages: Some(7),
        conversation_tokens: Some(900),
        ..context(1_000)
    };
    let decision = decide(&cut_off, &conversation, &Policy::default());
    let json = serde_json::to_value(&decision).unwrap();
    let keys =
        ["should_continue", "reason", "suggested_action", "metadata", "action", "cause", "ending"];
    let text = serde_json::to_string(&decision).unwrap();
    let places = keys.map(|key| text.find(&format!("\"{key}\":")).unwrap());
    assert!(places.is_sorted() && json.as_object().unwrap().len() == keys.len(), "{text}");
    assert_eq!(json["should_continue"], true);
    assert_eq!(
        json["reason"],
        "the answer stopped at the output limit; continue it (attempt 1 of 3)"
    );
    assert_eq!(json["suggested_action"], "increase_budget");
    assert_eq!(json["metadata"]["conversation_messages"], 7);
    assert_eq!(json["metadata"]["conversation_tokens"], 900);
    assert_eq!(
        (&json["action"], &json["cause"], &json["ending"]),
        (&"continue".into(), &"output_limit".into(), &"output_limit".into())
    );
    let tools = ending(Reason::ToolCall, Confidence::High, Holds::Call.shown());
    let json = serde_json::to_value(decide(&tools, &context(9), &Policy::default())).unwrap();
    assert!(json.as_object().unwrap()["suggested_action"].is_null());
    assert!(json["metadata"].as_object().unwrap()["conversation_tokens"].is_null());
    // The smallest JSON that can be deserialized.
    let least =
        r#"{"should_continue":false,"reason":"enough","suggested_action":"stop","action":"stop"}"#;
    let read: Decision = serde_json::from_str(least).unwrap();
    assert_eq!(read, Decision::new(Action::Stop, "enough"));
}

#[test]
fn a_conversation_that_is_too_long_is_compacted_and_not_continued() {
    let agent = AgentLimits { conversation_max_messages: Some(10), ..AgentLimits::DEFAULT };
    let policy = Policy { agent, ..Policy::default() };
    let long = DecisionContext { conversation_messages: Some(12), ..context(1_000) };
    let decision = decide(&plain(Reason::OutputLimit), &long, &policy);
    assert_eq!((decision.action, decision.should_continue), (Action::Compact, false));
    assert_eq!(decision.suggested, Some(Suggested::ModifyPrompt));
    assert_eq!(decision.metadata.limit, Some(Limit::ConversationMessages));
    assert_eq!(decision.metadata.instead_of, Some(Action::Continue));
    assert_eq!(decision.metadata.conversation_messages, Some(12));
    assert_eq!(
        decision.sentence,
        "the answer stopped at the output limit; it is not continued, because the conversation has \
         too many messages (conversation_max_messages); shorten or compact the conversation"
    );
    // A complete answer still stops, and a retry does not lengthen the conversation.
    assert_eq!(decide(&plain(Reason::Complete), &long, &policy).action, Action::Stop);
    assert_eq!(decide(&plain(Reason::Failed), &long, &policy).action, Action::Retry);
    let pending = with(plain(Reason::Unknown), |it| {
        it.over = false;
    });
    assert_eq!(decide(&pending, &long, &policy).action, Action::Resume);
    // The limit also applies to a strategy.
    let on = Decision::new(Action::Continue, "go on");
    let held = hold(on, &plain(Reason::OutputLimit), &long, &policy);
    assert_eq!(held.action, Action::Compact);
    assert!(!held.sentence.contains("go on"), "{}", held.sentence);
    // The limit is off by default.
    let endless = DecisionContext {
        conversation_messages: Some(u32::MAX),
        conversation_tokens: Some(10_000_000),
        ..context(1_000)
    };
    let decision = decide(&plain(Reason::OutputLimit), &endless, &Policy::default());
    assert_eq!(decision.action, Action::Continue);
}

#[cfg(feature = "toml")]
#[test]
fn prices_of_a_file_hold_the_turn_to_its_money() {
    let policy = Policy::from_toml(
        "p.toml",
        "[agent]\nturn_max_cost = 0.01\n[prices]\n\"acme/m\" = { input = 1, output = 10 }",
    )
    .unwrap();
    let cut_off = plain(Reason::OutputLimit);
    let spent = |micros| DecisionContext {
        conversation_tokens: Some(1_000),
        spent: Spent { cost: Money::from_micros(micros), ..Spent::default() },
        ..context(1_000)
    };
    let decision = decide(&cut_off, &spent(4_000), &policy);
    // 10,000 less 4,000 spent less 1,000 for the input pays for 500 tokens.
    assert_eq!((decision.action, decision.metadata.next_cap), (Action::Continue, Some(500)));
    assert_eq!(decide(&cut_off, &spent(9_000), &policy).metadata.limit, Some(Limit::Cost));
    // Another model has no price, and a price in the context takes precedence.
    let other = with(cut_off.clone(), |it| {
        it.model = Some("n".to_owned());
    });
    assert_eq!(decide(&other, &spent(9_000), &policy).action, Action::Continue);
    let mut free = spent(9_000);
    free.budget.price = Some(Price::default());
    assert_eq!(decide(&cut_off, &free, &policy).action, Action::Continue);
    // The limits on a strategy use the price too.
    let held = hold(Decision::new(Action::Continue, "on"), &cut_off, &spent(9_000), &policy);
    assert_eq!(held.metadata.limit, Some(Limit::Cost));
}
