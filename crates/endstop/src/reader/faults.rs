//! Errors of providers, and texts and pages that come instead of a response.

use crate::conclude::judge_fault;
use crate::dialect::errors::{self, Expect, RawError};
use crate::event::Event;
use crate::fault::{FaultForm, FaultKind};
use crate::frame::Frame;
use crate::sink::EventSink;
use crate::text::{WORD_CAP, clean};

/// Reads an exception, whose type is the name of its frame.
pub(super) fn exception(frame: &Frame<'_>) -> RawError {
    let mut told = errors::read(frame.data, Expect::Error).unwrap_or_else(|| bare_text(frame.data));
    told.names.push(frame.name.to_owned());
    told.type_ = Some(frame.name.to_owned());
    told
}

/// Returns an error that has only a message, or nothing if the event has only a name.
pub(super) fn bare_text(data: &[u8]) -> RawError {
    let message = (data != b"{}").then(|| String::from_utf8_lossy(data).into_owned());
    RawError { message, ..RawError::default() }
}

/// Reports an error of the provider.
pub(super) fn emit_fault(told: RawError, status: u16, out: &mut EventSink<'_, '_>) {
    let fault = judge_fault(told, status, &out.wire.profile);
    out.emit(Event::Fault(&fault));
}

/// Reports a page, a text or binary data that came instead of a response.
pub(super) fn emit_text(data: &[u8], status: u16, out: &mut EventSink<'_, '_>) {
    let text = String::from_utf8_lossy(data);
    let text = text.trim();
    let is_page = text.starts_with('<');
    let is_plain = !is_page && !text.is_empty() && !text.contains(['\u{fffd}', '\0']);
    let told = RawError { message: is_plain.then(|| text.to_owned()), ..RawError::default() };
    let mut fault = judge_fault(told, status, &out.wire.profile);
    fault.form = if is_page { FaultForm::Page } else { FaultForm::Text };
    if is_page {
        // Only for people: the title of a proxy's page says nothing about the kind of error.
        fault.message = title(text);
    }
    if fault.kind == FaultKind::Other {
        fault.kind = FaultKind::BadPayload;
    }
    out.emit(Event::Fault(&fault));
}

/// Returns the title of an HTML page, or else its first heading.
fn title(page: &str) -> Option<String> {
    let lower = page.to_ascii_lowercase();
    let element = |name: &str| {
        let open = lower.find(&format!("<{name}"))?;
        let start = open + lower.get(open..)?.find('>')? + 1;
        let end = start + lower.get(start..)?.find(&format!("</{name}"))?;
        let text = page.get(start..end)?.split_whitespace().collect::<Vec<_>>().join(" ");
        (!text.is_empty() && !text.contains('<')).then(|| clean(&text, WORD_CAP))
    };
    element("title").or_else(|| element("h1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_known_by_their_title() {
        for (page, want) in [
            ("<html><head><TITLE>\n 502 Bad\n Gateway</Title></head>", Some("502 Bad Gateway")),
            ("<!DOCTYPE html><h1 class=\"x\">Sign in</h1>", Some("Sign in")),
            ("<html><title></title><h1>Oops</h1></html>", Some("Oops")),
            ("<html><title>never closed", None),
            ("<html><title", None),
            ("<h1><b>x</b></h1>", None),
            ("<html>502</html>", None),
        ] {
            assert_eq!(title(page).as_deref(), want, "{page}");
        }
    }
}
