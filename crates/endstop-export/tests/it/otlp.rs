//! OTLP, read by a receiver on the official Python package, and the names of the published conventions.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use endstop::{Reason, Record, provider};
use endstop_export::otlp::names::{TERMS, Use};
use endstop_export::otlp::{Options, Otlp};
use endstop_export::{Exporter as _, Metrics, Noted};
use endstop_turn::observation::{Observation, Subscriber as _, TerminationDetected};
use serde_json::{Value, json};

use crate::record;

/// The Python that `scripts/test` installs the packages for.
fn python() -> PathBuf {
    let tools = std::env::var_os("ENDSTOP_TOOLS").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/endstop-tools");
    tools.unwrap_or_else(home).join("otlp/bin/python")
}

fn script() -> Command {
    let mut command = Command::new(python());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otlp/receiver.py"));
    command
}

/// A receiver that ends with its owner.
struct Receiver {
    child: Child,
    lines: BufReader<ChildStdout>,
    url: String,
}

impl Receiver {
    fn start() -> Self {
        let child = script().stdout(Stdio::piped()).spawn();
        let mut child =
            child.expect("scripts/test installs the packages of tests/otlp/requirements.txt");
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut port = String::new();
        lines.read_line(&mut port).unwrap();
        Self { child, lines, url: format!("http://127.0.0.1:{}", port.trim()) }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_ne!(line["signal"], "error", "{line}");
        line
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An exporter to a receiver, with these variables.
fn exporter(receiver: &Receiver, variables: &[(&str, &str)]) -> (Otlp, Arc<Metrics>) {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let metrics = Arc::<Metrics>::default();
    let options = Options::read(&receiver.url, None, &variable).unwrap();
    (Otlp::new(options, Some(metrics.clone())).unwrap(), metrics)
}

fn records() -> [Record; 3] {
    [
        record(1, "complete"),
        Record {
            finish_reason: Some("error".into()),
            native_finish_reason: None,
            closed: "eof".into(),
            ..record(2, "cut")
        },
        Record { native_finish_reason: Some("frobnicated".to_owned()), ..record(3, "unknown") },
    ]
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Python packages: set ENDSTOP_SERVERS=1")]
fn a_receiver_on_the_official_package_accepts_spans() {
    let mut receiver = Receiver::start();
    let (mut otlp, _) = exporter(
        &receiver,
        &[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"), ("OTEL_SERVICE_NAME", "my gateway")],
    );
    let records = records();
    let noted: Vec<Noted<'_>> =
        records.iter().map(|record| Noted { record, sequence: 1 }).collect();
    assert!(otlp.send(&noted).unwrap().is_empty());
    let [complete, cut, unknown] = [receiver.next(), receiver.next(), receiver.next()];
    assert_eq!(complete["resource"]["service.name"], "my gateway");
    assert_eq!((&complete["name"], &complete["kind"]), (&json!("chat gpt-4.1"), &json!(3)));
    // The spans of one turn share a trace.
    assert!([&cut, &unknown].iter().all(|span| span["trace_id"] == complete["trace_id"]));
    assert_ne!(cut["span_id"], complete["span_id"]);
    let took = complete["end"].as_u64().unwrap() - complete["start"].as_u64().unwrap();
    assert_eq!(took, 1_500_000_000);
    let attributes = &complete["attributes"];
    for (name, want) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.system", json!("openai")),
        ("gen_ai.provider.name", json!("openai")),
        ("gen_ai.request.model", json!("gpt-4.1")),
        ("gen_ai.request.max_tokens", json!(100)),
        ("gen_ai.request.stream", json!(true)),
        ("gen_ai.response.finish_reasons", json!(["stop"])),
        ("gen_ai.response.time_to_first_chunk", json!(0.02)),
        ("gen_ai.usage.input_tokens", json!(12)),
        ("gen_ai.usage.output_tokens", json!(34)),
        ("gen_ai.usage.cache_read.input_tokens", json!(3)),
        ("gen_ai.usage.reasoning.output_tokens", json!(5)),
        ("endstop.native_finish_reason", json!("stop")),
        ("endstop.reason", json!("complete")),
    ] {
        assert_eq!(attributes[name], want, "{name}");
    }
    assert_eq!((&complete["status"], &cut["status"]), (&json!(0), &json!(2)));
    assert_eq!(cut["attributes"]["gen_ai.response.finish_reasons"], json!(["error"]));
    assert_eq!(cut["attributes"]["error.type"], "cut");
    assert_eq!(unknown["attributes"]["gen_ai.response.finish_reasons"], json!(["frobnicated"]));
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Python packages: set ENDSTOP_SERVERS=1")]
fn a_receiver_on_the_official_package_accepts_metrics_of_both_generations() {
    let old =
        ["endstop.responses", "gen_ai.client.operation.duration", "gen_ai.client.token.usage"];
    let new = [
        "endstop.responses",
        "gen_ai.client.inference.duration",
        "gen_ai.client.inference.operation.input_tokens",
        "gen_ai.client.inference.operation.output_tokens",
        "gen_ai.client.inference.usage.input_tokens",
        "gen_ai.client.inference.usage.output_tokens",
        "gen_ai.client.inference.usage.cache_read.input_tokens",
        "gen_ai.client.inference.usage.reasoning.output_tokens",
    ];
    for (opt_in, names) in [("", &old[..]), ("http,gen_ai_latest_experimental", &new[..])] {
        let mut receiver = Receiver::start();
        let (mut otlp, metrics) = exporter(&receiver, &[("OTEL_SEMCONV_STABILITY_OPT_IN", opt_in)]);
        for (record, reason) in
            records().iter().zip([Reason::Complete, Reason::Cut, Reason::Unknown])
        {
            let ended = TerminationDetected::new(record, reason, None);
            metrics.event(&Observation::TerminationDetected(ended));
        }
        otlp.tend().unwrap();
        let found: Vec<Value> = names.iter().map(|_| receiver.next()).collect();
        for (metric, name) in found.iter().zip(names) {
            assert_eq!(metric["name"], *name);
            assert_eq!(metric["temporality"], 2, "{name}");
            let points = metric["points"].as_array().unwrap();
            assert!(!points.is_empty(), "{name}");
            let term = TERMS.iter().find(|term| [term.old, term.new].contains(&Some(*name)));
            if let Some(term) = term {
                let kind = if term.used_as == Use::Counter { "sum" } else { "histogram" };
                assert_eq!((&metric["kind"], &metric["unit"]), (&json!(kind), &json!(term.form)));
            }
        }
        let duration = &found[1]["points"];
        let counts: u64 =
            duration.as_array().unwrap().iter().map(|point| point["count"].as_u64().unwrap()).sum();
        assert_eq!(counts, 3);
        assert_eq!(duration[0]["bounds"].as_array().unwrap().len(), 14);
        let errors = duration
            .as_array()
            .unwrap()
            .iter()
            .filter(|point| point["attributes"]["error.type"] == "cut");
        assert_eq!(errors.count(), 1);
        assert_eq!(found[0]["points"].as_array().unwrap().len(), 3);
        // Provider and model are named as the generation names them.
        let has_system = duration[0]["attributes"].get("gen_ai.system").is_some();
        assert_eq!(has_system, opt_in.is_empty());
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs Python packages: set ENDSTOP_SERVERS=1")]
fn the_old_names_are_those_of_the_published_package() {
    let output = script().arg("names").output();
    let output = output.expect("scripts/test installs the packages of tests/otlp/requirements.txt");
    let published: Value = serde_json::from_slice(&output.stdout).unwrap();
    let has = |list: &str, name: &str| published[list].as_array().unwrap().contains(&json!(name));
    for term in TERMS {
        let Some(name) = term.old else { continue };
        match term.used_as {
            Use::Attribute => assert!(has("attributes", name), "{name}"),
            Use::Histogram => {
                let found = json!({ "name": name, "kind": "histogram", "unit": term.form });
                assert!(published["metrics"].as_array().unwrap().contains(&found), "{name}");
            }
            Use::Counter => assert_eq!(name, "", "the package has no such counter"),
        }
    }
    // The newer repository has one more.
    let known = |name: &str| has("providers", name) || name == "moonshot_ai";
    for provider in provider::ALL.iter().filter(|provider| !provider.opentelemetry.is_empty()) {
        assert!(known(provider.opentelemetry), "{}", provider.id);
    }
}
