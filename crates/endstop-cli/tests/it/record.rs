//! `endstop report`, `endings`, `show`, `tail`, `migrate`, `backfill`.

use std::time::{SystemTime, UNIX_EPOCH};

use endstop::Record;
use endstop_store::Entry;
use serde_json::Value;

use crate::{Folder, endstop, endstop_with, fails, stdout};

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn id(number: u64) -> String {
    format!("01a1e264f65b7386{number:016x}")
}

fn record(number: u64, provider: &str, native: &str, finish_reason: &str, reason: &str) -> Entry {
    let word = |word: &str| (!word.is_empty()).then(|| word.into());
    let record = Record {
        id: id(number),
        turn_id: id(number / 2 * 2),
        attempt: u32::try_from(number % 2).unwrap() + 1,
        created_at: now() - 60_000 - number,
        team_id: Some("blue".into()),
        provider: provider.to_owned().into(),
        model: Some(format!("{provider}-model")),
        native_finish_reason: word(native),
        native_field: Some("finish_reason".into()),
        finish_reason: word(finish_reason).map(Into::into),
        reason: reason.to_owned().into(),
        confidence: "high".into(),
        closed: "proven".into(),
        action: "passed".into(),
        tokens_out: Some(10),
        total_us: 20_000,
        rules: endstop::record::rules(&endstop::provider::OPENAI),
        ..Record::default()
    };
    Entry { sequence: 1, record }
}

/// A store with six endings.
fn store(folder: &Folder) -> String {
    let url = format!("sqlite:{}", folder.write("placeholder", "").replace("placeholder", "e.db"));
    let mut store = endstop_store::open(&url).unwrap();
    store.migrate().unwrap();
    let entries = [
        record(0, "openai", "stop", "stop", "complete"),
        record(1, "openai", "stop", "stop", "complete"),
        record(2, "openai", "length", "length", "output_limit"),
        record(4, "anthropic", "end_turn", "stop", "complete"),
        record(5, "google", "MAX_TOKENS", "length", "output_limit"),
        record(6, "openai", "frobnicated", "other", "unknown"),
    ];
    store.load(&entries).unwrap();
    url
}

