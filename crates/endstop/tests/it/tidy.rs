//! What no lint holds: the invariants of absence.

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

/// The code of a file, without its tests, comments and documentation.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned();
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

/// The core builds for a machine without an operating system's services only if it asks for none;
/// this holds its list of dependencies to those that are known not to.
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
