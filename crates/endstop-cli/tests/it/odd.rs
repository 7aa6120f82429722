//! Odd and hostile input: what cannot be read is counted, listed and skipped, and the rest is read.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::{CUT, Folder, WHOLE, endstop, fails, reasons, stdout};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn record(changes: Value) -> String {
    let mut record = json!({ "id": "r", "provider": "openai", "api": "openai-chat", "status": 200,
                             "content_type": "text/event-stream", "body": WHOLE });
    let fields = record.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        fields.insert(key.clone(), value.clone());
    }
    record.to_string()
}

/// An odd field is ignored and named, and the run goes on.
#[test]
fn one_odd_field_never_stops_a_run() {
    let folder = Folder::new("odd-fields");
    let odd = [
        json!({ "request_max_tokens": -1 }),
        json!({ "request_max_tokens": 1.5 }),
        json!({ "request_max_tokens": "many" }),
        json!({ "status": "fine" }),
        json!({ "status": 70_000 }),
        json!({ "status": null, "stream": null, "model": null, "host": null }),
        json!({ "stream": "yes" }),
        json!({ "model": 4 }),
        json!({ "provider": ["openai"] }),
        json!({ "id": { "a": 1 } }),
        json!({ "url_path": false, "host": 1, "content_type": [null] }),
        json!({ "nested": [[[null, { "a": [null] }]]] }),
    ];
    let lines: Vec<String> = odd.into_iter().map(record).collect();
    let file = folder.write("odd.jsonl", lines.join("\n"));
    let output = endstop(&["replay", "--json", &file], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found = reasons(&output);
    assert_eq!(found.len(), lines.len());
    assert!(found.iter().all(|(_, reason)| reason == "complete"), "{found:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("fields ignored") && told.contains("`request_max_tokens` of r"),
        "{told}"
    );
}

/// Errors name the option, its value and what is allowed.
#[test]
fn numbers_that_are_none_get_a_plain_message() {
    for (arguments, option) in [
        (&["check", "--max-tokens", "-1"][..], "--max-tokens"),
        (&["tail", "--count", "x"], "--count"),
        (&["sim", "--pace", "-5"], "--pace"),
    ] {
        let output = endstop(arguments, b"");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(option) && text.contains("expected a whole number, 0 or"), "{text}");
    }
    for (arguments, option) in [
        (&["check", "--choices", "two"][..], "--choices"),
        (&["check", "--choices", "0"], "--choices"),
        (&["decide", "--model-max", "1.5"], "--model-max"),
        (&["decide", "--model-max", "0"], "--model-max"),
        (&["decide", "--window", "0"], "--window"),
        (&["decide", "--window", "-1"], "--window"),
    ] {
        let output = endstop(arguments, b"");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(option) && text.contains("expected a whole number, 1 or"), "{text}");
    }
    let output = endstop(&["decide", "--cost", "-1"], b"");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("expected an amount of USD, 0 or more"), "{text}");
    let output = endstop(&["check", "--status", "x"], b"");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("expected an HTTP status from 100 to 599"), "{text}");
}

#[test]
fn what_cannot_be_read_is_named_and_passed_over() {
    let folder = Folder::new("odd-lines");
    let mut lines: Vec<Vec<u8>> = [
        record(json!({ "id": "first" })),
        "nonsense".to_owned(),
        "[1, 2]".to_owned(),
        "null".to_owned(),
        record(json!({ "id": "bodyless", "body": null })),
        record(json!({ "id": "numeric", "body": 7 })),
        record(json!({ "id": "encoded", "body": "no base64!", "encoding": "base64" })),
        record(json!({ "id": "rotated", "encoding": "rot13" })),
        record(json!({ "id": "numbered", "encoding": 64 })),
        "{\"body\": \"cut".to_owned(),
        format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
    ]
    .map(String::into_bytes)
    .into();
    lines.push(b"{\"body\": \"\xff\xfe\"}".to_vec());
    lines.push(record(json!({ "id": "last", "body": CUT })).into_bytes());
    let file = folder.write("odd.jsonl", lines.join(&b'\n'));
    let output = endstop(&["replay", &file], b"");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(22), "{text}");
    for says in [
        "responses                 3",
        "could not be read        10",
        "odd.jsonl:2: not JSON",
        "odd.jsonl:3: not a recorded response: expected an object with `body`",
        "bodyless: no recorded body",
        "numeric: no recorded body",
        "encoded: the body is not base64",
        "rotated: unknown `encoding`: expected text, utf-8 or base64",
        "numbered: unknown `encoding`",
        "odd.jsonl:2: not JSON: invalid at column 2",
        "odd.jsonl:10: not JSON: it is truncated",
        "odd.jsonl:11: not JSON",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    // The code of `--fail-on` has priority over that of unread recordings.
    assert_eq!(endstop(&["replay", "--fail-on", "cut", &file], b"").status.code(), Some(19));
    let output = endstop(&["replay", "--json", &file], b"");
    assert_eq!(reasons(&output).len(), 3);
    assert_eq!(output.status.code(), Some(22));
}

