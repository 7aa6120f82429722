//! Exit codes: what a script can tell from them.

use endstop::{Ending, Reason};

/// The command could not do its work: a missing file, bytes that are no response.
pub(crate) const ERROR: u8 = 1;

/// What `report --fail-if` names is so.
pub(crate) const FAIL_IF: u8 = 21;

/// Whoever read the output was gone: what a shell says of a program that the signal for it ends.
pub(crate) const CLOSED_PIPE: u8 = 141;

/// Some of what `replay` was given could not be read.
pub(crate) const UNREAD: u8 = 22;

/// The exit codes, as `--help` shows them.
pub(crate) const HELP: &str = "\
Exit codes:
   0  complete (also: stop sequence, tool call)
   1  the command failed; 2  it was called wrongly
  10  paused              15  unknown
  11  output limit        16  cancelled
  12  context limit       17  timed out
  13  refused, filtered,  18  failed
      safety, recitation  19  cut
  14  malformed tool call 20  not over yet (queued, in progress)
                          21  what `report --fail-if` names is so
  22  `replay` judged the rest, but some recordings could not be read
 141  whoever read the output was gone before all of it was written
`check` and `replay --fail-on` tell endings; other commands succeed or fail.";

/// The exit code for a response that ended like this.
pub(crate) fn code(ending: &Ending) -> u8 {
    if ending.over { of_reason(ending.reason) } else { 20 }
}

/// The exit code for this reason.
pub(crate) fn of_reason(reason: Reason) -> u8 {
    match reason {
        Reason::Complete | Reason::StopSequence | Reason::ToolCall => 0,
        Reason::Paused => 10,
        Reason::OutputLimit => 11,
        Reason::ContextLimit => 12,
        Reason::Refused | Reason::Filtered | Reason::Safety | Reason::Recitation => 13,
        Reason::MalformedToolCall => 14,
        Reason::Unknown => 15,
        Reason::Cancelled => 16,
        Reason::TimedOut => 17,
        Reason::Failed => 18,
        Reason::Cut => 19,
    }
}

/// Reads one name of `--fail-on`.
pub(crate) fn parse_reason(name: &str) -> Result<Reason, String> {
    Reason::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Reason::ALL.into_iter().map(Reason::name).collect();
        format!("unknown ending: expected one of {}", known.join(", "))
    })
}
