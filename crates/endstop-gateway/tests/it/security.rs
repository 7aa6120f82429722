//! docs/security.md names the test for each rule: each of them exists.

use std::collections::BTreeSet;
use std::path::Path;

/// Adds the functions of all Rust files in this folder.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                let is_test = line.trim().starts_with("#[test]") || line.contains("#[tokio::test");
                let mut after = lines[at + 1..].iter().filter(|_| is_test);
                // Other attributes may follow.
                let next = after.find(|line| !line.trim().starts_with("#["));
                let name = next.and_then(|next| next.split("fn ").nth(1)?.split('(').next());
                found.extend(name.map(str::to_owned));
            }
        }
    }
}

#[test]
fn every_test_of_the_page_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/security.md")).unwrap();
    let mut known = BTreeSet::new();
    for member in ["endstop-gateway/src", "endstop-gateway/tests", "endstop-cli/tests"] {
        functions(&root.join("crates").join(member), &mut known);
    }
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| attack"));
    let mut count = 0;
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for name in tests.split(", ") {
            let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
            let name = name.unwrap_or_else(|| panic!("no test: {row}"));
            assert!(known.contains(name), "docs/security.md names the test {name}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}
