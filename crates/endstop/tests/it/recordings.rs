//! Recorded traffic: the bars of the replay, on every record.
//!
//! Reads the `*.jsonl.gz` of the folder that `ENDSTOP_RECORDINGS` names, and nothing where it is
//! not set.

use std::io::{BufRead, BufReader};

use base64::Engine as _;
use endstop::registry::{Clues, choose};
use endstop::{Asked, Close, Ending, FaultKind, Head, Reader, Reason};
use serde::Deserialize;
use serde_json::Value;

use crate::cuts::Dice;
use crate::prefixes::every_cut;

#[derive(Deserialize)]
struct Record {
    id: String,
    provider: Option<String>,
    api: String,
    host: Option<String>,
    url_path: Option<String>,
    model: Option<String>,
    stream: bool,
    status: Option<u16>,
    content_type: Option<String>,
    request_max_tokens: Option<u64>,
    raw_endings: Option<Vec<RawEnding>>,
    truncated: Option<bool>,
    context_overflow: Option<bool>,
    encoding: String,
    body: String,
}

#[derive(Deserialize)]
struct RawEnding {
    field: String,
    value: Value,
}

/// The wires that are read so far.
const READ: &[&str] = &[
    "openai-chat",
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
    "gemini-generate",
    "bedrock-converse",
    "cohere-v2",
    "mistral-chat",
    "ollama-chat",
    "bedrock-invoke",
    "cohere-v1",
    "hf-tgi",
    "watsonx",
    "other",
];

/// Fields that carry a provider's word. Errors, routers' own words and states of items are none.
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
    "interaction.status",
    "results[].stop_reason",
    "results[].completionReason",
    "completionReason",
    "outputs[].stop_reason",
    "generations[].finish_reason",
    "completions[].finishReason.reason",
    "details.finish_reason",
    "stop_type",
];

fn records() -> Vec<Record> {
    let Some(folder) = std::env::var_os("ENDSTOP_RECORDINGS") else { return Vec::new() };
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".jsonl.gz"));
    files.sort();
    let mut records = Vec::new();
    for file in files {
        let reader = flate2::read::MultiGzDecoder::new(std::fs::File::open(file).unwrap());
        for line in BufReader::new(reader).lines() {
            records.push(serde_json::from_str(&line.unwrap()).unwrap());
        }
    }
    records
}

impl Record {
    fn bytes(&self) -> Vec<u8> {
        match self.encoding.as_str() {
            "base64" => base64::engine::general_purpose::STANDARD.decode(&self.body).unwrap(),
            _ => self.body.clone().into_bytes(),
        }
    }

    fn is_read(&self) -> bool {
        READ.contains(&self.api.as_str())
    }

    fn wire(&self, body: &[u8]) -> endstop::Wire {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        choose(&Clues {
            provider: &text(&self.provider),
            dialect: if self.api == "mistral-chat" { "openai-chat" } else { &self.api },
            host: &text(&self.host),
            path: &text(&self.url_path),
            body,
            ..Clues::default()
        })
    }

    fn reader(&self, body: &[u8]) -> Reader {
        let head = Head {
            status: self.status.unwrap_or(0),
            content_type: self.content_type.as_deref().unwrap_or_default(),
        };
        let asked = Asked {
            model: self.model.clone(),
            streamed: Some(self.stream),
            cap: self.request_max_tokens,
            ..Asked::default()
        };
        Reader::new(self.wire(body), head, asked)
    }

    fn ending(&self) -> Ending {
        let body = self.bytes();
        let mut reader = self.reader(&body);
        reader.watch(&body);
        reader.finish(Close::Eof)
    }

    fn words(&self) -> Vec<String> {
        let endings = self.raw_endings.iter().flatten();
        // Errors of other wires give their HTTP status a field of this name.
        let is_word = |ending: &&RawEnding| {
            WORD_FIELDS.contains(&ending.field.as_str())
                && !(ending.field == "status" && ending.value.is_number())
        };
        let words = endings.filter(is_word);
        words
            .map(|ending| {
                ending.value.as_str().map_or_else(|| ending.value.to_string(), str::to_owned)
            })
            .collect()
    }

    /// What is wrong with this ending, if anything is.
    fn wrong(&self, ending: &Ending) -> Option<&'static str> {
        let words = self.words();
        let native = ending.said.as_ref().map(|said| said.word.as_str());
        let overflow =
            ending.fault.as_ref().is_some_and(|fault| fault.kind == FaultKind::ContextWindow);
        if !words.is_empty()
            && !native.is_some_and(|native| words.iter().any(|word| word == native))
        {
            return Some("the native word is not one of those in the body");
        }
        if !words.is_empty() && ending.over && ending.reason == Reason::Unknown {
            return Some("a documented word is unknown");
        }
        if self.context_overflow == Some(true)
            && !(overflow && ending.reason == Reason::ContextLimit)
        {
            return Some("a context overflow is missed");
        }
        if self.truncated == Some(false) && ending.reason == Reason::Cut {
            return Some("a complete response is called cut");
        }
        if self.truncated == Some(true) && ending.reason.is_success() {
            return Some("a cut response is called complete");
        }
        if self.status.is_some_and(|status| status >= 400) && ending.reason.is_success() {
            return Some("an error is called complete");
        }
        None
    }
}

#[test]
fn every_record_is_judged_and_none_wrongly() {
    let mut wrong = Vec::new();
    let records = records();
    for record in &records {
        let ending = record.ending();
        if record.is_read()
            && let Some(what) = record.wrong(&ending)
        {
            wrong.push(format!(
                "{} {}: {what}: {:?} {:?}",
                record.api, record.id, ending.reason, ending.said
            ));
        }
    }
    println!("{} records", records.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), records.len(), wrong.join("\n"));
}

#[test]
fn any_cutting_of_a_record_gives_the_same_ending() {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for record in records() {
        let body = record.bytes();
        let whole = record.ending();
        for largest in [16, 1400] {
            let mut reader = record.reader(&body);
            dice.cut(&body, largest).into_iter().for_each(|piece| reader.watch(piece));
            assert_eq!(reader.finish(Close::Eof), whole, "{}", record.id);
        }
    }
}

/// Every cut of every stream. Two threads, since there are forty million.
#[test]
fn no_prefix_of_a_recorded_stream_is_a_success() {
    let records: Vec<Record> =
        records().into_iter().filter(|record| record.stream && record.is_read()).collect();
    let cuts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|half| {
                let records = &records;
                scope.spawn(move || {
                    let own = records.iter().skip(half).step_by(2);
                    own.map(|record| {
                        let body = record.bytes();
                        every_cut(
                            &record.id,
                            &record.wire(&body),
                            record.reader(&body),
                            &body,
                            Close::Eof,
                        )
                    })
                    .sum::<usize>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    println!("{cuts} cuts of {} streams", records.len());
}
