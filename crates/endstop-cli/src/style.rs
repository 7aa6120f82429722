//! Colour for terminals. Off in pipes, on dumb terminals, and if `NO_COLOR` is set.

use std::io::IsTerminal;

use endstop::Reason;

/// Colour setting of standard output or standard error.
#[derive(Clone, Copy)]
pub(crate) struct Style(bool);

impl Style {
    pub(crate) fn of_stdout() -> Self {
        Self::of(std::io::stdout().is_terminal())
    }

    pub(crate) fn of_stderr() -> Self {
        Self::of(std::io::stderr().is_terminal())
    }

    fn of(is_terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self(!refused && !is_dumb() && is_terminal)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Colours text by reason: green for success, yellow if the turn can go on, red for failure.
    pub(crate) fn reason(self, reason: Reason, text: &str) -> String {
        let colour = match reason {
            Reason::Complete | Reason::StopSequence | Reason::ToolCall => "1;32",
            Reason::Paused | Reason::OutputLimit | Reason::ContextLimit => "1;33",
            Reason::Refused
            | Reason::Filtered
            | Reason::Safety
            | Reason::Recitation
            | Reason::MalformedToolCall
            | Reason::Cancelled
            | Reason::TimedOut
            | Reason::Failed
            | Reason::Cut => "1;31",
            Reason::Unknown | _ => "1;33",
        };
        self.paint(colour, text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Reports whether standard output is a terminal that obeys escape codes, such as the one that clears it.
pub(crate) fn has_control() -> bool {
    std::io::stdout().is_terminal() && !is_dumb()
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Returns the width of the terminal; that of a wide one where the output is not a terminal.
pub(crate) fn width() -> usize {
    terminal_width().unwrap_or(160)
}

/// Returns the width of the terminal; `None` where the output is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    asked.or_else(|| terminal_size::terminal_size().map(|(width, _)| width.0.into()))
}
