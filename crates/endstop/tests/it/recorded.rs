//! Recorded responses: their folders, their format, and how to read one.
//!
//! `ENDSTOP_RECORDINGS` has the folders, separated by `:`. Each contains `*.jsonl.gz` files with
//! one response per line. If it is not set, there are no records. A missing folder is an error.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base64::Engine as _;
use endstop::registry::{Clues, choose};
use endstop::tool_call::{Assembly, ToolCall};
use endstop::{Ending, Head, Reader, RequestInfo, TransportEnd, Watcher, Wire};
use serde::Deserialize;
use serde_json::Value;

/// One recorded response.
#[derive(Deserialize)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) provider: Option<String>,
    pub(crate) api: String,
    host: Option<String>,
    url_path: Option<String>,
    model: Option<String>,
    pub(crate) stream: bool,
    pub(crate) status: Option<u16>,
    content_type: Option<String>,
    /// Usually a number. Other values count as missing.
    #[serde(default)]
    request_max_tokens: Value,
    raw_endings: Option<Vec<RawEnding>>,
    pub(crate) truncated: Option<bool>,
    pub(crate) context_overflow: Option<bool>,
    encoding: String,
    body: String,
}

#[derive(Deserialize)]
struct RawEnding {
    field: String,
    value: Value,
}

/// What is known about a response before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The wire, by the label of the recording.
    Everything,
    /// The provider, the host and the path, as a gateway knows them.
    Address,
    /// Nothing but the bytes.
    Body,
}

/// Fields that carry a provider's finish reason. Errors, routers' finish reasons and item states
/// are excluded.
const WORD_FIELDS: &[&str] = &[
    "choices[].finish_reason",
    "choices[].finish_details.type",
    "delta.stop_reason",
    "stop_reason",
    "messageStop.stopReason",
    "stopReason",
    "delta.finish_reason",
    "finish_reason",
    "candidates[].finishReason",
    "promptFeedback.blockReason",
    "done_reason",
    "status",
    "response.status",
    "interaction.status",
    "stop_type",
    "incomplete_details.reason",
    "response.incomplete_details.reason",
    "results[].stop_reason",
    "results[].completionReason",
    "completionReason",
    "outputs[].stop_reason",
    "generations[].finish_reason",
    "completions[].finishReason.reason",
    "details.finish_reason",
    "output.finish_reason",
    "output.choices[].finish_reason",
    "final_result.choices[].finish_reason",
    "message.stop_reason",
    "response.finish_reason",
    "response.generations[].finish_reason",
];

/// Returns the folders in `ENDSTOP_RECORDINGS`.
fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os("ENDSTOP_RECORDINGS").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    for folder in &folders {
        assert!(
            folder.is_dir(),
            "ENDSTOP_RECORDINGS names `{}`, which is not a folder",
            folder.display()
        );
    }
    folders
}

/// Returns every folder with its records. They are read once.
pub(crate) fn by_folder() -> &'static [(PathBuf, Vec<Record>)] {
    static ALL: LazyLock<Vec<(PathBuf, Vec<Record>)>> = LazyLock::new(|| {
        folders().into_iter().map(|folder| (folder.clone(), read_folder(&folder))).collect()
    });
    &ALL
}

/// Returns the records of every folder, in order.
pub(crate) fn all() -> Vec<&'static Record> {
    by_folder().iter().flat_map(|(_, records)| records).collect()
}

fn read_folder(folder: &Path) -> Vec<Record> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".jsonl.gz"));
    files.sort();
    assert!(!files.is_empty(), "`{}` has no recordings (*.jsonl.gz)", folder.display());
    let mut records = Vec::new();
    for file in files {
        let reader = flate2::read::MultiGzDecoder::new(std::fs::File::open(&file).unwrap());
        for (number, line) in BufReader::new(reader).lines().enumerate() {
            let record = serde_json::from_str(&line.unwrap());
            records.push(record.unwrap_or_else(|error| {
                panic!("{}, line {}: {error}", file.display(), number + 1)
            }));
        }
    }
    assert!(!records.is_empty(), "the recordings of `{}` are empty", folder.display());
    records
}

