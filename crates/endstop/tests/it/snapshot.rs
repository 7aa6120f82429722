//! Tables that a reviewer can read, kept as text and compared.

use std::path::Path;

/// Compares a text with the one that is kept. `ENDSTOP_SNAPSHOTS=write` keeps the new one.
#[track_caller]
pub(crate) fn same(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots").join(name);
    if std::env::var_os("ENDSTOP_SNAPSHOTS").is_some_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    let differs = kept.lines().zip(text.lines()).position(|(kept, new)| kept != new);
    assert!(
        kept == text,
        "{name} differs, first at line {}; write it anew with ENDSTOP_SNAPSHOTS=write",
        differs.map_or(kept.lines().count().min(text.lines().count()) + 1, |at| at + 1)
    );
}
