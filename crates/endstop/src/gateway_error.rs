//! Errors of the gateway in the format of the wire.
//!
//! A gateway between a provider and its client has to report errors itself: the provider cannot be
//! reached, or its response ended badly without saying so. Each wire has one format for error
//! bodies and one for errors inside a stream, and clients raise only on those. On some wires a
//! client overlooks the error frame, and the connection must be aborted after it. On others an
//! abort makes a client crash that would recover from the frame. So the end is data, too, and
//! docs/compatibility.md has the clients that it was tried with.

use serde_json::Value;

use crate::dialect::common::{aws_error, aws_exception};
use crate::ending::Reason;
use crate::frame::Framing;
use crate::provider::Profile;

/// An error of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayError<'a> {
    /// HTTP status that it has, or would have had.
    pub status: u16,
    /// Short code, such as `endstop_cut`.
    pub code: &'a str,
    /// Sentence that says what happened, what it means and what to do.
    pub message: &'a str,
    /// Reason for the end of the response that fails with this error, if there was a response.
    pub reason: Option<Reason>,
    /// Whether the same request is expected to end the same way.
    pub repeats: bool,
}

/// Bytes that a gateway adds to the responses of a wire: errors, and keep-alives while it holds
/// frames back.
#[derive(Clone, Copy, Debug)]
pub struct ErrorShape {
    /// Event name of errors in server-sent events; empty if events have no names.
    pub event: &'static str,
    /// Returns the payload of an error inside a stream.
    pub in_stream: fn(&GatewayError<'_>) -> Value,
    /// Returns the name and the payload of the event that ends a failed stream, after the error.
    pub last: Option<LastEvent>,
    /// Beginning of a server-sent event that stays unfinished after the error; empty for none. It is for
    /// clients that overlook the error, recover from an unfinished event, and crash on an abort.
    pub unfinished: &'static str,
    /// Returns the body of an error response.
    pub body: fn(&GatewayError<'_>) -> Value,
    /// End of the connection after the error.
    pub end: ErrorEnd,
    /// Bytes that keep a client waiting.
    pub keep_alive: KeepAlive,
}

/// Function that returns the name and the payload of the event that ends a failed stream.
pub type LastEvent = fn(&GatewayError<'_>) -> (&'static str, Value);

/// End of the connection after an error inside a stream.
///
/// Closed list: a gateway must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorEnd {
    /// A clean end: every client that was tried raises on the error itself.
    Clean,
    /// An abort: some client overlooks the error.
    Abort,
}

/// Bytes that keep a client waiting while a gateway holds frames back.
///
/// Closed list: a gateway must handle every variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAlive {
    /// A comment, which every client that was tried skips.
    Comment,
    /// This event, which the wire has for the purpose.
    Event(&'static str),
    /// Some of the held bytes: the wire has nothing that its clients skip.
    Trickle,
}

impl Profile {
    /// Returns the body of a response that contains only this error.
    #[must_use]
    pub fn error_body(&self, gateway_error: &GatewayError<'_>) -> Vec<u8> {
        let body = match self.framing {
            Framing::Aws | Framing::AwsChunks => aws_error(gateway_error),
            Framing::Sse | Framing::Lines | Framing::Array => {
                (self.error_shape.body)(gateway_error)
            }
        };
        body.to_string().into_bytes()
    }

    /// Returns the frame of this error inside a stream with this framing. `first` means that no
    /// frame precedes it.
    #[must_use]
    pub fn error_frame(
        &self,
        framing: Framing,
        first: bool,
        gateway_error: &GatewayError<'_>,
    ) -> Vec<u8> {
        let payload = || (self.error_shape.in_stream)(gateway_error).to_string();
        match framing {
            Framing::Sse => {
                let last = self.error_shape.last.map(|last| last(gateway_error));
                let last = last.map(|(name, payload)| sse_event(name, &payload.to_string()));
                let error = sse_event(self.error_shape.event, &payload());
                error + &last.unwrap_or_default() + self.error_shape.unfinished
            }
            Framing::Lines => format!("{}\n", payload()),
            // The bracket stays open: the connection is aborted next.
            Framing::Array if first => format!("[{}", payload()),
            Framing::Array => format!(",{}", payload()),
            Framing::Aws | Framing::AwsChunks => return aws_exception(gateway_error),
        }
        .into_bytes()
    }

    /// Returns the end of the connection after an error in a stream with this framing.
    #[must_use]
    pub fn error_end(&self, framing: Framing) -> ErrorEnd {
        match framing {
            // Its bracket stays open.
            Framing::Array => ErrorEnd::Abort,
            // Every client of AWS that was tried raises on the exception.
            Framing::Aws | Framing::AwsChunks => ErrorEnd::Clean,
            Framing::Sse | Framing::Lines => self.error_shape.end,
        }
    }

