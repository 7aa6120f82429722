//! Comparison of tool calls, on every wire, streamed and plain.

use std::collections::BTreeSet;

use endstop::dialect;
use serde_json::Value;

use crate::answer;
use crate::call::{Call, is_plain};
use crate::case::{self, Case};

fn read(case: &Case) -> Vec<Call> {
    case.read_calls([&*case.bytes()]).1.iter().map(Call::from).collect()
}

#[test]
fn every_case_has_the_calls_that_it_says() {
    let wrong: Vec<String> =
        case::all().iter().filter_map(|case| case.calls_differ(&read(case))).collect();
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

/// For each wire with calls, streamed and plain, a case fails if `{}` replaces the arguments.
#[test]
fn arguments_replaced_by_an_empty_object_fail_a_case_of_every_wire() {
    let mut held = BTreeSet::new();
    for case in case::all() {
        let emptied: Vec<Call> = read(&case)
            .into_iter()
            .map(|call| Call { arguments: "{}".to_owned(), ..call })
            .collect();
        let is_object = |call: &Call| {
            serde_json::from_str::<Value>(&call.arguments).is_ok_and(|value| value.is_object())
        };
        let whole =
            case.want.calls.iter().all(is_object) && case.calls_differ(&read(&case)).is_none();
        if whole && case.calls_differ(&emptied).is_some() {
            held.insert((case.wire().profile.dialect.id, is_plain(&case.bytes())));
        }
    }
    let mut missing = Vec::new();
    for dialect in dialect::ALL {
        let builder = answer::builder(dialect.id);
        for (form, plain) in [("streamed", false), ("plain", true)] {
            if builder.carries_calls() && !held.contains(&(dialect.id, plain)) {
                missing.push(format!("{}, {form}", dialect.id));
            }
        }
    }
    assert!(missing.is_empty(), "no case covers the arguments of:\n{}", missing.join("\n"));
}
