//! The examples, against simulated providers.

use std::process::Command;

use crate::sim;

/// Examples, their arguments, and a part of what they print.
const EXAMPLES: &[(&str, &[&str], &str)] = &[
    ("ask", &[], "An endstop is a small switch"),
    ("ask", &["openai/cut-before-word", "Hi"], "no answer: "),
    ("stream", &[], "An endstop is a small switch"),
    ("typed", &["openai/length"], "truncated after 4 pieces"),
    ("agent", &[], "1 tool calls)"),
    ("custom_policy", &[], "StoppedByPolicy"),
    ("custom_provider", &[], "out_of_ink"),
    ("layer", &[], "the stream stopped before the provider's end marker"),
];

/// `cargo test` builds the examples, unless it is told to build one test alone.
#[tokio::test(flavor = "multi_thread")]
async fn every_example_runs() {
    let sim = sim().await;
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    for (name, arguments, part) in EXAMPLES {
        let path = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        if !path.exists() {
            assert!(std::env::var_os("ENDSTOP_SERVERS").is_none(), "{name} is not built");
            println!("{name} is not built");
            continue;
        }
        let mut command = Command::new(path);
        command.args(*arguments).env("ENDSTOP_BASE_URL", sim.url());
        let ran = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let (out, error) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{name}: {out}{error}");
        assert!(out.contains(part), "{name}: {out}{error}");
    }
}