#[test]
fn the_list_of_what_cannot_be_read_is_bounded() {
    let folder = Folder::new("odd-many");
    let file = folder.write("odd.jsonl", format!("{}\n{}", record(json!({})), "x\n".repeat(5000)));
    let output = endstop(&["replay", &file], b"");
    let text = stdout(&output);
    assert!(
        text.contains("could not be read      5000") && text.contains("… and 4980 more"),
        "{text}"
    );
    assert!(text.lines().count() < 40, "{text}");
}

#[test]
fn a_line_that_is_too_long_is_passed_over() {
    let folder = Folder::new("odd-long");
    let long = "x".repeat(65 << 20);
    let lines = format!("{}\n{{\"body\":\"{long}\"}}\n{}\n", record(json!({})), record(json!({})));
    let output = endstop(&["replay", &folder.write("long.jsonl", lines)], b"");
    let text = stdout(&output);
    assert!(text.contains("long.jsonl:2: the line is longer than 64 MiB"), "{text}");
    assert!(text.contains("responses                 2"), "{text}");
    assert_eq!(output.status.code(), Some(22));
}

#[test]
fn a_truncated_gzip_file_gives_what_it_holds_and_the_next_file_is_read() {
    let folder = Folder::new("odd-gzip");
    let noise: Vec<String> = (0..4000_u32)
        .map(|n| record(json!({ "id": format!("{n}-{}", n.wrapping_mul(2_654_435_761)) })))
        .collect();
    let mut bytes = gzip(noise.join("\n").as_bytes());
    bytes.truncate(bytes.len() / 2);
    let cut = folder.write("a.jsonl.gz", bytes);
    let whole = folder.write("b.jsonl", record(json!({ "id": "after" })));
    let output = endstop(&["replay", "--json", &cut, &whole], b"");
    let found = stdout(&output);
    assert!(found.lines().count() > 2 && found.contains("\"after\""), "{}", found.lines().count());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the gzip data is truncated or corrupt"), "{told}");
    assert_eq!(output.status.code(), Some(22));
}