#[test]
fn a_report_counts_and_draws() {
    let folder = Folder::new("report");
    let url = store(&folder);
    let text = stdout(&endstop(&["report", "--store", &url, "--by", "provider,reason"], b""));
    assert!(text.starts_with("responses: 6  "), "{text}");
    for line in [
        "openai     complete               2  33.3 %    0.0 %    48 ms  ████████████████████",
        "google     output_limit           1  16.7 %  100.0 %        -  ██████████",
        "problems   truncated 33.3 %, unclear 16.7 %",
        "unknown    openai openai-model `frobnicated` in `finish_reason`: count 1, ",
        &format!("example    openai unknown: endstop show --store {url} {}", id(6)),
        &format!("example    google output_limit: endstop show --store {url} {}", id(5)),
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("\nnew "), "all words of a new store are new: {text}");
    let matrix = stdout(&endstop(&["report", "--store", &url], b""));
    for line in [
        "provider      count      bad      p95  complete  output_limit   unknown",
        "openai            4   50.0 %    48 ms         2             1         1",
        "all               6   50.0 %    48 ms         3             2         1",
    ] {
        assert!(matrix.contains(line), "{line}\n{matrix}");
    }
    for (group, number) in
        [("openai output_limit", 2), ("openai unknown", 6), ("google output_limit", 5)]
    {
        let line = format!("example    {group}: endstop show --store {url} {}\n", id(number));
        assert!(matrix.contains(&line), "{line}\n{matrix}");
    }
    // Columns that do not fit are added up.
    let narrow = endstop_with(&["report", "--store", &url], b"", &[("COLUMNS", "60")]);
    assert!(stdout(&narrow).contains("  others\n"), "{}", stdout(&narrow));
    let unknown = text.find("unknown ").unwrap();
    assert!(unknown < text.find("provider ").unwrap(), "unknown words come first: {text}");
    let json = endstop(&["report", "--store", &url, "--by", "finish_reason", "--json"], b"");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let counts: Vec<(&str, u64)> = json["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (group["finish_reason"].as_str().unwrap(), group["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(counts, [("stop", 3), ("length", 2), ("other", 1)]);
    assert_eq!(json["total"]["tokens_of_cut"], 20);
    let words = json["words"].as_array().unwrap();
    assert!(words.iter().any(|word| word["word"] == "frobnicated" && word["reason"] == "unknown"));
    assert_eq!(json["groups"][1]["examples"]["output_limit"], id(2));
    assert_eq!(json["groups"][2]["examples"]["unknown"], id(6));
    assert_eq!(json["groups"][0].get("examples"), None);
    // Of a single response no percentile is known, in any form of the report.
    assert!(json["groups"][0]["total_us"]["p95"].is_u64(), "{json}");
    assert_eq!(json["groups"][2]["total_us"]["p95"], Value::Null, "{json}");
    let csv = stdout(&endstop(&["report", "--store", &url, "--by", "reason", "--csv"], b""));
    let mut lines = csv::Reader::from_reader(csv.as_bytes());
    let at = lines.headers().unwrap().iter().position(|name| name == "total_p95_us").unwrap();
    for line in lines.records() {
        let line = line.unwrap();
        assert_eq!(line.get(at) == Some(""), line.get(0) == Some("unknown"), "{csv}");
    }
    let csv = stdout(&endstop(&["report", "--store", &url, "--by", "team", "--csv"], b""));
    assert!(csv.starts_with("team,count,share,") && csv.contains("\nblue,6,1.000000,"), "{csv}");
}

/// The limit leaves out providers of the matrix, and no part of those that it shows.
#[test]
fn a_limit_leaves_the_counts_of_the_matrix_whole() {
    let folder = Folder::new("matrix-limit");
    let url = store(&folder);
    let matrix = stdout(&endstop(&["report", "--store", &url, "--limit", "1"], b""));
    for line in [
        "openai           4   50.0 %    48 ms         2             1         1",
        "all              6   50.0 %    48 ms         3             2         1",
    ] {
        assert!(matrix.contains(line), "{matrix}");
    }
    assert!(matrix.contains("\n… and 2 more providers; raise --limit to see more\n"), "{matrix}");
    let two = stdout(&endstop(&["report", "--store", &url, "--limit", "2"], b""));
    assert!(two.contains("… and 1 more provider;"), "{two}");
    assert!(!matrix.contains("\nanthropic"), "{matrix}");
}

/// Words are counted in the period and by the filter of the report, like everything else.
#[test]
fn words_are_those_of_the_report() {
    let folder = Folder::new("report-words");
    let url = store(&folder);
    let mut later = record(8, "openai", "frobnicated", "other", "unknown");
    later.record.created_at = now();
    let mut new = record(10, "google", "STOP", "stop", "complete");
    new.record.created_at = now();
    let mut writer = endstop_store::open(&url).unwrap();
    writer.load(&[later, new]).unwrap();
    drop(writer);
    let report =
        |more: &[&str]| stdout(&endstop(&[&["report", "--store", &url][..], more].concat(), b""));
    let unknown = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("in `finish_reason`"));
        lines.map(|line| line.split(", ").next().unwrap().to_owned()).collect()
    };
    let frobnicated = |count: u64| {
        format!("unknown    openai openai-model `frobnicated` in `finish_reason`: count {count}")
    };
    assert_eq!(unknown(&report(&["--since", "1h"])), [frobnicated(2)]);
    let new = "new        google google-model `STOP` in `finish_reason`: count 1".to_owned();
    assert_eq!(unknown(&report(&["--since", "50s"])), [frobnicated(1), new]);
    assert_eq!(unknown(&report(&["--since", "1h", "--until", "50s"])), [frobnicated(1)]);
    for more in [["--provider", "anthropic"], ["--team", "red"], ["--reason", "complete"]] {
        assert_eq!(unknown(&report(&more)), Vec::<String>::new(), "{more:?}");
    }
}