impl Record {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self.encoding.as_str() {
            "base64" => base64::engine::general_purpose::STANDARD.decode(&self.body).unwrap(),
            _ => self.body.clone().into_bytes(),
        }
    }

    pub(crate) fn content_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or_default()
    }

    pub(crate) fn wire(&self, body: &[u8]) -> Wire {
        choose(&self.clues(Known::Everything, body))
    }

    fn clues<'a>(&'a self, known: Known, body: &'a [u8]) -> Clues<'a> {
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        let address = Clues {
            provider: text(&self.provider),
            host: text(&self.host),
            path: text(&self.url_path),
            body,
            ..Clues::default()
        };
        let dialect = if self.api == "mistral-chat" { "openai-chat" } else { &self.api };
        match known {
            Known::Everything => Clues { dialect, ..address },
            Known::Address => address,
            Known::Body => Clues { body, ..Clues::default() },
        }
    }

    /// Returns the ending if only this much is known about the response before it is read.
    pub(crate) fn ending_by(&self, known: Known) -> Ending {
        let body = self.bytes();
        let head = Head { status: self.status.unwrap_or(0), content_type: self.content_type() };
        let wire = choose(&self.clues(known, &body));
        let mut watcher = Watcher::new(wire, head, self.asked());
        watcher.watch(&body);
        watcher.finish(TransportEnd::Eof)
    }

    pub(crate) fn asked(&self) -> RequestInfo {
        RequestInfo {
            model: self.model.clone(),
            streamed: Some(self.stream),
            cap: self.request_max_tokens.as_u64(),
            ..RequestInfo::default()
        }
    }

    pub(crate) fn watcher(&self, body: &[u8]) -> Watcher {
        self.reader(body).into()
    }

    pub(crate) fn reader(&self, body: &[u8]) -> Reader {
        let head = Head { status: self.status.unwrap_or(0), content_type: self.content_type() };
        Reader::new(self.wire(body), head, self.asked())
    }

    pub(crate) fn ending(&self) -> Ending {
        let body = self.bytes();
        let mut reader = self.watcher(&body);
        reader.watch(&body);
        reader.finish(TransportEnd::Eof)
    }

    /// Returns the ending and the tool calls.
    pub(crate) fn read(&self, body: &[u8]) -> (Ending, Vec<ToolCall>) {
        let mut reader = self.reader(body);
        let mut assembly = Assembly::default();
        reader.read(body, |event| assembly.observe(&event));
        let ending = reader.finish(TransportEnd::Eof, |event| assembly.observe(&event));
        let calls = assembly.finish(&ending);
        (ending, calls)
    }

    /// Reports whether the recording lists an error and no finish reason.
    pub(crate) fn is_error(&self) -> bool {
        let errors = ["error", "error.type", "error.code", "error.status", "response.error.code"];
        let is_error = |ending: &RawEnding| errors.contains(&ending.field.as_str());
        self.words().is_empty() && self.raw_endings.iter().flatten().any(is_error)
    }

    /// Returns the finish reasons that the recording lists, in order.
    pub(crate) fn words(&self) -> Vec<String> {
        let endings = self.raw_endings.iter().flatten();
        // Errors of other wires have their HTTP status in a field of this name, and one wire sends
        // the string `null` until the end.
        let is_word = |ending: &&RawEnding| {
            WORD_FIELDS.contains(&ending.field.as_str())
                && !(ending.field == "status" && ending.value.is_number())
                && ending.value != "null"
        };
        let text = |ending: &RawEnding| {
            ending.value.as_str().map_or_else(|| ending.value.to_string(), str::to_owned)
        };
        let words: Vec<String> = endings.filter(is_word).map(text).collect();
        if !words.is_empty() || self.api != "openai-responses" {
            return words;
        }
        // Without a status, the name of the last event is the finish reason.
        let is_name = |ending: &&RawEnding| ending.field == "type";
        self.raw_endings.iter().flatten().filter(is_name).map(text).collect()
    }
}
