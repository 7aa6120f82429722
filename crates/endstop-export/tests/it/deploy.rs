//! The files for operators and the page about them, compared with the code.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use endstop::Record;
use endstop_export::axiom::DATASET;
use endstop_export::metrics::METRICS;
use endstop_export::otlp::names::{NEW_SOURCE, OLD_SOURCE, TERMS, Use};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap()
}

/// Returns the names of metrics in a text, without the endings of histograms.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split(|c| !is_name(c)).filter(|word| word.starts_with("endstop_"));
    let plain = |name: &str| {
        let known = |name: &str| METRICS.iter().any(|metric| metric.name == name);
        let endings = ["_bucket", "_sum", "_count"].iter();
        let base = endings.filter_map(|ending| name.strip_suffix(ending)).find(|base| known(base));
        base.unwrap_or(name).to_owned()
    };
    names.map(plain).collect()
}

/// Returns the queries of a dashboard.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let text = value.as_str().filter(|_| name == "expr" || name == "query");
                match text {
                    Some(text) => found.push(text.to_owned()),
                    None => queries(value, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| queries(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_metric_of_the_dashboard_is_exported_and_the_other_way_round() {
    let dashboard: Value = serde_json::from_str(&read("deploy/grafana/endstop.json")).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    let shown: BTreeSet<String> = found.iter().flat_map(|query| metrics_in(query)).collect();
    let exported: BTreeSet<String> = METRICS.iter().map(|metric| metric.name.to_owned()).collect();
    assert_eq!(shown, exported);
}

#[test]
fn every_metric_of_the_alerts_is_exported() {
    let exported: BTreeSet<String> = METRICS.iter().map(|metric| metric.name.to_owned()).collect();
    for file in ["alerts.yml", "alerts-test.yml"] {
        let named = metrics_in(&read(&format!("deploy/prometheus/{file}")));
        assert!(
            !named.is_empty() && named.is_subset(&exported),
            "{:?}",
            named.difference(&exported)
        );
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs promtool: set ENDSTOP_SERVERS=1")]
fn the_alerts_pass_their_tests() {
    for arguments in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts-test.yml"],
    ] {
        let mut tool = Command::new("promtool");
        tool.args(arguments).current_dir(root().join("deploy/prometheus"));
        let output = tool.output().expect("apt-get install prometheus");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn the_queries_name_fields_of_events() {
    let fields = event_fields();
    for file in ["finish-reasons.apl", "other-finish-reasons.apl"] {
        let text = read(&format!("deploy/axiom/{file}"));
        assert!(text.contains(&format!("['{DATASET}']")), "{file}");
        let code = text.lines().filter(|line| !line.starts_with("//")).skip(1);
        let known = [
            "summarize",
            "arg_max",
            "by",
            "responses",
            "count",
            "order",
            "desc",
            "where",
            "other",
            "project",
        ];
        for word in
            code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        {
            let is_known = word.is_empty() || known.contains(&word) || fields.contains(word);
            assert!(is_known, "{file}: {word}");
        }
    }
}

/// Returns the fields of an event that is sent to Axiom.
fn event_fields() -> BTreeSet<String> {
    let record = serde_json::to_value(Record::default()).unwrap();
    let own = ["_time", "sentence", "sequence"].into_iter().map(str::to_owned);
    record.as_object().unwrap().keys().cloned().chain(own).collect()
}

#[test]
fn the_page_has_the_tables_of_the_code() {
    let page = root().join("docs/observability.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let mut want = text.clone();
    for (mark, table) in [("metrics", metrics()), ("names", names()), ("fields", fields())] {
        let (before, rest) = want.split_once(&format!("<!-- {mark} -->\n")).unwrap();
        let (_, after) = rest.split_once(&format!("<!-- /{mark} -->")).unwrap();
        want = format!("{before}<!-- {mark} -->\n{table}<!-- /{mark} -->{after}");
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&page, &want).unwrap();
    } else {
        assert_eq!(text, want, "run UPDATE_EXPECT=1 cargo test -p endstop-export deploy");
    }
}

fn metrics() -> String {
    let mut table = String::from("| metric | kind | labels | |\n|---|---|---|---|\n");
    for metric in METRICS {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
        writeln!(table, "| `{name}` | {kind} | {} | {help} |", labels.join(", ")).unwrap();
    }
    table
}

fn names() -> String {
    let mut table = format!("Old: {OLD_SOURCE}. New: {NEW_SOURCE}.\n\n");
    table += "| old | new | kind | type or unit | meaning |\n|---|---|---|---|---|\n";
    for term in TERMS {
        let name = |name: Option<&str>| name.map_or("–".to_owned(), |name| format!("`{name}`"));
        let kind = match term.used_as {
            Use::Attribute => "attribute",
            Use::Histogram => "histogram",
            Use::Counter => "counter",
        };
        let (old, new, form, meaning) = (name(term.old), name(term.new), term.form, term.meaning);
        writeln!(table, "| {old} | {new} | {kind} | `{form}` | {meaning} |").unwrap();
    }
    table
}

fn fields() -> String {
    let fields: Vec<String> =
        event_fields().into_iter().map(|field| format!("`{field}`")).collect();
    format!("{}\n", fields.join(", "))
}
