//! Reads and runs the cases of `corpus/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop::frame::aws;
use endstop::provider::{self, Wire};
use endstop::tool_call::{Assembly, ToolCall};
use endstop::{Ending, Head, Reader, RequestInfo, SafetyRating, Timer, TransportEnd, Watcher};
use serde::Deserialize;

use super::call::{self, Call, Compare};

/// One file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Provider whose profile reads the cases.
    provider: String,
    case: Vec<Case>,
}

/// One response and its expected ending.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    #[serde(skip)]
    pub(crate) provider: String,
    pub(crate) name: String,
    /// Source of the case: documentation, a recording or an issue, with the T-number if it has one.
    pub(crate) source: String,
    /// Dialect; the provider's main one by default.
    wire: Option<String>,
    /// Path, if the provider has several wires of one dialect.
    path: Option<String>,
    #[serde(default = "ok")]
    status: u16,
    /// Content type.
    #[serde(default, rename = "type")]
    content_type: String,
    #[serde(default)]
    asked: AskedSpec,
    #[serde(default)]
    close: CloseSpec,
    body: Option<String>,
    /// AWS event-stream messages.
    #[serde(default)]
    frames: Vec<FrameSpec>,
    /// Events wrapped in base64 inside AWS event-stream messages.
    #[serde(default)]
    chunks: Vec<String>,
    /// Damage at the end of the bytes.
    #[serde(default)]
    damage: Damage,
    pub(crate) want: Want,
}

