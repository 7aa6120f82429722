//! Trouble: an error of ours, told in the wire's own shape.
//!
//! Whoever stands between a provider and its client has errors of its own to tell: the provider
//! cannot be reached, or its response ended badly and nobody said so. Each wire has a form for
//! errors in place of an answer and one for errors inside a stream, and real clients raise only on
//! those. Telling is not enough to make every client raise: after a frame that this module makes,
//! the transport must be aborted.

use serde_json::Value;

use crate::dialect::common::{aws_error, aws_exception};
use crate::frame::Framing;
use crate::provider::Profile;

/// An error of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayError<'a> {
    /// The HTTP status that it has, or would have had.
    pub status: u16,
    /// A short word for it, such as `endstop_cut`.
    pub code: &'a str,
    /// What happened, what it means and what to do.
    pub message: &'a str,
}

/// How a wire tells errors.
#[derive(Clone, Copy, Debug)]
pub struct ErrorShape {
    /// The name of the error's event, where server-sent events have names; else empty.
    pub event: &'static str,
    /// The payload of an error inside a stream.
    pub in_stream: fn(&GatewayError<'_>) -> Value,
    /// The body of an error in place of an answer.
    pub body: fn(&GatewayError<'_>) -> Value,
}

impl Profile {
    /// The body of a response that is nothing but this error.
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

    /// The frame that tells this error inside a stream framed like this; `first` if no frame came
    /// before it.
    #[must_use]
    pub fn error_frame(
        &self,
        framing: Framing,
        first: bool,
        gateway_error: &GatewayError<'_>,
    ) -> Vec<u8> {
        let payload = || (self.error_shape.in_stream)(gateway_error).to_string();
        match framing {
            Framing::Sse if self.error_shape.event.is_empty() => format!("data: {}\n\n", payload()),
            Framing::Sse => format!("event: {}\ndata: {}\n\n", self.error_shape.event, payload()),
            Framing::Lines => format!("{}\n", payload()),
            // The bracket stays open: what follows it is the end of the connection.
            Framing::Array if first => format!("[{}", payload()),
            Framing::Array => format!(",{}", payload()),
            Framing::Aws | Framing::AwsChunks => return aws_exception(gateway_error),
        }
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, Reason, RequestInfo, TransportEnd, Watcher, dialect, provider};

    const TROUBLE: GatewayError<'_> =
        GatewayError { status: 502, code: "endstop_cut", message: "it was cut" };

    /// What we tell is read back as an error, on every wire of every provider.
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