/// Tests interactions in one cassette that are each invalid in another way.
#[test]
fn odd_cassettes_are_read_as_far_as_they_go() {
    let folder = Folder::new("odd-vcr");
    let answer = "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}";
    let request = json!({ "uri": "https://api.openai.com/v1/chat/completions", "body": "{\"max_tokens\":-1,\"n\":-2,\"model\":{}}" });
    let with = |response: Value| json!({ "request": request, "response": response });
    let encoded = |body: &[u8], encoding: &str| {
        use base64::Engine as _;
        let body = base64::engine::general_purpose::STANDARD.encode(body);
        json!({ "status": 200, "headers": { "Content-Encoding": [encoding] }, "body": { "base64_string": body } })
    };
    let zipped = gzip(answer.repeat(50).as_bytes());
    let interactions = json!({ "interactions": [
        with(json!({ "status": { "code": 200 }, "body": { "string": answer } })),
        null,
        7,
        {},
        { "request": request },
        { "request": request, "response": null },
        { "request": request, "response": [1] },
        with(json!({ "status": { "code": 200 } })),
        with(json!({ "status": { "code": 200 }, "body": null })),
        with(json!({ "status": { "code": 200 }, "body": { "string": null } })),
        with(json!({ "status": { "code": 200 }, "body": { "base64_string": "!" } })),
        with(encoded(b"\x00\xff\xfe", "br")),
        with(encoded(b"\x1f\x8b\x08", "gzip")),
        // These can be judged.
        with(json!({ "status": [], "headers": 4, "body": answer })),
        with(json!({ "status": { "code": -1 }, "headers": [null, { "name": 1 }], "body": answer })),
        { "request": [], "response": { "status": 200, "body": answer } },
        { "request": { "uri": 4, "body": [null] }, "response": { "status": 200, "body": answer } },
        with(encoded(answer.as_bytes(), "GZIP")),
        with(encoded(&gzip(answer.as_bytes()), "GZIP")),
        with(encoded(&zipped[..zipped.len() / 2], "gzip")),
        with(json!({ "status": 500 })),
    ] });
    let file = folder.write("odd.json", interactions.to_string());
    let output = endstop(&["replay", "--json", &file], b"");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(22), "{told}");
    assert!(told.contains("could not be read        12"), "{told}");
    for says in [
        "odd.json#1: no response was recorded",
        "odd.json#7: no body was recorded",
        "odd.json#10: the body is not base64",
        "odd.json#11: the body cannot be decompressed (br)",
        "odd.json#12: the body cannot be decompressed (gzip)",
        "`status` of ",
    ] {
        assert!(told.contains(says), "{says}\n{told}");
    }
    let found: Vec<String> = reasons(&output).into_iter().map(|(_, reason)| reason).collect();
    let (last, first) = found.split_last().unwrap();
    assert_eq!(last, "failed");
    assert_eq!(found.len(), 9, "{found:?}");
    assert!(first[..6].iter().all(|reason| reason == "complete"), "{found:?}");
}

#[test]
fn hostile_yaml_is_refused_and_the_rest_is_read() {
    let folder = Folder::new("odd-yaml");
    let whole = folder.write("b.jsonl", record(json!({})));
    let laughs: String = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        format!("{text}a{n}: &a{n} [*a{m}, *a{m}]\n", m = n - 1)
    });
    for (name, text, says) in [
        ("deep.yaml", "[".repeat(200_000), "not YAML"),
        (
            "nested.yaml",
            format!("{}{}", "[".repeat(200), "]".repeat(200)),
            "nested deeper than 128",
        ),
        ("block.yaml", format!("{}x", "- ".repeat(100_000)), "nested deeper than 128"),
        ("laughs.yaml", laughs, "more than 10 million values"),
        ("open.yaml", "a: [".to_owned(), "not YAML"),
        ("none.yaml", String::new(), "0 "),
        ("alias.yaml", "interactions: [*nobody]".to_owned(), "not YAML"),
    ] {
        let file = folder.write(name, text);
        let output = endstop(&["replay", &file, &whole], b"");
        let text = stdout(&output);
        assert!(text.contains("responses                 1"), "{name} {output:?}");
        if name == "none.yaml" {
            continue;
        }
        assert_eq!(output.status.code(), Some(22), "{name}: {text}");
        assert!(text.contains(says), "{name}: {text}");
    }
    let text = b"interactions:\n- request: {uri: 'https://api.openai.com/v1/chat/completions'}\n  response: {status: 200, body: '{\"choices\":[{\"message\":{\"content\":\"\xff\"},\"finish_reason\":\"stop\"}]}'}\n";
    let output = endstop(&["replay", "--json", &folder.write("latin.yaml", text)], b"");
    assert_eq!(reasons(&output), [("openai".to_owned(), "complete".to_owned())]);
}