/// Groups by what stores do not filter by have examples too.
#[test]
fn every_bad_group_has_an_example() {
    let folder = Folder::new("examples");
    let url = store(&folder);
    for (by, groups) in [
        ("status", vec![("null output_limit", 2)]),
        ("action,dialect", vec![("passed  output_limit", 2)]),
        ("streamed,model", vec![("false google-model output_limit", 5)]),
        ("team,finish_reason", vec![("blue length output_limit", 2), ("blue other unknown", 6)]),
    ] {
        let text = stdout(&endstop(&["report", "--store", &url, "--by", by], b""));
        for (group, number) in groups {
            let line = format!("example    {group}: endstop show --store {url} {}\n", id(number));
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
    let by_hour = stdout(&endstop(&["report", "--store", &url, "--by", "hour"], b""));
    assert!(by_hour.contains(&id(2)) && by_hour.contains("example "), "{by_hour}");
    let ids = [id(2), id(5)];
    let shown = stdout(&endstop(&["show", "--store", &url, &ids[0], &ids[1]], b""));
    assert!(shown.contains("MAX_TOKENS") && shown.contains(&ids[0]), "{shown}");
    assert_eq!(shown.matches("\n\n").count(), 1, "{shown}");
    let json = endstop(&["show", "--json", "--store", &url, &ids[0], &ids[1]], b"").stdout;
    let shown: Vec<Value> =
        serde_json::Deserializer::from_slice(&json).into_iter().map(Result::unwrap).collect();
    let shown: Vec<&str> = shown.iter().map(|one| one["ending"]["id"].as_str().unwrap()).collect();
    assert_eq!(shown, ids);
    fails(&endstop(&["show", "--store", &url, &ids[0], &id(9)], b""), 1, "no ending with the id");
}

#[test]
fn a_condition_fails_the_command() {
    let folder = Folder::new("fail-if");
    let url = store(&folder);
    let ask = |condition: &str| endstop(&["report", "--store", &url, "--fail-if", condition], b"");
    assert_eq!(ask("output_limit>50%").status.code(), Some(0));
    fails(
        &ask("output_limit>2%"),
        21,
        "condition met: output_limit>2% (2 of 6 responses, 33.33 %)",
    );
    let wrong = ask("colour>2%");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("unknown name `colour`: expected"));
    let told = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(
        (told.matches(" cut").count(), told.matches(" truncated").count()),
        (1, 1),
        "{told}"
    );
}

/// Endings outside of the period or of the filter, also those of the same hour and of the period before,
/// meet no condition.
#[test]
fn a_condition_is_not_met_by_what_is_outside() {
    let folder = Folder::new("fail-if-outside");
    let url = store(&folder);
    let conditions = ["output_limit>0", "truncated>0", "unknown>0", "unclear>0%"];
    let ask = |more: &[&str], condition: &str| {
        let report = ["report", "--store", &url, "--fail-if", condition];
        endstop(&[&report[..], more].concat(), b"").status.code()
    };
    for condition in conditions {
        // All are a minute old.
        assert_eq!(ask(&["--since", "1h"], condition), Some(21), "{condition}");
        for more in [
            &["--since", "30s"][..],
            &["--since", "50s", "--compare"],
            &["--since", "7d", "--until", "1h"],
            &["--since", "1h", "--provider", "anthropic"],
            &["--since", "1h", "--team", "red"],
        ] {
            assert_eq!(ask(more, condition), Some(0), "{condition} {more:?}");
        }
    }
}

#[test]
fn endings_are_listed_and_shown() {
    let folder = Folder::new("endings");
    let url = store(&folder);
    let list = |arguments: &[&str]| {
        stdout(&endstop(&[&["endings", "--store", &url], arguments].concat(), b""))
    };
    assert_eq!(list(&[]).lines().count(), 1 + 6);
    let head = "time UTC       provider model              reason              native         finish       \
                action  status took    tokens team   id\n";
    assert!(list(&[]).starts_with(head), "{}", list(&[]));
    let narrow = endstop_with(&["endings", "--store", &url], b"", &[("COLUMNS", "80")]);
    let narrow = stdout(&narrow);
    let head = "time UTC       reason       action  status took    tokens team   id\n";
    assert!(narrow.starts_with(head), "{narrow}");
    assert!(narrow.lines().all(|line| line.len() <= 80), "{narrow}");
    // The beginning of an id is enough.
    let start = narrow.lines().nth(1).unwrap().rsplit(' ').next().unwrap();
    assert!(id(0).starts_with(start) && start.len() == 15, "{narrow}");
    assert_eq!(list(&["--limit", "2"]).lines().count(), 1 + 2);
    let other = list(&["--finish-reason", "other"]);
    assert!(other.contains("openai") && other.contains("frobnicated"), "{other}");
    assert_eq!(list(&["--model", "open*"]).lines().count(), 1 + 4);
    assert_eq!(list(&["--model", "open%"]), "no matching endings\n");
    assert_eq!(list(&["--model", "' OR 1=1 --"]), "no matching endings\n");
    let lines = list(&["--provider", "google", "--json"]);
    let line: Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(
        (&line["native_finish_reason"], &line["finish_reason"]),
        (&Value::from("MAX_TOKENS"), &Value::from("length"))
    );
    let shown = stdout(&endstop(&["show", "--store", &url, &id(5)], b""));
    assert!(
        shown.contains("MAX_TOKENS") && shown.contains(&format!("attempt 1           {}", id(4))),
        "{shown}"
    );
    assert!(shown.contains("Z\n") && shown.contains("total    "), "{shown}");
    let wide = endstop_with(&["endings", "--store", &url], b"", &[("COLUMNS", "200")]);
    let wide = stdout(&wide);
    assert!(wide.starts_with("time                 provider     model"), "{wide}");
    assert!(wide.contains("Z openai       openai-model             complete"), "{wide}");
    assert!(!shown.contains("total us"), "{shown}");
    fails(&endstop(&["show", "--store", &url, &id(9)], b""), 1, "no ending with the id");
    let tail = stdout(&endstop(&["tail", "--store", &url, "--count", "0"], b""));
    assert_eq!(tail.lines().count(), 1 + 6, "{tail}");
}

#[test]
fn mistakes_are_told_in_one_line() {
    let folder = Folder::new("wrong-store");
    let none = format!("sqlite:{}/none.db", folder.0.display());
    for command in ["report", "endings"] {
        fails(&endstop(&[command, "--store", &none], b""), 1, "none.db");
        let output = endstop(&[command, "--store", "mysql://u:sk-canary@h/d"], b"");
        fails(&output, 2, "invalid store");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("creates it"));
        let output = endstop(&[command, "--store", "sqlite:x", "--config", "/none.toml"], b"");
        assert!(!output.status.success());
        assert!(!String::from_utf8_lossy(&output.stderr).contains("sk-canary"));
    }
    let url = store(&folder);
    fails(&endstop(&["report", "--store", &url, "--by", "reason,reason,team,key,day"], b""), 2, "");
    let output = endstop(&["report", "--store", &url, "--by", "modle"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("; did you mean `model`?"));
    for (name, value, said) in [
        ("--reason", "output_limits", "did you mean `output_limit`?"),
        ("--finish-reason", "lenght", "did you mean `length`?"),
    ] {
        for command in ["report", "endings", "tail"] {
            let output = endstop(&[command, "--store", &url, name, value], b"");
            fails(&output, 2, said);
            assert_eq!(stdout(&output), "", "{command}");
        }
    }
    fails(&endstop(&["endings", "--store", &url, "--action", "pased"], b""), 2, "`passed`");
    fails(&endstop(&["report", "--store", &url, "--tz", "Mars"], b""), 2, "unknown time zone");
    for command in ["report", "endings"] {
        let output = endstop(&[command, "--store", &url, "--limit", "0"], b"");
        fails(&output, 2, "the limit is from 1 to");
    }
    let output = endstop(&["report", "--store", &url, "--since", "1h", "--until", "2h"], b"");
    fails(&output, 2, "--since must be before --until");
    let output = endstop(&["backfill", "--from", "sqlite:/no/such.db"], b"");
    fails(&output, 1, "endstop: the file `/no/such.db` does not exist\n");
    let output = endstop(&["report", "--store", &url, "--since", "yesterday"], b"");
    assert!(String::from_utf8_lossy(&output.stderr).contains("invalid time `yesterday`"));
}

#[test]
fn the_documentation_lists_how_responses_close() {
    let page = include_str!("../../../../docs/record.md");
    let (_, part) = page.split_once("\n### Closed and cause\n").unwrap();
    for closed in endstop::Closed::ALL {
        assert!(part.contains(&format!("`{}`", closed.word())), "{}", closed.word());
    }
}

#[test]
fn a_report_that_cannot_be_written_names_standard_output() {
    let folder = Folder::new("report-full");
    let url = store(&folder);
    for command in ["report", "endings"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_endstop"))
            .args([command, "--store", &url])
            .stdout(full)
            .output()
            .unwrap();
        fails(&output, 1, "cannot write to standard output: No space left on device");
    }
}

#[test]
fn tables_are_made_once_and_written_out() {
    let folder = Folder::new("migrate");
    let url = format!("sqlite:{}/new.db", folder.0.display());
    assert!(stdout(&endstop(&["migrate", "--store", &url], b"")).starts_with("applied 0001"));
    assert!(stdout(&endstop(&["migrate", "--store", &url], b"")).ends_with("is up to date\n"));
    let dir = folder.0.join("out");
    let files = stdout(&endstop(&["migrate", "--export", dir.to_str().unwrap()], b""));
    let first = std::fs::read_to_string(files.lines().next().unwrap()).unwrap();
    assert!(first.contains("gateway_requests") && first.contains("IF NOT EXISTS"), "{first}");
}

#[test]
fn rows_of_others_are_filled_in_and_own_ones_judged_again() {
    let folder = Folder::new("backfill");
    let file = folder.write(
        "calls.jsonl",
        "{\"provider\":\"openai\",\"stop\":\"length\"}\n{\"provider\":\"anthropic\",\"stop\":\"end_turn\"}\n",
    );
    let fill = |more: &[&str]| {
        let arguments = ["backfill", "--from", &file, "--native-column", "stop", "--json"];
        let output = endstop(&[&arguments, more].concat(), b"");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let dry = fill(&["--dry-run"]);
    assert_eq!((&dry["rows"], &dry["changed"]), (&Value::from(2), &Value::from(2)));
    let done = fill(&[]);
    let copy = std::fs::read_to_string(done["file"].as_str().unwrap()).unwrap();
    assert!(copy.contains("\"stop\":\"length\"") && copy.contains("\"finish_reason\":\"stop\""));

    // A column that is not there leaves nothing behind.
    let csv = folder.write("calls.csv", "provider,stop\nopenai,length\n");
    let wrong = ["backfill", "--from", &csv, "--native-column", "stopped"];
    fails(&endstop(&wrong, b""), 1, "has no column `stopped`");
    assert!(!std::path::Path::new(&csv.replace(".csv", ".endstop.csv.part")).exists());

    // A row that older rules of Endstop judged wrongly.
    let url = format!("sqlite:{}/own.db", folder.0.display());
    let mut store = endstop_store::open(&url).unwrap();
    store.migrate().unwrap();
    let mut old = record(0, "openai", "length", "other", "unknown");
    old.record.rules = 0;
    old.record.dialect = "openai-chat".into();
    store.load(&[old]).unwrap();
    let output = stdout(&endstop(&["backfill", "--from", &url], b""));
    assert!(output.contains("rows written by Endstop: 1 changed under newer rules"), "{output}");
    let row = store.ending(&id(0)).unwrap().unwrap();
    assert_eq!(
        (&*row.record.reason, row.record.rules),
        ("output_limit", endstop::record::rules(&endstop::provider::OPENAI))
    );
    assert_eq!(row.previous_reason.as_deref(), Some("unknown"));
    assert_eq!(row.record.native_finish_reason.as_deref(), Some("length"));
}
