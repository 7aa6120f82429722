//! The table from endings to actions, and the decisions made from it.

use std::collections::BTreeSet;
use std::fmt::Write;

use endstop::tool_call::{Allow, Refusal};
use endstop::{Closed, Confidence, Ending, FaultKind, Reason, Shown, Timer, Unreachable};
use endstop_turn::policy::{
    Action, Cause, DecisionContext, Delivery, Piece, Policy, Rule, Spent, decide, remedy,
};
use expect_test::expect_file;

use crate::endings::{HOLDS, Holds, ending, failed, plain, with};

/// Returns every kind of ending that has a different remedy.
fn endings() -> Vec<(String, Ending)> {
    let mut all = Vec::new();
    for reason in Reason::ALL {
        for holds in HOLDS {
            let name = format!("{} with {holds:?}", reason.name());
            all.push((name, ending(reason, Confidence::High, holds.shown())));
        }
    }
    let low = ending(Reason::ToolCall, Confidence::Low, Holds::Call.shown());
    all.push(("tool_call with Call, low confidence".to_owned(), low));
    for kind in KINDS {
        all.push((format!("failed: {}", kind.description()), failed(kind)));
    }
    for why in [Unreachable::Tls, Unreachable::Blocked, Unreachable::Dns] {
        let closed = Closed::Unreachable(why);
        let ending = with(failed(FaultKind::Other), |it| {
            it.closed = closed;
            it.fault = None;
        });
        all.push((format!("failed: unreachable {why:?}"), ending));
    }
    for timer in [Timer::ClientWrite, Timer::Idle, Timer::Total] {
        let ending = with(plain(Reason::TimedOut), |it| {
            it.closed = Closed::TimedOut(timer);
        });
        all.push((format!("timed_out: {timer:?}, after the finish reason"), ending));
    }
    let mut approval = Holds::Text.shown();
    (approval.approval, approval.other_content) = (true, true);
    let waits = ending(Reason::Paused, Confidence::High, approval);
    all.push(("paused for approval".to_owned(), waits));
    all.push((
        "not over".to_owned(),
        with(plain(Reason::Unknown), |it| {
            it.over = false;
        }),
    ));
    all
}

/// The kinds of fault that end as [`Reason::Failed`].
const KINDS: [FaultKind; 9] = [
    FaultKind::Other,
    FaultKind::Overloaded,
    FaultKind::RateLimit,
    FaultKind::Quota,
    FaultKind::Auth,
    FaultKind::NotFound,
    FaultKind::InvalidRequest,
    FaultKind::Server,
    FaultKind::BadPayload,
];

fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn the_remedy_of_every_ending() {
    let mut text = String::from(
        "The remedy for each ending: the action, the cause, whether the whole response arrived,\n\
         whether the same request would end the same way, whether tool calls may run; what\n\
         happened; the advice.\n",
    );
    for (name, ending) in endings() {
        let remedy = remedy(&ending);
        let repeats = if remedy.repeats { "repeats" } else { "may end differently" };
        let tools = match remedy.tools {
            Allow::Run => "tools may run",
            Allow::Refuse(Refusal::NoCalls) => "no tool calls",
            Allow::Refuse(_) => "no tool call may run",
        };
        writeln!(
            text,
            "\n{name}\n    {}, {}, {}, {repeats}, {tools}\n    {}\n    {}",
            remedy.action.name(),
            word(remedy.cause),
            word(remedy.delivery),
            remedy.happened,
            remedy.advice
        )
        .unwrap();
    }
    expect_file!["snapshots/remedies.txt"].assert_eq(&text);
}

#[test]
fn a_remedy_keeps_its_promises() {
    for (name, ending) in endings() {
        let remedy = remedy(&ending);
        let what = format!("{name}: {remedy:?}");
        // Tools run if and only if the rule for tool calls allows it.
        assert_eq!(remedy.action == Action::RunTools, remedy.tools == Allow::Run, "{what}");
        // Only a request that may end differently is retried.
        assert!(remedy.action != Action::Retry || !remedy.repeats, "{what}");
        // "use the answer" is only for complete answers.
        let whole = ending.over
            && matches!(ending.reason, Reason::Complete | Reason::StopSequence)
            && (ending.shown.text || ending.shown.other_content)
            && ending.shown.tool_calls == 0;
        assert_eq!(remedy.cause == Cause::Completed, whole, "{what}");
        assert_eq!(remedy.advice == "use the answer", whole, "{what}");
        if !ending.reason.is_success() {
            assert_ne!(remedy.cause, Cause::Completed, "{what}");
        }
        // One line, lower case, no full stop.
        for text in [remedy.happened.as_str(), &*remedy.advice] {
            assert!(!text.is_empty() && !text.ends_with('.') && !text.contains('\n'), "{what}");
            assert!(!text.starts_with(char::is_uppercase), "{what}");
        }
        // A rule may name the usual action for text.
        if ending.over && ending.shown == Holds::Text.shown() {
            let permitted = Rule::permitted(ending.reason);
            assert!(permitted.contains(&remedy.action), "{what}: {permitted:?}");
        }
    }
}

