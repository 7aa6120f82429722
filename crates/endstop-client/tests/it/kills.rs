//! Processes that are killed at every step, and go on in another process.
//!
//! The test starts itself as a child, which runs an agent. The child says each of its steps and waits for leave
//! to go on, so that it can be killed (by SIGKILL) exactly there.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use endstop::chat;
use endstop::tool_call::{Call, Whole};
use endstop_client::{RunEvent, SavedRun, Tool, ToolFuture, ToolRun, ToolRunEnd, tools};
use serde_json::json;

use crate::{builder_at, sim};

/// Variable with the settings of a child, in JSON.
const CHILD: &str = "ENDSTOP_TEST_CHILD";

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Settings {
    url: String,
    model: String,
    folder: PathBuf,
    idempotent: bool,
}

impl Settings {
    fn notes(&self) -> PathBuf {
        self.folder.join("notes.txt")
    }

    fn saved(&self) -> PathBuf {
        self.folder.join("run.json")
    }
}

/// Says a step, and waits for leave to go on.
fn step(name: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "step {name}").unwrap();
    out.flush().unwrap();
    let mut leave = [0];
    std::io::stdin().read_exact(&mut leave).unwrap();
}

/// Appends a line to a file for each call.
struct Save(Settings);

impl Tool for Save {
    fn definition(&self) -> chat::Tool {
        chat::Tool {
            name: "save".to_owned(),
            description: "Saves a note.".to_owned(),
            schema: json!({"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}),
        }
    }

    fn is_idempotent(&self) -> bool {
        self.0.idempotent
    }

    fn run<'a>(&'a self, call: &'a Call<Whole>) -> ToolFuture<'a> {
        Box::pin(async move {
            step("tool: before");
            let mut file = std::fs::OpenOptions::new();
            let mut file = file.create(true).append(true).open(self.0.notes()).unwrap();
            file.write_all(format!("{} {}\n", call.id(), call.arguments()).as_bytes()).unwrap();
            step("tool: after");
            Ok("saved".to_owned())
        })
    }
}

#[test]
#[ignore = "a process of `kills`"]
fn child() {
    let settings = std::env::var(CHILD).expect("settings");
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = builder_at(&settings.url).build().unwrap();
        let agent = client.agent(&settings.model).tools(tools![Save(settings.clone())]);
        let agent = agent.save_to(settings.saved());
        let mut run = match SavedRun::read(settings.saved()) {
            Ok(saved) => agent.resume(saved).unwrap(),
            Err(_) => agent.run("Save a note.").unwrap(),
        };
        while let Some(event) = run.next().await {
            if let RunEvent::Report(report) = &event {
                println!("runs {}", serde_json::to_string(&report.tool_runs).unwrap());
            }
            let name = format!("{event:?}");
            step(name.split(['(', ' ', '{']).next().unwrap_or_default());
        }
    });
}

fn start(settings: &Settings) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::child", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, serde_json::to_string(settings).unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// What became of a process: the tool runs of its report, if it came to its end.
#[derive(Debug)]
struct Lived {
    steps: Vec<String>,
    runs: Option<Vec<ToolRun>>,
}

/// Starts a process and kills it at this step.
fn live(settings: &Settings, kill_at: usize) -> Lived {
    let mut child = start(settings);
    let mut leave = child.stdin.take().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let mut lived = Lived { steps: Vec::new(), runs: None };
    for line in out.lines() {
        let line = line.unwrap();
        // The first line shares its line with the name of the test.
        if let Some((_, runs)) = line.split_once("runs [") {
            lived.runs = Some(serde_json::from_str(&format!("[{runs}")).unwrap());
        } else if let Some((_, name)) = line.split_once("step ") {
            if lived.steps.len() == kill_at {
                child.kill().unwrap();
                break;
            }
            lived.steps.push(name.to_owned());
            // A child that has died is found out by its lines.
            let _ = leave.write_all(b".");
        }
    }
    child.wait().unwrap();
    lived
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    text.lines().map(str::to_owned).collect()
}

const WIRES: &[&str] = &[
    "openai",
    "openai:responses",
    "anthropic",
    "gemini",
    "bedrock",
    "mistral",
    "cohere",
    "ollama",
];

/// Never killed.
const NEVER: usize = usize::MAX;

/// Kills a run at these steps of its processes, one after the other, and lets the last process come to its end.
/// Returns the tool runs of the report, and the lines of the file.
fn killed(
    url: &str,
    model: &str,
    idempotent: bool,
    kills: &[usize],
) -> (Vec<ToolRun>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        url: url.to_owned(),
        model: model.to_owned(),
        folder: folder.path().to_owned(),
        idempotent,
    };
    for kill_at in kills {
        live(&settings, *kill_at);
    }
    let last = live(&settings, NEVER);
    let runs =
        last.runs.unwrap_or_else(|| panic!("{model}, {kills:?}: no report: {:?}", last.steps));
    (runs, lines(&settings.notes()))
}

