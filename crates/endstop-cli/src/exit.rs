//! Exit codes.

use endstop::{Ending, Reason};

/// Exit code of a command that failed, such as for a missing file.
pub(crate) const ERROR: u8 = 1;

/// Exit code for invalid arguments, as clap returns it.
pub(crate) const INVALID: u8 = 2;

/// Mistake in the arguments that only the command itself can see.
#[derive(Debug)]
struct Invalid(String);

impl std::fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// Returns the error of a command whose arguments are invalid.
pub(crate) fn invalid(mistake: impl std::fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Invalid(mistake.to_string()))
}

/// Returns the exit code of a command that failed.
pub(crate) fn of_error(error: &anyhow::Error) -> u8 {
    if error.is::<Invalid>() { INVALID } else { ERROR }
}

/// Exit code of `report` if a `--fail-if` condition is met.
pub(crate) const FAIL_IF: u8 = 21;

/// Exit code after a closed output pipe: 128 + SIGPIPE, as shells report it.
pub(crate) const CLOSED_PIPE: u8 = 141;

/// Exit code of `replay` if some input could not be read.
pub(crate) const UNREAD: u8 = 22;

/// Exit codes, as `--help` shows them.
pub(crate) const HELP: &str = "\
Exit codes:
   0  complete (also: stop sequence, tool call)
   1  the command failed; 2  the arguments are invalid
  10  paused              15  unknown
  11  output limit        16  cancelled
  12  context limit       17  timed out
  13  refused, filtered,  18  failed
      safety, recitation  19  cut
  14  malformed tool call 20  not finished (queued, in progress)
                          21  a `report --fail-if` condition is met
  22  `replay` could not read some recordings, and judged the rest
 141  the output pipe was closed early
Only `chat`, `check` and `replay --fail-on` return the codes of endings (10 to 20).";

/// Returns the exit code for this ending.
pub(crate) fn code(ending: &Ending) -> u8 {
    if ending.over { of_reason(ending.reason) } else { 20 }
}

/// Returns the exit code for this reason.
pub(crate) fn of_reason(reason: Reason) -> u8 {
    match reason {
        Reason::Complete | Reason::StopSequence | Reason::ToolCall => 0,
        Reason::Paused => 10,
        Reason::OutputLimit => 11,
        Reason::ContextLimit => 12,
        Reason::Refused | Reason::Filtered | Reason::Safety | Reason::Recitation => 13,
        Reason::MalformedToolCall => 14,
        Reason::Cancelled => 16,
        Reason::TimedOut => 17,
        Reason::Failed => 18,
        Reason::Cut => 19,
        Reason::Unknown | _ => 15,
    }
}

/// Parses one name of `--fail-on`.
pub(crate) fn parse_reason(name: &str) -> Result<Reason, String> {
    Reason::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = Reason::ALL.into_iter().map(Reason::name).collect();
        let meant = endstop::nearest(name, known.iter().copied());
        let meant = meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
        format!("unknown reason `{name}`: expected one of {}{meant}", known.join(", "))
    })
}
