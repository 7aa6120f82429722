//! `endstop chat`, against simulated providers.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::Folder;

/// Simulated providers that stop at the end of the test.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
            .args(["sim", "--listen", "127.0.0.1:0", "--quiet"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let first = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let url = format!("http://{}", first.split("http://").nth(1).unwrap());
        Self { child, url }
    }

    /// Runs `endstop chat` without any variable of the environment.
    fn chat(&self, model: &str, arguments: &[&str], input: &str) -> Output {
        run(&["--gateway", &self.url, "-m", model], arguments, input, &[])
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(first: &[&str], arguments: &[&str], input: &str, variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
        .arg("chat")
        .args(first)
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Returns the exit code, standard output and standard error.
fn parts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_complete_answer_is_on_standard_output_alone() {
    let sim = Running::start();
    for model in ["openai/complete", "anthropic/complete", "gemini/complete", "bedrock/complete"] {
        let (code, out, notes) = parts(&sim.chat(model, &["Hi"], ""));
        assert_eq!(code, 0, "{model}: {notes}");
        assert!(out.ends_with('\n') && out.trim().len() > 5, "{model}: {out}");
        assert!(notes.starts_with("| complete, ") && notes.lines().count() == 1, "{notes}");
        assert!(!out.contains('\x1b') && !notes.contains('\x1b'), "no colour in a pipe");
        // From standard input, with and without a dash.
        assert_eq!(parts(&sim.chat(model, &[], "Hi\n")).1, out, "{model}");
        assert_eq!(parts(&sim.chat(model, &["-"], "Hi\n")).1, out, "{model}");
    }
}

#[test]
fn a_continued_answer_says_when_and_is_the_whole_text() {
    let sim = Running::start();
    for model in ["anthropic/claude-haiku-4-5:story=100", "openai/gpt-5:story=100"] {
        let whole = parts(&sim.chat(model, &["Tell a story."], "")).1;
        let continued = sim.chat(model, &["--max-tokens", "70", "Tell a story."], "");
        let (code, out, notes) = parts(&continued);
        assert_eq!((code, out), (0, whole), "{model}: {notes}");
        let lines: Vec<&str> = notes.lines().collect();
        assert_eq!(lines[0], "| output limit: continued (1)", "{notes}");
        assert!(lines.last().unwrap().starts_with("| complete, "), "{notes}");
        assert!(lines.last().unwrap().contains(" responses, "), "{notes}");
    }
}

#[test]
fn an_incomplete_answer_carries_its_notice_and_its_code() {
    let sim = Running::start();
    let folder = Folder::new("chat-policy");
    let quick = folder.write("p.toml", "[agent]\nretry_backoff_ms = 1\nretry_max_attempts = 1\n");
    let with = |model: &str| parts(&sim.chat(model, &["--config", &quick, "Hi"], ""));
    let (code, out, notes) = with("openai/length");
    assert_eq!(code, 11, "{notes}");
    let last = out.lines().last().unwrap();
    assert!(last.starts_with("[The answer is incomplete: ") && last.ends_with(".]"), "{out}");
    assert!(notes.lines().last().unwrap().starts_with("| incomplete (output limit)"), "{notes}");
    let (code, out, notes) = with("anthropic/cut-before-word");
    assert_eq!(code, 19, "{notes}");
    assert!(out.contains("[The answer is incomplete: "), "{out}");
    let (code, out, notes) = with("openai/refusal");
    assert_eq!(code, 13, "{notes}");
    assert!(notes.contains("| refused: "), "{notes} {out}");
    let (code, out, notes) = with("openai/status=401");
    assert_eq!((code, out.as_str()), (18, ""), "{notes}");
    assert!(notes.contains("| failed: ") && notes.contains("`OPENAI_API_KEY`"), "{notes}");
    let (code, _, notes) = with("openai/status=500");
    assert_eq!(code, 18, "{notes}");
    assert!(notes.starts_with("| failed: asked again (1)\n| failed: "), "{notes}");
    let (code, _, notes) = with("openai/unknown-word");
    assert_eq!(code, 15, "{notes}");
    let (code, _, notes) = with("openai/tool-call");
    assert_eq!(code, 0, "{notes}");
    assert!(notes.contains("| tool calls that were not run: "), "{notes}");
}

#[test]
fn the_policy_of_a_file_applies() {
    let sim = Running::start();
    let folder = Folder::new("chat-config");
    let file = folder.write("p.toml", "[agent]\ncontinuation_max_attempts = 1\n");
    let story = ["--max-tokens", "40", "Tell a story."];
    let model = "anthropic/claude-haiku-4-5:story=2000";
    let with = |more: &[&str]| parts(&sim.chat(model, &[more, &story].concat(), ""));
    let (code, out, notes) = with(&["--config", &file]);
    assert_eq!((code, notes.matches("continued (").count()), (11, 1), "{notes}");
    assert!(out.contains("(continuation_max_attempts)"), "{out}");
    assert_eq!(with(&[]).2.matches("continued (").count(), 3);
    let wrong = folder.write("wrong.toml", "[agent]\nfrob = 1\n");
    crate::fails(
        &sim.chat(model, &["--config", &wrong, "Hi"], ""),
        1,
        "wrong.toml:2: `agent.frob`",
    );
}

#[test]
fn what_is_missing_is_named_in_one_line_and_no_key_is_shown() {
    let fails = |arguments: &[&str], input: &str, says: &str| {
        let secret = [("ANTHROPIC_API_KEY", "canary-key"), ("OPENAI_API_KEY", "can\nary")];
        let output = run(&[], arguments, input, &secret);
        crate::fails(&output, 1, says);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("canary"));
    };
    fails(&["Hi"], "", "no model: pass one with `-m`");
    fails(&["-m", "gpt-5", "Hi"], "", "expected `provider/model`");
    fails(&["-m", "opnai/gpt-5", "Hi"], "", "did you mean `openai`?");
    fails(
        &["-m", "mistral/m", "Hi"],
        "",
        "no key for `mistral`: set `MISTRAL_API_KEY`, or name a gateway",
    );
    fails(&["-m", "openai/m", "Hi"], "", "(from `OPENAI_API_KEY`)");
    fails(
        &["-m", "openai-compatible/m", "Hi"],
        "",
        "no base URL for `openai-compatible`: pass `--base-url`",
    );
    fails(
        &["-m", "azure/m", "Hi"],
        "",
        "set `AZURE_RESOURCE` to your resource, or pass `--base-url`",
    );
    fails(&["-m", "anthropic/m"], " \n", "no prompt");
    let url = ["--base-url", "127.0.0.1:1", "-m", "anthropic/m", "Hi"];
    fails(&url, "", "invalid base URL `127.0.0.1:1` for `anthropic` (from the setting `base_url`)");
    for name in ["OPENAI_BASE_URL", "ENDSTOP_BASE_URL"] {
        let output = run(&["-m", "openai/m"], &["Hi"], "", &[(name, "foo")]);
        crate::fails(&output, 1, &format!("invalid base URL `foo` for `openai` (from `{name}`)"));
    }
    let url = ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1");
    let (code, _, notes) = parts(&run(&["-m", "openai/m"], &["Hi"], "", &[url]));
    assert_eq!(code, 18, "{notes}");
    assert!(notes.contains("`http://127.0.0.1:1/v1` (from `OPENAI_BASE_URL`)"), "{notes}");
}

#[test]
fn limits_that_forbid_the_request_are_named() {
    let sim = Running::start();
    let folder = Folder::new("chat-limits");
    for (name, value) in
        [("turn_max_iterations", "0"), ("turn_max_time", "'0s'"), ("turn_max_cost", "0.000001")]
    {
        let file = folder.write("p.toml", format!("[agent]\n{name} = {value}\n"));
        let (code, out, notes) = parts(&sim.chat("openai/gpt-5", &["--config", &file, "Hi"], ""));
        assert_eq!((code, out.as_str()), (18, ""), "{notes}");
        assert!(notes.contains("| failed: ") && notes.contains(&format!("({name})")), "{notes}");
    }
    let file = folder.write("p.toml", "fallback_models = ['opnai/complete']\n");
    let output = sim.chat("openai/gpt-5", &["--config", &file, "Hi"], "");
    crate::fails(
        &output,
        1,
        "unknown provider `opnai` in `opnai/complete`: did you mean `openai`?",
    );
}

#[test]
fn what_was_not_asked_is_not_noted() {
    let sim = Running::start();
    // The request has no tools, so that the call cannot be asked for again.
    for model in ["gemini/malformed-call", "bedrock/malformed-call"] {
        let (code, out, notes) = parts(&sim.chat(model, &["Hi"], ""));
        assert_ne!(code, 0, "{notes}");
        assert!(!notes.contains("asked again"), "{notes}");
        assert!(out.contains("[The answer is incomplete: a tool call is incomplete"), "{out}");
    }
    let model = "openai/k1:length,status=500,complete";
    let (code, _, notes) = parts(&sim.chat(model, &["Hi"], ""));
    assert_eq!(code, 0, "{notes}");
    assert!(!notes.contains("does not belong to the answer"), "{notes}");
}

#[test]
fn the_usual_variables_and_base_urls_count() {
    let sim = Running::start();
    let url = format!("{}/openai/v1", sim.url);
    let (code, out, _) =
        parts(&run(&["-m", "openai/complete"], &["--base-url", &url, "Hi"], "", &[]));
    assert_eq!(code, 0);
    for variables in [
        [("OPENAI_BASE_URL", url.as_str()), ("ENDSTOP_MODEL", "openai/complete")],
        [("ENDSTOP_BASE_URL", sim.url.as_str()), ("ENDSTOP_MODEL", "openai/complete")],
    ] {
        let (code, same, notes) = parts(&run(&[], &["Hi"], "", &variables));
        assert_eq!((code, &same), (0, &out), "{notes}");
    }
}

/// Runs the command on a terminal of its own, with these lines as input.
fn on_terminal(sim: &Running, model: &str, variable: &str, input: &str) -> String {
    let command =
        format!("{} chat --gateway {} -m {model}", env!("CARGO_BIN_EXE_endstop"), sim.url);
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .env("NO_COLOR", variable)
        .env_remove("ENDSTOP_MODEL")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Control-D ends the input of a terminal.
    child.stdin.take().unwrap().write_all(format!("{input}\x04").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n");
    assert_eq!(output.status.code(), Some(0), "{text}");
    text
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs script: set ENDSTOP_SERVERS=1")]
fn a_terminal_holds_a_conversation() {
    let sim = Running::start();
    let text = on_terminal(&sim, "openai/complete", "1", "Hi\n\nAnd now?\n");
    assert_eq!(text.matches("\n| complete, ").count(), 2, "{text}");
    assert!(text.contains("> "), "{text}");
    assert!(!text.contains('\x1b'), "NO_COLOR: {text}");
    let coloured = on_terminal(&sim, "openai/complete", "", "Hi\n");
    assert!(coloured.contains("\x1b[2m| complete, "), "{coloured}");
}