/// Returns the steps of a run that nobody kills.
fn steps(url: &str, model: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        url: url.to_owned(),
        model: model.to_owned(),
        folder: folder.path().to_owned(),
        idempotent: false,
    };
    live(&settings, NEVER).steps
}

/// Returns this many places in a run, spread by its number.
fn places(steps: usize, count: usize, number: usize) -> Vec<usize> {
    let every = (steps / count).max(1);
    (number % every..steps).step_by(every).take(count + 1).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn over_unfinished_calls_the_file_stays_empty() {
    let sim = sim().await;
    let url = sim.url();
    let scenarios = [
        "length-half-args",
        "length-whole-args",
        "cut-in-tool-call",
        "cut-after-call",
        "reset-in-tool-call",
        "length-late",
        "fails-in-call",
        "truncated-frame",
    ];
    let cases =
        WIRES.iter().flat_map(|wire| scenarios.map(|scenario| format!("{wire}/{scenario}")));
    let mut kills = 0;
    for (number, model) in cases.enumerate() {
        let steps = steps(&url, &model).len();
        for place in places(steps, 1, number) {
            let (runs, lines) = killed(&url, &model, false, &[place]);
            assert!(lines.is_empty() && runs.is_empty(), "{model}, {place} of {steps}: {lines:?}");
            kills += 1;
        }
    }
    println!("{kills} kills");
    assert!(kills >= 60, "{kills}");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_complete_calls_each_runs_at_most_once() {
    let sim = sim().await;
    let url = sim.url();
    let (mut kills, mut interrupted) = (0, 0);
    for (number, wire) in WIRES.iter().enumerate() {
        for (scenario, calls) in [("tool-call", 1), ("tool-call-parallel", 2)] {
            let model = format!("{wire}/{scenario}");
            let steps = steps(&url, &model).len();
            // Every step on one wire, some on the others.
            let count = if number == 0 { steps } else { 4 };
            for place in places(steps, count, number) {
                // A process that goes on may be killed as well.
                let twice = [place, 1 + place % 3];
                let twice = if place % 2 == 0 { &twice[..] } else { &twice[..1] };
                let (runs, lines) = killed(&url, &model, false, twice);
                let what = format!("{model}, {twice:?} of {steps}: {runs:?}, {lines:?}");
                assert_eq!(runs.len(), calls, "each call is told: {what}");
                let done = runs.iter().filter(|run| run.end == ToolRunEnd::Done).count();
                let lost = runs.iter().filter(|run| run.end == ToolRunEnd::Interrupted).count();
                assert_eq!(done + lost, calls, "{what}");
                // Calls have ids, except on Gemini and Ollama.
                let ids: Vec<&String> =
                    lines.iter().filter(|line| !line.starts_with(' ')).collect();
                let once: BTreeSet<&&String> = ids.iter().collect();
                assert_eq!(once.len(), ids.len(), "a call ran twice: {what}");
                assert!(lines.len() >= done && lines.len() <= calls, "{what}");
                for run in runs.iter().filter(|run| run.end == ToolRunEnd::Done) {
                    assert!(lines.iter().any(|line| line.ends_with(&run.arguments)), "{what}");
                }
                kills += twice.len();
                interrupted += lost;
            }
        }
    }
    println!("{kills} kills, {interrupted} calls interrupted");
    assert!(kills > 40 && interrupted > 0, "{kills} kills, {interrupted} calls interrupted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_tool_runs_again() {
    let sim = sim().await;
    let url = sim.url();
    let model = "openai/tool-call-parallel";
    let steps = steps(&url, model);
    // Killed when a call has run, and its result is not stored.
    let places: Vec<usize> =
        (0..steps.len()).filter(|place| steps[*place].starts_with("tool: after")).collect();
    let mut again = 0;
    for place in [0].into_iter().chain(places) {
        let (runs, lines) = killed(&url, model, true, &[place]);
        assert!(runs.len() == 2 && runs.iter().all(|run| run.end == ToolRunEnd::Done), "{runs:?}");
        assert!(lines.len() >= 2, "{place} of {steps:?}: {lines:?}");
        again += lines.len() - 2;
    }
    let (_, lines) = killed(&url, model, true, &[]);
    assert_eq!(lines.len(), 2, "a run that nobody kills runs each call once");
    println!("{again} calls ran again");
    assert!(again > 0);
}
