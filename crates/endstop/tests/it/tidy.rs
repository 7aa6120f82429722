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

#[test]
fn no_file_outside_its_own_names_a_provider() {
    let ids = endstop::provider::ALL.iter().map(|provider| provider.id);
    let dialects = endstop::dialect::ALL.iter().map(|dialect| dialect.id);
    let names: Vec<String> = ids.chain(dialects).map(|id| format!("\"{id}\"")).collect();
    for path in core() {
        let shown = path.to_string_lossy().replace('\\', "/");
        if shown.contains("/dialect/") || shown.contains("/provider/") {
            continue;
        }
        let code = code(&path);
        for name in &names {
            assert!(!code.contains(name.as_str()), "{shown} names {name}");
        }
    }
}

/// Names of wires that are also ours, in records, signals, vocabularies or decisions.
const OURS: &[&str] = &[
    // Kinds of content and reasons in records.
    "bare_tool_call",
    "content_filter",
    "malformed_tool_call",
    "stop_sequence",
    "tool_calls",
    // The stored finish reason, and the field of a signal's delta.
    "finish_reason",
    // Frameworks' name for an event's name in the metadata of a signal.
    "event_type",
    // Names of serde and Rust.
    "snake_case",
    "Option::is_none",
    "Vec::is_empty",
];

/// Returns the strings that look like names of fields or events: several words joined.
fn names_in(code: &str) -> BTreeSet<String> {
    let several = |name: &&str| {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.[]:".contains(c));
        let joined = name.contains(['_', '-', '.', '[', ':'])
            || name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.contains(|c: char| c.is_ascii_uppercase());
        letters && joined && name.len() > 4 && name.contains(|c: char| c.is_ascii_alphabetic())
    };
    code.lines()
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .filter(several)
        .map(str::to_owned)
        .collect()
}

/// The names of a wire's fields and events occur only in its file.
#[test]
fn no_wire_fact_stands_outside_dialects_and_providers() {
    let is_wires = |path: &Path| {
        let shown = path.to_string_lossy().replace('\\', "/");
        shown.contains("/dialect/") || shown.contains("/provider/")
    };
    let (wires, others): (Vec<PathBuf>, Vec<PathBuf>) =
        core().into_iter().partition(|path| is_wires(path));
    let known: BTreeSet<String> = wires.iter().flat_map(|path| names_in(&code(path))).collect();
    assert!(known.len() > 500 && known.contains("content_block_stop"), "{}", known.len());
    let mut found = Vec::new();
    for path in others {
        // These files list the spellings of other projects, and inputs for fuzzing.
        if path.ends_with("vocabulary.rs") || path.ends_with("fuzzing.rs") {
            continue;
        }
        for name in names_in(&code(&path)).intersection(&known) {
            if !OURS.contains(&name.as_str()) {
                found.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The crates above know no wire and no provider. Signatures of AWS are made by a library.
#[test]
fn no_wire_fact_stands_in_the_crates_above() {
    let is_wires = |path: &&PathBuf| {
        let shown = path.to_string_lossy().replace('\\', "/");
        shown.contains("/dialect/") || shown.contains("/provider/")
    };
    let core = core();
    let wires = core.iter().filter(is_wires);
    let mut known: BTreeSet<String> = wires.flat_map(|path| names_in(&code(path))).collect();
    known.extend(endstop::provider::ALL.iter().map(|provider| provider.id.to_owned()));
    let mut files = Vec::new();
    for above in ["endstop-turn", "endstop-gateway"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(above).join("src");
        sources(&folder, &mut files);
    }
    assert!(files.len() > 40, "{files:?}");
    let is_read = |path: &&PathBuf| !path.ends_with("fuzzing.rs") && !path.ends_with("sign.rs");
    let mut found = Vec::new();
    for path in files.iter().filter(is_read) {
        for name in strings_in(&code(path)) {
            if known.contains(name) && !OURS.contains(&name) {
                found.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
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
    ("src/continuation/event.rs", &["event"]),
    // The exchanged form of a signal, and the errors that frameworks put into their deltas.
    ("src/signal.rs", &["type"]),
    ("src/signal/stream.rs", &["error", "type"]),
    ("src/signal/validate.rs", &["reason"]),
    // Framings, which many wires share.
    ("src/frame/sse.rs", &["event"]),
    ("src/frame/aws.rs", &["error", "event"]),
];

/// Returns the strings of the code.
fn strings_in(code: &str) -> BTreeSet<&str> {
    code.lines().flat_map(|line| line.split('"').skip(1).step_by(2)).collect()
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
        let shown = path.to_string_lossy().replace('\\', "/");
        let is_wires = shown.contains("/dialect/") || shown.contains("/provider/");
        if is_wires || shown.ends_with("vocabulary.rs") || shown.ends_with("fuzzing.rs") {
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
        let shown = |path: &PathBuf| path.strip_prefix(&folder).unwrap().display().to_string();
        let mut files: Vec<String> = found.iter().map(shown).collect();
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
