//! `endstop env`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{endstop, fails, stdout};

fn env(arguments: &[&str]) -> String {
    stdout(&endstop(&[&["env"], arguments].concat(), b""))
}

/// Returns the lines that a shell runs.
fn run_lines(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn each_shell_gets_its_own_form() {
    for (shell, set) in [
        ("bash", "export GROQ_BASE_URL='http://127.0.0.1:4100/groq'  # groq"),
        ("fish", "set -gx GROQ_BASE_URL 'http://127.0.0.1:4100/groq'  # groq"),
        ("powershell", "$Env:GROQ_BASE_URL = 'http://127.0.0.1:4100/groq'  # groq"),
    ] {
        let text = env(&["--shell", shell]);
        let start = set.split("GROQ").next().unwrap();
        let lines = run_lines(&text);
        assert!(lines.iter().any(|line| line.starts_with(set)), "{text}");
        assert!(lines.iter().all(|line| line.starts_with(start)), "{text}");
        assert!(lines.iter().all(|line| line.matches('\'').count() == 2), "{text}");
        assert!(!lines.concat().contains('{'), "{text}");
        assert!(text.is_ascii() && text.ends_with('\n'), "{text}");
    }
}

#[test]
fn paths_are_those_that_the_sdks_expect() {
    let text = env(&["--url", "https://gateway.example:8443/llm/"]);
    for (name, path) in [
        ("OPENAI_BASE_URL", "/openai/v1"),
        ("ANTHROPIC_BASE_URL", "/anthropic"),
        ("GOOGLE_GEMINI_BASE_URL", "/gemini"),
        ("GROQ_BASE_URL", "/groq"),
        ("CEREBRAS_BASE_URL", "/cerebras"),
        ("WRITER_BASE_URL", "/writer"),
        ("FIREWORKS_BASE_URL", "/fireworks/inference"),
        ("DASHSCOPE_HTTP_BASE_URL", "/alibaba/api/v1"),
        ("SAMBA_NOVA_BASE_URL", "/sambanova/v1"),
    ] {
        let set = format!("\nexport {name}='https://gateway.example:8443/llm{path}'");
        assert!(text.contains(&set), "{set}: {text}");
    }
    let open =
        "\n# export AZURE_OPENAI_ENDPOINT='https://gateway.example:8443/llm/azure/{resource}'";
    assert!(text.contains(open), "{text}");
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs bash: set ENDSTOP_SERVERS=1")]
fn bash_can_evaluate_the_output() {
    let script = format!(
        "set -eu\neval \"$(\"{}\" env)\"\necho \"$OPENAI_BASE_URL $GROQ_BASE_URL\"",
        env!("CARGO_BIN_EXE_endstop")
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let want = "http://127.0.0.1:4100/openai/v1 http://127.0.0.1:4100/groq\n";
    assert_eq!((stdout(&output).as_str(), output.stderr.as_slice()), (want, b"".as_slice()));
}

/// An agent that is told to read a variable finds it among those that are set.
#[test]
fn agents_have_their_settings() {
    let text = env(&["--url", "http://gateway:1"]);
    let (variables, agents) = text.split_once("# Agents:").unwrap();
    for name in ["Claude Code", "Codex", "gemini-cli", "qwen-code", "opencode", "aider"] {
        assert!(agents.contains(&format!("\n#   {name} ")), "{name}: {text}");
    }
    assert!(agents.trim_start().lines().all(|line| line.starts_with("#   ")), "{text}");
    assert!(agents.contains("\"http://gateway:1/openai/v1\""), "{text}");
    assert!(!agents.contains("{url}"), "{text}");
    let words = agents.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    for name in words.filter(|word| word.contains("_BASE_URL")) {
        assert!(variables.contains(&format!("\nexport {name}=")), "{name}: {text}");
    }
}

/// `scripts/e2e --paths` calls each of these SDKs, and a test of the gateway reads the same table.
#[test]
fn every_sdk_is_in_the_table_of_paths() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/e2e/paths/table.json");
    let table: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(table).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let tried: BTreeSet<(String, String)> =
        table.iter().map(|row| (text(&row["setting"]), text(&row["sdk"]))).collect();
    let providers: Vec<Value> =
        serde_json::from_str(&stdout(&endstop(&["dialects", "--json"], b""))).unwrap();
    let mut named = BTreeSet::new();
    for sdk_url in providers.iter().flat_map(|provider| provider["sdk_urls"].as_array().unwrap()) {
        let setting = sdk_url.get("variable").or_else(|| sdk_url.get("argument")).unwrap();
        let sdks = sdk_url["sdks"].as_array().unwrap();
        named.extend(sdks.iter().map(|sdk| (text(setting), text(sdk))));
    }
    assert_eq!(named, tried);
}

#[test]
fn a_url_that_a_shell_could_run_is_an_error() {
    for url in [
        "x'; rm",
        "",
        "127.0.0.1:4100",
        "ftp://gateway",
        "http://",
        "http:///openai",
        "http://:4100",
        "http://gateway:port",
        "http://gateway:99999",
        "http://gateway/'",
        "http://gateway/$(id)",
        "http://gateway/`id`",
        "http://gateway/\u{2019};id",
        "http://gateway/a b",
        "http://gateway/?key=1",
        "http://gateway/#x",
        "http://user@gateway",
        "http://gateway/{resource}",
    ] {
        let output = endstop(&["env", "--url", url], b"");
        fails(&output, 1, &format!("invalid URL `{url}`: expected http:// or https://"));
        assert!(output.stdout.is_empty(), "{url}");
    }
    fails(&endstop(&["env", "--url", "http://gateway/\n"], b""), 1, "invalid URL `http://gateway/");
    for url in ["http://[::1]:4100", "https://gateway", "http://gateway:4100///"] {
        let set = format!("export OPENAI_BASE_URL='{}/openai/v1'", url.trim_end_matches('/'));
        assert!(env(&["--url", url]).contains(&set), "{url}");
    }
}

#[test]
fn a_closed_pipe_is_no_crash() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_endstop"))
        .arg("env")
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), b"".as_slice()));
}