fn ok() -> u16 {
    200
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedSpec {
    model: Option<String>,
    streamed: Option<bool>,
    cap: Option<u64>,
    choices: Option<u32>,
    tools: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CloseSpec {
    #[default]
    Eof,
    Reset,
    Truncated,
    Idle,
    FirstByte,
    ClientGone,
    Dropped,
    Interrupted,
    ShutDown,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameSpec {
    #[serde(default)]
    event: String,
    #[serde(default)]
    exception: String,
    #[serde(default)]
    error: String,
    data: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Damage {
    #[default]
    None,
    /// The last five bytes are missing.
    CutTail,
    /// One bit of the last payload is flipped.
    FlipBit,
}

/// Expected ending. Missing keys are not compared, but `shown` is compared as a whole.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Want {
    pub(crate) reason: String,
    confidence: String,
    /// Provider's finish reason; the empty string if there is none.
    #[serde(default)]
    native: String,
    field: Option<String>,
    finish_reason: Option<String>,
    closed: Option<String>,
    #[serde(default)]
    shown: Vec<String>,
    fault: Option<String>,
    #[serde(default)]
    details: BTreeMap<String, String>,
    /// Safety ratings that must be among the kept ones.
    #[serde(default)]
    ratings: Vec<SafetyRating>,
    /// Reasons of the choices, in order.
    choices: Option<Vec<String>>,
    output: Option<u64>,
    input: Option<u64>,
    reasoning: Option<u64>,
    cached: Option<u64>,
    #[serde(default = "yes")]
    over: bool,
    /// Assembled tool calls; no calls by default.
    #[serde(default)]
    pub(crate) calls: Vec<Call>,
}

fn yes() -> bool {
    true
}

/// Returns the folder of the project's cases.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

/// Returns every case.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut files: Vec<_> =
        std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let text = std::fs::read_to_string(path).unwrap();
        let file: File =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        cases.extend(
            file.case.into_iter().map(|case| Case { provider: file.provider.clone(), ..case }),
        );
    }
    cases
}

impl Case {
    pub(crate) fn label(&self) -> String {
        format!("{}/{}", self.provider, self.name)
    }

    pub(crate) fn wire(&self) -> Wire {
        let provider = provider::by_id(&self.provider)
            .unwrap_or_else(|| panic!("{}: no such provider", self.label()));
        let wire = match (&self.wire, &self.path) {
            (None, None) => return provider.into(),
            (_, Some(path)) => provider.wire_for_path(path),
            (Some(id), None) => provider.wire_of(id),
        };
        wire.unwrap_or_else(|| panic!("{}: no such wire", self.label())).into()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.body.clone().unwrap_or_default().into_bytes();
        for frame in &self.frames {
            bytes.extend(frame.encode());
        }
        for chunk in &self.chunks {
            let payload = format!(r#"{{"bytes":"{}","p":"abcd"}}"#, STANDARD.encode(chunk));
            bytes.extend(aws::encode(
                &[(":event-type", "chunk"), (":message-type", "event")],
                payload.as_bytes(),
            ));
        }
        match self.damage {
            Damage::None => {}
            Damage::CutTail => bytes.truncate(bytes.len() - 5),
            Damage::FlipBit => {
                let at = bytes.len() - 6;
                bytes[at] ^= 1;
            }
        }
        bytes
    }

    /// Reports whether the body is a stream of several frames.
    pub(crate) fn is_stream(&self) -> bool {
        let body = self.body.as_deref().unwrap_or_default().trim_start();
        let lines = self.wire().profile.framing == endstop::dialect::Framing::Lines
            && body.lines().count() > 1;
        self.status == 200 && (lines || !body.starts_with('{') && !body.starts_with('<'))
    }

    pub(crate) fn close(&self) -> TransportEnd {
        match self.close {
            CloseSpec::Eof => TransportEnd::Eof,
            CloseSpec::Reset => TransportEnd::Reset,
            CloseSpec::Truncated => TransportEnd::Truncated,
            CloseSpec::Idle => TransportEnd::TimedOut(Timer::Idle),
            CloseSpec::FirstByte => TransportEnd::TimedOut(Timer::FirstByte),
            CloseSpec::ClientGone => TransportEnd::ClientGone,
            CloseSpec::Dropped => TransportEnd::Dropped,
            CloseSpec::Interrupted => TransportEnd::Interrupted,
            CloseSpec::ShutDown => TransportEnd::ShutDown,
        }
    }

    pub(crate) fn head(&self) -> Head<'_> {
        Head { status: self.status, content_type: &self.content_type }
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn content_type(&self) -> &str {
        &self.content_type
    }

    pub(crate) fn asked(&self) -> RequestInfo {
        RequestInfo {
            model: self.asked.model.clone(),
            streamed: self.asked.streamed,
            cap: self.asked.cap,
            choices: self.asked.choices,
            tools: self.asked.tools.clone(),
            ..RequestInfo::default()
        }
    }

    pub(crate) fn watcher(&self, wire: Wire) -> Watcher {
        self.reader(wire).into()
    }

    pub(crate) fn reader(&self, wire: Wire) -> Reader {
        Reader::new(wire, self.head(), self.asked())
    }

    /// Returns the ending of these chunks.
    pub(crate) fn read<'a>(
        &self,
        wire: Wire,
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Ending {
        let mut reader = self.watcher(wire);
        for chunk in chunks {
            reader.watch(chunk);
        }
        reader.finish(self.close())
    }

    /// Returns the ending and the tool calls of these chunks.
    pub(crate) fn read_calls<'a>(
        &self,
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Ending, Vec<ToolCall>) {
        let mut reader = self.reader(self.wire());
        let mut assembly = Assembly::default();
        for chunk in chunks {
            reader.read(chunk, |event| assembly.observe(&event));
        }
        let ending = reader.finish(self.close(), |event| assembly.observe(&event));
        let calls = assembly.finish(&ending);
        (ending, calls)
    }

    /// Returns the difference between these calls and the expected ones, if any.
    pub(crate) fn calls_differ(&self, got: &[Call]) -> Option<String> {
        let compare = Compare::of(self.wire().profile.dialect.id, &self.bytes());
        call::differ(got, &self.want.calls, compare).map(|what| format!("{}: {what}", self.label()))
    }

    pub(crate) fn want_native(&self) -> &str {
        &self.want.native
    }

    pub(crate) fn want_field(&self) -> &str {
        self.want.field.as_deref().unwrap_or_default()
    }

    /// Returns the difference from the expected ending, if any.
    pub(crate) fn differs(&self, ending: &Ending) -> Option<String> {
        let want = &self.want;
        let mut wrong = Vec::new();
        let mut compare = |what: &str, got: String, want: String| {
            if got != want {
                wrong.push(format!("{what} is {got:?}, not {want:?}"));
            }
        };
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        compare("reason", ending.reason.name().to_owned(), want.reason.clone());
        compare(
            "confidence",
            format!("{:?}", ending.confidence).to_lowercase(),
            want.confidence.clone(),
        );
        compare(
            "native",
            text(ending.said.as_ref().map(|said| said.word.as_str())),
            want.native.clone(),
        );
        compare("shown", ending.shown.names().join(" "), want.shown.join(" "));
        compare("over", ending.over.to_string(), want.over.to_string());
        if let Some(field) = &want.field {
            compare("field", text(ending.said.as_ref().map(|said| &*said.field)), field.clone());
        }
        if let Some(word) = &want.finish_reason {
            compare("finish_reason", text(ending.finish_reason()), word.clone());
        }
        if let Some(closed) = &want.closed {
            compare("closed", ending.closed.word().to_owned(), closed.clone());
        }
        if let Some(kind) = &want.fault {
            let got = ending.fault.as_ref().map(|fault| serde_json::to_value(fault.kind).unwrap());
            compare(
                "fault",
                got.map_or(String::new(), |kind| kind.as_str().unwrap().to_owned()),
                kind.clone(),
            );
        }
        if let Some(choices) = &want.choices {
            let got: Vec<&str> = ending.choices.iter().map(|choice| choice.reason.name()).collect();
            compare("choices", got.join(" "), choices.join(" "));
        }
        let usage = &ending.usage;
        let counts = [
            ("output", usage.output, want.output),
            ("input", usage.input, want.input),
            ("reasoning", usage.reasoning, want.reasoning),
            ("cached", usage.cache_read, want.cached),
        ];
        for (what, got, want) in counts {
            if want.is_some() {
                compare(what, format!("{got:?}"), format!("{want:?}"));
            }
        }
        for (key, value) in &want.details {
            let got = ending.details.iter().find(|detail| detail.key == *key);
            compare(key, text(got.map(|detail| detail.value.as_str())), value.clone());
        }
        for rating in &want.ratings {
            if !ending.ratings.contains(rating) {
                wrong.push(format!("{rating:?} is not among {:?}", ending.ratings));
            }
        }
        (!wrong.is_empty())
            .then(|| format!("{}: {}\n  {}", self.label(), wrong.join("; "), ending.sentence))
    }
}

impl FrameSpec {
    fn encode(&self) -> Vec<u8> {
        let headers: &[(&str, &str)] = if !self.exception.is_empty() {
            &[(":exception-type", &self.exception), (":message-type", "exception")]
        } else if !self.error.is_empty() {
            return aws::encode(
                &[
                    (":error-code", &self.error),
                    (":error-message", &self.data),
                    (":message-type", "error"),
                ],
                b"",
            );
        } else {
            &[
                (":event-type", &self.event),
                (":content-type", "application/json"),
                (":message-type", "event"),
            ]
        };
        aws::encode(headers, self.data.as_bytes())
    }
}