#[test]
fn an_empty_stop_is_no_answer() {
    for shown in [Shown::default(), Holds::Reasoning.shown()] {
        for reason in [Reason::Complete, Reason::StopSequence] {
            let remedy = remedy(&ending(reason, Confidence::High, shown));
            assert_eq!((remedy.action, remedy.cause), (Action::Retry, Cause::NothingCame));
            assert!(!remedy.advice.contains("use the answer"), "{remedy:?}");
        }
    }
}

/// A decision differs from the remedy only because of the policy, the context or a limit.
#[test]
fn the_default_policy_does_what_the_ending_calls_for() {
    let context = DecisionContext {
        piece: Some(Piece::of("a text that is long enough to be progress")),
        ..DecisionContext::default()
    };
    for (name, ending) in endings() {
        let remedy = remedy(&ending);
        let decision = decide(&ending, &context, &Policy::default());
        assert_eq!(decision.cause, remedy.cause, "{name}: {decision:?}");
        match decision.metadata.instead_of {
            Some(instead_of) => assert_eq!(instead_of, remedy.action, "{name}: {decision:?}"),
            None => assert_eq!(decision.action, remedy.action, "{name}: {decision:?}"),
        }
        assert!(decision.sentence.starts_with(&remedy.happened), "{name}: {decision:?}");
    }
}

/// Lists all sentences of decisions, for review.
#[test]
fn the_sentences_of_decisions() {
    let spent = Spent {
        continuations: 3,
        raises: 1,
        retries: 2,
        cuts: 2,
        repairs: 1,
        resumes: 10,
        polls: 1_000,
        ..Spent::default()
    };
    let first = DecisionContext {
        piece: Some(Piece::of("a text that is long enough to be progress")),
        ..DecisionContext::default()
    };
    let contexts = [
        first.clone(),
        DecisionContext { delivered: true, ..first.clone() },
        DecisionContext { spent, ..first.clone() },
        DecisionContext { conversation_messages: Some(50), ..first },
    ];
    let agent = endstop_turn::policy::AgentLimits {
        conversation_max_messages: Some(50),
        ..endstop_turn::policy::AgentLimits::DEFAULT
    };
    let mut sentences = BTreeSet::new();
    for name in Policy::PRESETS {
        let policy = Policy::preset(name).unwrap();
        let short = Policy { agent, ..policy.clone() };
        for (_, ending) in endings() {
            for context in &contexts {
                for policy in [&policy, &short] {
                    for ending in [
                        ending.clone(),
                        with(ending.clone(), |it| {
                            it.confidence = Confidence::Low;
                        }),
                    ] {
                        let decision = decide(&ending, context, policy);
                        let action = decision.action.name();
                        sentences.insert(format!("{action}: {}", decision.sentence));
                    }
                }
            }
        }
    }
    let mut text = String::from("All sentences of decisions under the presets, by action.\n\n");
    for sentence in sentences {
        writeln!(text, "{sentence}").unwrap();
    }
    expect_file!["snapshots/sentences.txt"].assert_eq(&text);
}

#[test]
fn delivery_is_told_apart() {
    let of = |ending: &Ending| remedy(ending).delivery;
    for reason in [Reason::Complete, Reason::OutputLimit, Reason::Filtered, Reason::Paused] {
        assert_eq!(of(&plain(reason)), Delivery::Whole, "{reason:?}");
    }
    for reason in [Reason::Cut, Reason::Failed, Reason::Cancelled, Reason::MalformedToolCall] {
        assert_eq!(of(&plain(reason)), Delivery::Broken, "{reason:?}");
    }
    assert_eq!(of(&plain(Reason::Unknown)), Delivery::Unclear);
    assert_eq!(
        of(&with(plain(Reason::Complete), |it| {
            it.over = false;
        })),
        Delivery::Pending
    );
    // A provider that goes silent after its finish reason has sent everything.
    let timed_out = |timer| {
        with(plain(Reason::TimedOut), |it| {
            it.closed = Closed::TimedOut(timer);
        })
    };
    assert_eq!(of(&timed_out(Timer::Idle)), Delivery::Whole);
    assert_eq!(of(&timed_out(Timer::Total)), Delivery::Broken);
    let mut wordless = timed_out(Timer::Idle);
    wordless.choices[0].said = None;
    assert_eq!(of(&wordless), Delivery::Broken);
    wordless.choices.clear();
    assert_eq!(of(&wordless), Delivery::Broken);
}