#[test]
fn odd_har_is_read_as_far_as_it_goes() {
    let folder = Folder::new("odd-har");
    let answer = "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}";
    let entry = |response: Value| json!({ "request": { "url": "https://api.openai.com/v1/chat/completions", "postData": { "text": "{\"max_tokens\":-1}" } }, "response": response });
    let har = json!({ "log": { "entries": [
        entry(json!({ "status": 200, "content": { "text": answer } })),
        entry(json!({ "status": -1, "content": { "text": answer, "mimeType": 4 } })),
        { "response": { "status": 200, "content": { "text": answer } }, "request": null },
        null,
        {},
        entry(json!(null)),
        entry(json!({ "status": 200 })),
        entry(json!({ "status": 200, "content": { "size": 10 } })),
        entry(json!({ "status": 200, "content": { "text": "?", "encoding": "base64" } })),
    ] } });
    let output = endstop(&["replay", "--json", &folder.write("x.har", har.to_string())], b"");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(22), "{told}");
    assert_eq!(reasons(&output).len(), 3, "{told}");
    assert!(told.contains("could not be read         6"), "{told}");
    assert!(told.contains("x.har#7: no body was recorded in `content.text`"), "{told}");
    let bad = folder.write("y.har", "{\"log\":{\"entries\":{}}}");
    fails(&endstop(&["replay", &bad], b""), 1, "y.har: not a HAR file: `log.entries` is missing");
}

#[test]
fn a_byte_order_mark_is_no_obstacle() {
    let folder = Folder::new("odd-mark");
    let answer = "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}";
    let cassette = json!({ "interactions": [{ "request": { "uri": "https://api.openai.com/v1/chat/completions" }, "response": { "status": 200, "body": answer } }] });
    let yaml = format!(
        "interactions:\n- request: {{uri: 'https://api.openai.com/v1/chat/completions'}}\n  response: {{status: 200, body: '{answer}'}}\n"
    );
    for (name, text) in
        [("a.jsonl", record(json!({}))), ("b.json", cassette.to_string()), ("c.yaml", yaml)]
    {
        let output =
            endstop(&["replay", "--json", &folder.write(name, format!("\u{feff}{text}"))], b"");
        assert_eq!(reasons(&output), [("openai".to_owned(), "complete".to_owned())], "{name}");
    }
}

#[test]
fn a_cut_body_is_not_called_a_stream() {
    let body = "{\"choices\":[{\"message\":{\"content\":\"Hi";
    let output = endstop(&["check", "--provider", "openai"], body.as_bytes());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(19));
    assert!(text.contains("the response was truncated"), "{text}");
    assert!(!text.contains("stream"), "{text}");
}