    /// Returns the bytes that keep a client waiting in a stream with this framing.
    #[must_use]
    pub fn keep_alive(&self, framing: Framing) -> KeepAlive {
        match framing {
            Framing::Sse => self.error_shape.keep_alive,
            Framing::Lines | Framing::Array | Framing::Aws | Framing::AwsChunks => {
                KeepAlive::Trickle
            }
        }
    }
}

fn sse_event(name: &str, payload: &str) -> String {
    if name.is_empty() {
        format!("data: {payload}\n\n")
    } else {
        format!("event: {name}\ndata: {payload}\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, Reason, RequestInfo, TransportEnd, Watcher, dialect, provider};

    const TROUBLE: GatewayError<'_> = GatewayError {
        status: 502,
        code: "endstop_cut",
        message: "it was cut",
        reason: Some(Reason::Cut),
        repeats: false,
    };

    /// Every wire of every provider reads its own error format back as an error.
    #[test]
    fn every_wire_reads_its_own_trouble_as_an_error() {
        for provider in provider::ALL {
            for profile in provider.wires() {
                for (status, bytes) in [
                    (200, profile.error_frame(profile.framing, true, &TROUBLE)),
                    (502, profile.error_body(&TROUBLE)),
                ] {
                    let asked = RequestInfo { streamed: Some(true), ..RequestInfo::default() };
                    let mut reader =
                        Watcher::new(profile, Head { status, content_type: "" }, asked);
                    reader.watch(&bytes);
                    let ending = reader.finish(TransportEnd::Reset);
                    let text = String::from_utf8_lossy(&bytes);
                    assert!(
                        [Reason::Failed, Reason::Cut].contains(&ending.reason),
                        "{} {}: {text}: {ending:?}",
                        provider.id,
                        profile.dialect.id,
                    );
                }
            }
        }
        assert!(!dialect::ALL.is_empty());
    }

    /// Clients decide by these names whether to ask again, and how to report the error.
    #[test]
    fn errors_have_the_names_that_providers_give_them() {
        let named = |profile: &Profile, status: u16, repeats: bool| {
            let trouble = GatewayError { status, repeats, ..TROUBLE };
            let body: Value = serde_json::from_slice(&profile.error_body(&trouble)).unwrap();
            let name = ["/error/status", "/error/type", "/__type"].map(|at| body.pointer(at));
            name.into_iter().flatten().find_map(Value::as_str).unwrap().to_owned()
        };
        let (google, bedrock) = (&provider::GOOGLE.main, &provider::BEDROCK.main);
        for (status, of_google, of_anthropic, of_bedrock) in [
            (400, "FAILED_PRECONDITION", "invalid_request_error", "ValidationException"),
            (401, "UNAUTHENTICATED", "authentication_error", "AccessDeniedException"),
            (403, "PERMISSION_DENIED", "permission_error", "AccessDeniedException"),
            (404, "NOT_FOUND", "not_found_error", "ResourceNotFoundException"),
            (429, "RESOURCE_EXHAUSTED", "rate_limit_error", "ThrottlingException"),
            (502, "UNAVAILABLE", "api_error", "ModelErrorException"),
            (503, "UNAVAILABLE", "api_error", "ServiceUnavailableException"),
            (504, "DEADLINE_EXCEEDED", "api_error", "ModelErrorException"),
        ] {
            let repeats = status < 429;
            assert_eq!(named(google, status, repeats), of_google, "{status}");
            assert_eq!(named(&provider::ANTHROPIC.main, status, repeats), of_anthropic, "{status}");
            assert_eq!(named(bedrock, status, repeats), of_bedrock, "{status}");
        }
    }

    #[test]
    fn the_error_comes_first_and_names_are_kept() {
        let frame = |profile: &Profile, framing, first| {
            String::from_utf8_lossy(&profile.error_frame(framing, first, &TROUBLE)).into_owned()
        };
        let google = &provider::GOOGLE.main;
        assert!(frame(google, Framing::Sse, false).starts_with("data: {\"error\":"));
        assert!(frame(google, Framing::Array, false).starts_with(",{\"error\":"));
        assert!(frame(google, Framing::Array, true).starts_with("[{\"error\":"));
        let anthropic = frame(&provider::ANTHROPIC.main, Framing::Sse, false);
        assert!(anthropic.starts_with("event: error\ndata: {"), "{anthropic}");
    }
}
