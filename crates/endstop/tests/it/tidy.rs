//! Project rules that no lint checks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

fn core() -> Vec<PathBuf> {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

/// Returns the code of a file, without tests, comments and documentation.
fn code(path: &Path) -> String {
    if path.ends_with("tests.rs") {
        return String::new();
    }
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("\nmod tests").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns the path of a file with slashes.
fn shown(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "/")
}

fn is_wires(path: &Path) -> bool {
    let shown = shown(path);
    shown.contains("/dialect/") || shown.contains("/provider/")
}

/// Returns the source files of a crate beside the core.
fn above(name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"), &mut found);
    found
}

/// Crates that use the core, and must not know wires either.
const ABOVE: &[&str] = &[
    "endstop-turn",
    "endstop-client",
    "endstop-export",
    "endstop-gateway",
    "endstop-store",
    "endstop-cli",
];

/// Ids of providers and dialects.
fn ids() -> impl Iterator<Item = &'static str> {
    let providers = endstop::provider::ALL.iter().map(|provider| provider.id);
    providers.chain(endstop::dialect::ALL.iter().map(|dialect| dialect.id))
}

/// Returns the names in code, without its strings, its imports and the list of providers.
fn identifiers(code: &str) -> BTreeSet<&str> {
    let (before, rest) = code.split_once("\nproviders! {").unwrap_or((code, ""));
    let after = rest.split_once("\n}").map_or("", |(_, after)| after);
    // The provider that stands for all without a file is named once.
    let is_counted = |line: &&str| !line.starts_with("pub use") && !line.contains(" GENERIC:");
    let lines = before.lines().chain(after.lines()).filter(is_counted);
    let outside = lines.flat_map(|line| line.split('"').step_by(2));
    outside.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

/// Neither as a string nor as a constant.
#[test]
fn no_file_outside_its_own_names_a_provider() {
    let quoted: Vec<String> = ids().map(|id| format!("\"{id}\"")).collect();
    let constants: Vec<String> =
        ids().map(|id| id.to_ascii_uppercase().replace('-', "_")).collect();
    let mut found = Vec::new();
    let files = core().into_iter().filter(|path| !is_wires(path));
    for path in files.chain(ABOVE.iter().flat_map(|name| above(name))) {
        let code = code(&path);
        let names = identifiers(&code);
        let quoted = quoted.iter().filter(|name| code.contains(name.as_str()));
        let constants = constants.iter().filter(|name| names.contains(name.as_str()));
        let both = quoted.chain(constants);
        if !path.ends_with("fuzzing.rs") && !path.ends_with("sign.rs") {
            found.extend(both.map(|name| format!("{}: {name}", shown(&path))));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Names of wires that are also ours, in records, signals, vocabularies or decisions.
const OURS: &[&str] = &[
    // Kinds of content and reasons in records.
    "bare_tool_call",
    "content_filter",
    "malformed_tool_call",
    "stop_sequence",
    "tool_calls",
    // The type of our own errors.
    "endstop_error",
    // Frameworks' name for an event's name in the metadata of a signal.
    "event_type",
    // Names of serde and Rust.
    "snake_case",
    "Option::is_none",
    "Vec::is_empty",
];

/// Names of wires that are also ours in these files: columns of the record, and keys of our own JSON.
const OUR_COLUMNS: &[(&str, &[&str])] = &[
    ("endstop-gateway/src/admin/openapi.rs", &["finish_reason"]),
    ("endstop-gateway/src/exchange.rs", &["finish_reason"]),
    ("endstop-cli/src/backfill.rs", &["finish_reason", "native_finish_reason"]),
    // The requests that `demo` prints, and the settings of agents that `env` prints.
    ("endstop-cli/src/demo.rs", &["max_tokens"]),
    ("endstop-cli/src/dialects.rs", &["base_url", "finish_reason"]),
    ("endstop-client/src/target.rs", &["base_url"]),
    ("endstop-cli/src/env/agents.rs", &["OPENAI_API_KEY", "baseURL"]),
    ("endstop-cli/src/show.rs", &["created_at"]),
    ("endstop-export/src/metrics/names.rs", &["finish_reason"]),
    ("endstop-store/src/backfill.rs", &["finish_reason", "native_finish_reason"]),
    ("endstop-store/src/clickhouse/forget.rs", &["created_at"]),
    ("endstop-store/src/clickhouse/report.rs", &["created_at", "native_finish_reason"]),
    ("endstop-store/src/clickhouse/schema.rs", &["created_at"]),
    ("endstop-store/src/columns.rs", &["created_at", "finish_reason", "native_finish_reason"]),
    ("endstop-store/src/postgres.rs", &["created_at"]),
    ("endstop-store/src/postgres/adopt.rs", &["finish_reason"]),
    ("endstop-store/src/query.rs", &["finish_reason"]),
    ("endstop-store/src/series.rs", &["finish_reason", "native_finish_reason"]),
    (
        "endstop-store/src/spool/entry/compact.rs",
        &["created_at", "finish_reason", "native_finish_reason"],
    ),
    ("endstop-store/src/sql.rs", &["created_at", "finish_reason", "native_finish_reason"]),
];

/// Tags that models write around a call in their text.
const TAGS: (&str, &str) = ("endstop/src/tool_call/in_text.rs", "tool_call");

/// Returns the strings that look like names of fields or events: several words joined.
fn names_in(code: &str) -> BTreeSet<String> {
    let several = |name: &&str| {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.[]:".contains(c));
        let joined = name.contains(['_', '-', '.', '[', ':'])
            || name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.contains(|c: char| c.is_ascii_uppercase());
        letters && joined && name.len() > 4 && name.contains(|c: char| c.is_ascii_alphabetic())
    };
    strings_in(code).into_iter().filter(several).map(str::to_owned).collect()
}

/// Returns the strings of the code, and the names in backticks within them.
fn strings_and_quotes(code: &str) -> BTreeSet<&str> {
    let strings = strings_in(code);
    let quotes: Vec<&str> =
        strings.iter().flat_map(|text| text.split('`').skip(1).step_by(2)).collect();
    strings.into_iter().chain(quotes).collect()
}

/// The names of a wire's fields and events occur only in its file: not in the rest of the core, nor in
/// the crates above. Signatures of AWS are made by a library.
#[test]
fn no_wire_fact_stands_outside_dialects_and_providers() {
    let (wires, others): (Vec<PathBuf>, Vec<PathBuf>) =
        core().into_iter().partition(|path| is_wires(path));
    let known: BTreeSet<String> = wires.iter().flat_map(|path| names_in(&code(path))).collect();
    assert!(known.len() > 500 && known.contains("content_block_stop"), "{}", known.len());
    let files: Vec<PathBuf> =
        others.into_iter().chain(ABOVE.iter().flat_map(|name| above(name))).collect();
    assert!(files.len() > 140, "{files:?}");
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for path in files {
        // These files list the spellings of other projects, inputs for fuzzing, and signatures.
        if ["vocabulary.rs", "fuzzing.rs", "sign.rs"].iter().any(|file| path.ends_with(file)) {
            continue;
        }
        let shown = shown(&path);
        let code = code(&path);
        let names = strings_and_quotes(&code).into_iter().filter(|name| known.contains(*name));
        for name in names.filter(|name| !OURS.contains(name)) {
            let own = OUR_COLUMNS
                .iter()
                .find(|(file, names)| shown.ends_with(file) && names.contains(&name));
            match own {
                Some((file, _)) => {
                    used.insert((*file, name.to_owned()));
                }
                None if shown.ends_with(TAGS.0) && name == TAGS.1 => {}
                None => found.push(format!("{shown}: {name}")),
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    let listed =
        OUR_COLUMNS.iter().flat_map(|(file, names)| names.iter().map(move |name| (*file, *name)));
    let stale: Vec<(&str, &str)> =
        listed.filter(|(file, name)| !used.contains(&(*file, (*name).to_owned()))).collect();
    assert!(stale.is_empty(), "no longer used: {stale:?}");
}

/// Single words of wires that are not part of a path: names of events, keys and roles.
const PLAIN_FACTS: &[&str] = &["error", "name", "role", "system", "developer", "assistant", "user"];

/// Single words that are ours too, in these files.
const OURS_IN: &[(&str, &[&str])] = &[
    // Names of our own enums, fields and files.
    ("src/dialect.rs", &["event"]),
    ("src/ending.rs", &["error"]),
    ("src/fault.rs", &["type"]),
    ("src/registry/file.rs", &["event", "reason"]),
    ("src/policy.rs", &["reason"]),
    ("src/policy/file.rs", &["reason"]),
    ("src/continuation/event.rs", &["event"]),
    ("src/observation.rs", &["event"]),
    // The exchanged form of a signal, and the errors that frameworks put into their deltas.
    ("src/signal.rs", &["type"]),
    ("src/signal/stream.rs", &["error", "type"]),
    ("src/signal/validate.rs", &["reason"]),
    // The key of every wire's errors, the type of a message, and calls that models write as text.
    ("src/reader/state.rs", &["error"]),
    ("src/next_request/edit.rs", &["type"]),
    ("src/tool_call/in_text.rs", &["name"]),
    // Framings, which many wires share.
    ("src/frame/sse.rs", &["event"]),
    ("src/frame/aws.rs", &["error", "event"]),
];

/// Returns the strings of the code, and those within them: escaped, or in a raw string. What is
/// between two strings is no name.
fn strings_in(code: &str) -> BTreeSet<&str> {
    fn inner(line: &str) -> Vec<&str> {
        let mut parts: Vec<&str> = line.split('"').skip(1).collect();
        parts.pop();
        parts.into_iter().map(|part| part.strip_suffix('\\').unwrap_or(part)).collect()
    }
    code.lines().flat_map(inner).collect()
}

/// Single words from the paths of wires, and others that wires share, occur only in their files.
#[test]
fn no_single_word_of_a_wire_stands_outside_dialects_and_providers() {
    let paths = endstop::dialect::ALL.iter().flat_map(|dialect| {
        dialect.words.iter().map(|words| words.path).chain(dialect.usage.iter().copied())
    });
    let segments = paths.flat_map(|path| path.split(['.', '[', ']']));
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    let known: BTreeSet<&str> =
        segments.filter(is_word).chain(PLAIN_FACTS.iter().copied()).collect();
    assert!(known.contains("choices") && known.contains("usage"), "{known:?}");
    let mut files = core();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../endstop-turn/src"), &mut files);
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for path in files {
        let shown = shown(&path);
        if is_wires(&path) || shown.ends_with("vocabulary.rs") || shown.ends_with("fuzzing.rs") {
            continue;
        }
        let ours = OURS_IN.iter().filter(|(file, _)| shown.ends_with(file));
        let ours: BTreeSet<&str> = ours.flat_map(|(_, words)| words.iter().copied()).collect();
        let code = code(&path);
        let strings = strings_in(&code);
        for word in known.iter().filter(|word| strings.contains(*word)) {
            if ours.contains(word) {
                used.insert(*word);
            } else {
                found.push(format!("{shown}: {word}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    let listed = OURS_IN.iter().flat_map(|(_, words)| words.iter().copied());
    let stale: Vec<&str> = listed.filter(|word| !used.contains(word)).collect();
    assert!(stale.is_empty(), "no longer used: {stale:?}");
}

/// Names that a JSON string within a string hides are found.
#[test]
fn strings_within_strings_are_strings() {
    let code = "let x = \"{\\\"finish_reason\\\":1}\"; let y = r#\"{\"stop_reason\":1}\"#;";
    let found = strings_in(code);
    assert!(found.contains("finish_reason") && found.contains("stop_reason"), "{found:?}");
}

#[test]
fn the_glossary_has_at_most_twelve_terms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, glossary) = readme.split_once("\n## Glossary\n").unwrap();
    let glossary = glossary.split("\n## ").next().unwrap();
    let terms = glossary.lines().filter(|line| line.starts_with("| **")).count();
    assert!((1..=12).contains(&terms), "{terms} terms");
}

/// Plain `cargo test` needs Rust alone: tests that start another program than a shell are ignored
/// there, or do without it.
#[test]
fn tests_that_need_other_programs_are_marked() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let tests = entry.unwrap().path().join("tests");
        if tests.is_dir() {
            sources(&tests, &mut found);
        }
    }
    // It starts the servers of tests that are marked themselves.
    let servers = "endstop-store/tests/it/places.rs";
    let unmarked: Vec<String> = found
        .iter()
        .filter(|path| !shown(path).ends_with(servers))
        .filter(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let mut programs = text.split("Command::new(\"").skip(1);
            programs.any(|rest| !rest.starts_with("sh\""))
                && !text.contains("endstop_servers")
                && !text.contains("ENDSTOP_SERVERS")
        })
        .map(|path| shown(path))
        .collect();
    assert!(unmarked.is_empty(), "{unmarked:#?}");
}

#[test]
fn the_core_knows_no_clock_socket_runtime_or_file() {
    for path in core() {
        let code = code(&path);
        for banned in [
            "std::time",
            "std::net",
            "std::fs",
            "std::io",
            "std::env",
            "std::process",
            "tokio",
            "reqwest",
            "hyper",
            "println!",
        ] {
            assert!(!code.contains(banned), "{} uses {banned}", path.display());
        }
    }
}

#[test]
fn every_source_file_opens_with_what_it_is_for() {
    for path in core() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{}", path.display());
    }
}

/// The core does no IO only if its dependencies do none. This checks them against a known list.
#[test]
fn the_core_depends_on_nothing_that_does_io() {
    let manifest =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("[dependencies]").unwrap();
    let (own, _) = rest.split_once("[dev-dependencies]").unwrap();
    let names: Vec<&str> = own
        .lines()
        .filter(|line| !line.starts_with('#') && line.contains('='))
        .map(|line| line.split(['=', '.']).next().unwrap().trim())
        .collect();
    assert_eq!(
        names,
        ["serde", "serde_json", "memchr", "crc32fast", "base64", "jsonschema", "toml"]
    );
}

/// Returns the files that a pattern of the code map names: `a.rs`, `a/*.rs`.
fn named<'f>(pattern: &str, files: &'f [String]) -> Vec<&'f String> {
    let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
    let fits = |file: &&String| match pattern.contains('*') {
        true => file.starts_with(before) && file.ends_with(after),
        false => *file == pattern,
    };
    files.iter().filter(fits).collect()
}

/// The code map names every source file, and no file that does not exist.
#[test]
fn the_code_map_is_the_tree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let map = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let map = map.split("## Invariants").next().unwrap();
    let mut problems = Vec::new();
    for section in map.split("\n`crates/").skip(1) {
        let name = section.split('`').next().unwrap();
        let folder = root.join("crates").join(name).join("src");
        let mut found = Vec::new();
        sources(&folder, &mut found);
        let below = |path: &PathBuf| path.strip_prefix(&folder).unwrap().display().to_string();
        let mut files: Vec<String> = found.iter().map(below).collect();
        files.retain(|file| file != "lib.rs" && file != "main.rs");
        let ticked = section.split('`').skip(2).step_by(2);
        let patterns: BTreeSet<&str> = ticked.filter(|name| name.ends_with(".rs")).collect();
        let mut unnamed: BTreeSet<&String> = files.iter().collect();
        for pattern in patterns {
            let these = named(pattern, &files);
            if these.is_empty() && !pattern.contains("tests/") && pattern.contains('/') {
                problems.push(format!("{name}: no file is called {pattern}"));
            }
            these.iter().for_each(|file| {
                unnamed.remove(file);
            });
        }
        problems.extend(unnamed.iter().map(|file| format!("{name}: {file} is not in the map")));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}