/// Runs the command in a terminal that `script` makes.
#[cfg(target_os = "linux")]
#[test]
fn a_dumb_terminal_gets_no_colours() {
    let folder = Folder::new("odd-dumb");
    let body = folder.write("body.sse", WHOLE);
    let shown = |term: &str| {
        let command = format!("{} check --provider openai {body}", env!("CARGO_BIN_EXE_endstop"));
        let output = std::process::Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", term)
            .env_remove("NO_COLOR")
            .stdin(std::process::Stdio::null())
            .output();
        output.ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // The test needs `script`, which `scripts/test` requires.
    let required = std::env::var_os("ENDSTOP_SERVERS").is_some_and(|value| value == "1");
    let (dumb, other) = (shown("dumb"), shown("xterm"));
    assert!(!required || dumb.is_some(), "`script` is missing: install bsdutils or util-linux");
    if let (Some(dumb), Some(other)) = (dumb, other) {
        assert!(dumb.contains("complete") && !dumb.contains('\x1b'), "{dumb:?}");
        assert!(other.contains("\x1b[1;32m"), "{other:?}");
    }
}

#[test]
fn a_folder_may_hold_other_files() {
    let folder = Folder::new("odd-folder");
    folder.write("package.json", "{\"name\":\"x\"}");
    folder.write("notes.yaml", "a: 1");
    folder.write("r.jsonl", record(json!({})));
    let output = endstop(&["replay", folder.0.to_str().unwrap()], b"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("files skipped             2"));
}

#[test]
fn check_reads_gzip_from_files_and_pipes() {
    let folder = Folder::new("odd-check-gzip");
    let zipped = gzip(CUT.repeat(2000).as_bytes());
    let file = folder.write("body.sse.gz", &zipped);
    assert_eq!(endstop(&["check", "--provider", "openai", &file], b"").status.code(), Some(19));
    assert_eq!(
        endstop(&["check", "--provider", "openai"], &gzip(WHOLE.as_bytes())).status.code(),
        Some(0)
    );
    let cut = folder.write("cut.sse.gz", &zipped[..zipped.len() / 2]);
    fails(
        &endstop(&["check", "--provider", "openai", &cut], b""),
        1,
        "the gzip data is truncated or corrupt",
    );
    fails(&endstop(&["check"], b"\x1f\x8bnonsense"), 1, "the gzip data is truncated or corrupt");
    fails(
        &endstop(&["check"], b"\x28\xb5\x2f\xfd\x00nonsense"),
        1,
        "compressed with zstd: decompress it first",
    );
}

#[test]
fn check_says_what_it_expected_and_what_was_meant() {
    let letter = endstop(&["check"], b"just a letter to a friend");
    fails(&letter, 1, "does not look like a response: expected a JSON object, server-sent events");
    assert!(!String::from_utf8_lossy(&letter.stderr).contains("decompress"));
    for command in ["check", "decide", "explain"] {
        let output = endstop(&[command, "--provider", "antropic"], b"{}");
        fails(&output, 2, "unknown provider `antropic`: expected one of openai, azure,");
        fails(&output, 2, "; did you mean `anthropic`?");
    }
    let folder = Folder::new("odd-meant");
    let file = folder.write("w.toml", "[provider.acme-cloud]\nlike = \"openai\"\n");
    let output = endstop(&["check", "--config", &file, "--provider", "acmecloud"], b"{}");
    fails(&output, 2, "expected one of acme-cloud, openai,");
    fails(&output, 2, "did you mean `acme-cloud`?");
    let output = endstop(&["check", "--fail-on", "outputlimit"], b"{}");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("; did you mean `output_limit`?"), "{text}");
}

/// Also one with a `name`, which the gateway's configuration has not.
#[test]
fn a_policy_file_is_a_configuration() {
    let folder = Folder::new("odd-policy");
    let file = folder.write("agent.toml", "name = \"mine\"\nbased_on = \"careful\"\n");
    let output = endstop(&["check", "--config", &file], WHOLE.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = endstop(&["decide", "--json", "--config", &file], WHOLE.as_bytes());
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["policy"], "mine");
    let wrong = folder.write("wrong.toml", "name = \"mine\"\nbased_upon = \"careful\"\n");
    let output = endstop(&["check", "--config", &wrong], WHOLE.as_bytes());
    fails(&output, 1, "wrong.toml:");
}

#[test]
fn an_error_is_told_in_the_name_of_whose_shape_it_has() {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}"#;
    let output = endstop(&["check", "--json"], body.as_bytes());
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&line["provider"], &line["reason"], &line["fault"]["kind"], &line["confidence"]),
        (&json!("anthropic"), &json!("failed"), &json!("overloaded"), &json!("medium"))
    );
    let text = stdout(&endstop(&["check"], body.as_bytes()));
    assert!(text.contains("anthropic, anthropic-messages (detected from the body)"), "{text}");
    let text = stdout(&endstop(&["check"], br#"{"error":{"message":"no"}}"#));
    assert!(
        text.contains("(a guess: the body fits several formats or none; use `--provider`)"),
        "{text}"
    );
    let text = stdout(&endstop(&["check", "--provider", "openai"], WHOLE.as_bytes()));
    assert!(text.contains("format        openai, openai-chat\n"), "{text}");
    assert!(text.starts_with("complete (high confidence): "), "{text}");
}

#[test]
fn damaged_recordings_in_a_folder_are_named() {
    let folder = Folder::new("odd-damaged");
    folder.write("r.jsonl", record(json!({})));
    folder.write("cut.json", "{\"interactions\": [{\"requ");
    folder.write("cut.yaml", "interactions: [{a: ");
    folder.write("empty.har", "");
    let output = endstop(&["replay", folder.0.to_str().unwrap()], b"");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(22), "{text}");
    for file in ["cut.json: not JSON", "cut.yaml: not YAML", "empty.har: not JSON"] {
        assert!(text.contains(file), "{file}: {text}");
    }
}

#[test]
fn a_folder_without_recordings_is_an_error() {
    let folder = Folder::new("odd-none");
    folder.write("package.json", "{\"name\":\"x\"}");
    let output = endstop(&["replay", folder.0.to_str().unwrap()], b"");
    fails(&output, 1, "no recordings found");
}

#[test]
fn a_provider_that_nobody_knows_is_told() {
    let folder = Folder::new("odd-provider");
    let file = folder.write("r.jsonl", record(json!({ "provider": "opnai\u{1b}[31m" })));
    let text = stdout(&endstop(&["replay", &file], b""));
    assert!(text.contains("unknown provider: `opnai"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let rows = folder.write("rows.csv", "provider,native_finish_reason\nopnai,stop\n");
    let output = endstop(&["backfill", "--from", &rows, "--dry-run"], b"");
    assert!(stdout(&output).contains("unknown provider: `opnai` (rows: 1)"));
    let output = endstop(&["backfill", "--from", &rows, "--provider", "opnai"], b"");
    fails(&output, 1, "unknown provider `opnai`: did you mean `openai`?");
}

#[test]
fn a_line_may_have_the_url_and_the_headers_of_its_request() {
    let folder = Folder::new("odd-url");
    let line = json!({ "body": WHOLE, "url": "https://api.openai.com/v1/chat/completions",
                       "headers": { "X": "y" } });
    let file = folder.write("r.jsonl", line.to_string());
    let text = stdout(&endstop(&["replay", &file], b""));
    assert!(text.starts_with("openai "), "{text}");
    let claude = json!({ "body": "{\"type\":\"message\",\"stop_reason\":\"weary\",\"content\":[]}",
                         "url": "https://api.anthropic.com/v1/messages",
                         "headers": { "Anthropic-Version": "2026-10-21" } });
    let words = "[provider.anthropic.versions.\"2026-10-21\".words]\nweary = \"paused\"\n";
    let words = folder.write("words.toml", words);
    let file = folder.write("c.jsonl", claude.to_string());
    let output = endstop(&["replay", "--json", "--config", &words, &file], b"");
    assert_eq!(reasons(&output).first().map(|(_, reason)| reason.as_str()), Some("paused"));
}

#[test]
fn a_full_disk_is_an_error_and_no_crash() {
    for command in [&["env"][..], &["serve", "--check"], &["dialects"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_endstop"))
            .args(command)
            .stdout(full)
            .output()
            .unwrap();
        fails(&output, 1, "No space left on device");
    }
}

#[test]
fn a_url_must_be_one() {
    for url in ["not a url", "ftp://api.openai.com/v1", "https://", "", "nonsense"] {
        let output = endstop(&["check", "--url", url], WHOLE.as_bytes());
        fails(&output, 2, &format!("invalid --url `{url}`: expected an HTTP or HTTPS URL"));
    }
    for url in ["HTTPS://api.openai.com", "api.openai.com/v1/chat/completions", "localhost:1/v1"] {
        let output = endstop(&["check", "--url", url], WHOLE.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{url}: {output:?}");
    }
}

#[test]
fn unknown_values_of_known_fields_are_named() {
    let folder = Folder::new("odd-values");
    for (changes, field) in [
        (json!({ "api": "openai-chatter" }), "api"),
        (json!({ "headers": "anthropic-version: 1" }), "headers"),
    ] {
        let file = folder.write("x.jsonl", record(changes));
        let output = endstop(&["replay", &file], b"");
        let told = stdout(&output);
        assert!(told.contains(&format!("`{field}` of r: invalid value")), "{told}");
    }
    let fine = json!({ "encoding": "text", "api": "mistral-chat", "headers": { "a": "b" } });
    let told = stdout(&endstop(&["replay", &folder.write("x.jsonl", record(fine))], b""));
    assert!(!told.contains("ignored"), "{told}");
}

#[test]
fn a_missing_file_is_named_and_the_others_are_read() {
    let folder = Folder::new("missing");
    let file = folder.write("x.jsonl", record(json!({})));
    let missing = format!("{file}.gone.jsonl");
    let output = endstop(&["replay", &file, &missing], b"");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(22), "{told}");
    assert!(told.contains("gone.jsonl: cannot open it") && told.contains("responses"), "{told}");
    fails(&endstop(&["replay", &missing], b""), 1, "cannot open it: No such file");
}

/// A browser records everything; only requests that ask a model are judged.
#[test]
fn other_requests_of_a_har_file_are_skipped() {
    let folder = Folder::new("har-others");
    let answer = "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}";
    let entry = |method: &str, url: &str, sent: &str, text: &str| {
        json!({ "request": { "method": method, "url": url, "postData": { "text": sent } },
                "response": { "status": 200, "content": { "text": text } } })
    };
    let har = json!({ "log": { "entries": [
        entry("POST", "https://api.openai.com/v1/chat/completions", "{}", answer),
        entry("POST", "https://llm.corp.example/ask", "{\"model\":\"m\"}", answer),
        entry("GET", "https://api.openai.com/v1/models", "", "{\"data\":[]}"),
        entry("GET", "https://chat.example/style.css", "", "a { color: red }"),
        entry("POST", "https://chat.example/telemetry", "{\"event\":1}", "{}"),
        { "request": { "method": "OPTIONS", "url": "https://api.openai.com/v1/chat/completions" },
          "response": { "status": 204, "content": {} } },
    ] } });
    let output = endstop(&["replay", "--json", &folder.write("x.har", har.to_string())], b"");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(reasons(&output).len(), 2, "{told}");
    assert!(told.contains("requests skipped          4"), "{told}");
}

/// Plain bodies have no largest size: their long strings are not kept.
#[test]
fn a_large_plain_body_is_read() {
    let body = json!({"choices": [{"message": {"content": "A".repeat(17 << 20)},
        "finish_reason": "stop"}]});
    let body = body.to_string();
    let output = endstop(&["check", "--provider", "openai"], body.as_bytes());
    assert!(stdout(&output).starts_with("complete (high confidence)"), "{output:?}");
    let output = endstop(&["decide", "--provider", "openai"], body.as_bytes());
    fails(&output, 1, "more than 16 MiB, of which no text is kept; use `endstop check`");
}

/// A configuration with every kind of table and value.
const EVERY_KEY: &str = r#"
based_on = "careful"
listen = "127.0.0.1:0"
admin = "off"
log = "json"
store = "sqlite:x.db"
[limits]
idle = "5s"
head_bytes = 9000
[sinks.lines]
url = "jsonl:x"
[teams.red]
key_ids = ["0123456789abcdef"]
[agent]
continuation_max_attempts = 2
turn_max_cost = 0.5
[rules.cut]
action = "retry"
min_confidence = "low"
[rules]
failed = { action = "stop" }
[wording]
hint = "Go on."
[prices]
"gpt-5" = { input = 1.0, output = 2.0 }
[tls]
cert = "a.pem"
key = "b.pem"
[upstreams.mine]
base_url = "http://127.0.0.1:1/v1"
like = "openai"
[provider.openai.words]
frob = "paused"
[provider.acme]
like = "openai-chat"
hosts = ["api.acme.example"]
context_tokens = 8192
lies_at_cap = true
[provider.acme.words]
shrugged = { reason = "unknown", vague = true }
"#;

/// Whatever stands in place of a value, the message has no words of the parser.
#[test]
fn no_message_about_a_file_names_types_of_the_code() {
    let read = |text: &str| endstop_gateway::Config::from_toml("endstop.toml", text);
    assert!(read(EVERY_KEY).is_ok(), "{:?}", read(EVERY_KEY).err());
    let lines: Vec<&str> = EVERY_KEY.lines().collect();
    let mut wrong = Vec::new();
    let mut rejected = 0;
    for (at, line) in lines.iter().enumerate() {
        let Some((key, _)) = line.split_once(" = ") else { continue };
        for value in [
            "7",
            "0",
            "-1.5",
            "2026-01-01",
            "[1]",
            "[\"x\"]",
            "{ x = 1 }",
            "{}",
            "\"dance\"",
            "true",
        ] {
            let mut changed = lines.clone();
            let own = format!("{key} = {value}");
            changed[at] = &own;
            let Err(error) = read(&changed.join("\n")) else { continue };
            let text = error.to_string();
            rejected += 1;
            let words = [
                "struct ",
                " map",
                "$__",
                " sequence",
                "spanned",
                "nonzero",
                "u64",
                "variant",
                "wanted",
            ];
            if words.iter().any(|word| text.contains(word)) {
                wrong.push(format!("{own}: {text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rejected > 100, "{rejected}");
}
