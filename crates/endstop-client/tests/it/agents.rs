//! The agent loop: what runs, how often, and what happens when a process dies.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use endstop::Reason;
use endstop::chat::{self, ChatMessage};
use endstop::tool_call::{Call, Whole};
use endstop_client::{
    AgentReport, Client, Ended, Limits, RunEvent, SavedRun, Timeouts, Tool, ToolFuture, ToolRunEnd,
    tool, tools, usd,
};
use endstop_turn::policy::{Action, Policy, RuleChange};
use serde_json::json;

use crate::{WIRES, builder, quick, sim};

/// Appends a line to a file for each call.
#[derive(Clone)]
struct Save {
    path: PathBuf,
    started: Arc<AtomicU32>,
    idempotent: bool,
    slow: Duration,
    /// Whether it takes no parameters.
    bare: bool,
    /// Saved run that is read while the tool runs.
    watched: Option<PathBuf>,
    /// What the saved run was then.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Save {
    fn new(folder: &Path) -> Self {
        let path = folder.join("notes.txt");
        Self {
            path,
            started: Arc::default(),
            idempotent: false,
            slow: Duration::ZERO,
            bare: false,
            watched: None,
            seen: Arc::default(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Tool for Save {
    fn definition(&self) -> chat::Tool {
        let schema = match self.bare {
            true => json!({"type": "object", "properties": {}, "additionalProperties": false}),
            false => {
                json!({"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]})
            }
        };
        chat::Tool { name: "save".to_owned(), description: "Saves a note.".to_owned(), schema }
    }

    fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    fn run<'a>(&'a self, call: &'a Call<Whole>) -> ToolFuture<'a> {
        Box::pin(async move {
            use std::io::Write as _;
            self.started.fetch_add(1, Ordering::Relaxed);
            if let Some(watched) = &self.watched {
                self.seen.lock().unwrap().push(std::fs::read_to_string(watched).unwrap());
            }
            tokio::time::sleep(self.slow).await;
            let mut file =
                std::fs::OpenOptions::new().create(true).append(true).open(&self.path).unwrap();
            writeln!(file, "{}", call.arguments()).unwrap();
            Ok("saved".to_owned())
        })
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_call_runs_once_and_the_answer_follows() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for wire in WIRES {
        for (scenario, times) in
            [("tool-call", 1), ("tool-call-parallel", 2), ("tool-call-stop", 1)]
        {
            let folder = folder();
            let save = Save::new(folder.path());
            let agent = client.agent(&format!("{wire}/{scenario}")).tools(tools![save.clone()]);
            let report = agent.run("Save a note.").unwrap().report().await.unwrap();
            let lines = save.lines();
            // The conversation that the model saw has exactly these calls.
            let asked = report.conversation.iter().find_map(|message| match message {
                ChatMessage::Assistant(message) => Some(&message.calls),
                _ => None,
            });
            let asked: Vec<&str> = asked.unwrap().iter().map(|call| &*call.arguments).collect();
            assert_eq!(asked, vec![NOTE; times], "{wire} {scenario}");
            assert_eq!(lines, asked, "{wire} {scenario}");
            assert!(report.response.text().is_some(), "{wire} {scenario}");
            assert_eq!(report.tool_runs.len(), times, "{wire} {scenario}");
            assert!(report.tool_runs.iter().all(|run| run.end == ToolRunEnd::Done));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_parameters_runs_with_an_empty_object() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for wire in WIRES {
        let folder = folder();
        let save = Save { bare: true, ..Save::new(folder.path()) };
        let model = format!("{wire}/tool-call-no-args");
        let run = client.agent(&model).tools(tools![save.clone()]).run("Go.").unwrap();
        let report = run.report().await.unwrap();
        assert_eq!(save.lines(), ["{}"], "{wire}");
        assert!(report.response.text().is_some(), "{wire}: {:?}", report.response.outcome);
    }
}

/// Arguments of the simulator's calls.
const NOTE: &str = r#"{"note":"alpha beta gamma delta"}"#;

/// Scenarios with a tool call that is not proven to be complete.
const UNFINISHED: &[&str] = &[
    "length-half-args",
    "length-whole-args",
    "cut-in-tool-call",
    "cut-after-args",
    "cut-after-call",
    "cut-in-second-call",
    "reset-in-tool-call",
    "unknown-word-tool-call",
    "error-after-call",
    "invalid-args",
    "done-without-word-tool-call",
    "tool-call-at-cap",
    "length-late",
    "fails-in-call",
    "choices-cut-call",
    "truncated-frame",
    "stall-in-tool-call",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_call_never_runs() {
    let sim = sim().await;
    let usual = builder(&sim).build().unwrap();
    // Silence ends by a timeout. If it comes early on a busy machine, nothing may run either.
    let idle = Timeouts { idle: Duration::from_millis(200), ..Timeouts::default() };
    let idle = builder(&sim).timeouts(idle).build().unwrap();
    for wire in WIRES {
        for scenario in UNFINISHED {
            let client = if scenario.starts_with("stall") { &idle } else { &usual };
            let folder = folder();
            let save = Save::new(folder.path());
            let saved = folder.path().join("run.json");
            let agent = || {
                let agent = client.agent(&format!("{wire}/{scenario}"));
                agent.tools(tools![save.clone()]).save_to(&saved)
            };
            let report = agent().run("Save a note.").unwrap().report().await.unwrap();
            assert!(save.lines().is_empty(), "{wire} {scenario}: {:?}", save.lines());
            assert!(report.response.text().is_none(), "{wire} {scenario}");
            // A process that dies and goes on runs nothing either.
            let run = agent().resume(SavedRun::read(&saved).unwrap()).unwrap();
            run.report().await.unwrap();
            assert!(save.lines().is_empty(), "{wire} {scenario}, resumed");
        }
        // On some wires, the finish reason alone proves the end: then the call runs, once.
        let folder = folder();
        let save = Save::new(folder.path());
        let agent = usual.agent(&format!("{wire}/no-marker-tool-call")).tools(tools![save.clone()]);
        let report = agent.run("Save a note.").unwrap().report().await.unwrap();
        let proven = report.signals.iter().filter(|signal| signal.ending == Reason::ToolCall);
        assert_eq!(save.lines().len(), proven.count(), "{wire}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_repaired_once_or_not_at_all() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let wires = ["openai", "openai:responses", "anthropic", "bedrock", "mistral", "cohere"];
    for (number, wire) in wires.into_iter().enumerate() {
        let folder = folder();
        let save = Save::new(folder.path());
        // A list is counted by its name.
        let model = format!("{wire}/m{number}:length-half-args,tool-call");
        let run = client.agent(&model).tools(tools![save.clone()]).run("Save.").unwrap();
        let report = run.report().await.unwrap();
        assert_eq!(save.lines().len(), 1, "{wire}: {:?}", report.response.outcome);
        assert!(report.response.text().is_some(), "{wire}");

        let folder = self::folder();
        let save = Save::new(folder.path());
        let model = format!("{wire}/m:length-half-args");
        let mut run = client.agent(&model).tools(tools![save.clone()]).run("Save.").unwrap();
        let mut events = Vec::new();
        while let Some(event) = run.next().await {
            match event {
                RunEvent::Turn(event) => events.push(event.name()),
                RunEvent::Report(report) => {
                    assert!(matches!(report.response.ended(), Ended::Partial(_)), "{wire}");
                }
                _ => {}
            }
        }
        assert!(save.lines().is_empty(), "{wire}");
        assert!(events.contains(&"tool_payload_repair"), "{wire}: {events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_goes_on_after_any_step_and_runs_no_tool_twice() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for wire in ["openai", "anthropic", "gemini"] {
        let mut steps = 0;
        for stop_after in 0.. {
            let folder = folder();
            let save = Save::new(folder.path());
            let saved = folder.path().join("run.json");
            let agent = || {
                let agent = client.agent(&format!("{wire}/tool-call"));
                agent.tools(tools![save.clone()]).save_to(&saved)
            };
            let mut run = agent().run("Save a note.").unwrap();
            let mut is_over = false;
            for _ in 0..=stop_after {
                match run.next().await {
                    Some(RunEvent::Report(_)) | None => is_over = true,
                    Some(_) => {}
                }
            }
            // The process dies here.
            drop(run);
            let run = agent().resume(SavedRun::read(&saved).unwrap()).unwrap();
            let report = run.report().await.unwrap();
            assert!(report.response.text().is_some(), "{wire}, after {stop_after} events");
            let interrupted =
                report.tool_runs.iter().filter(|run| run.end == ToolRunEnd::Interrupted).count();
            assert!(save.lines().len() <= 1, "{wire}, after {stop_after} events");
            assert_eq!(save.lines().len() + interrupted, 1, "{wire}, after {stop_after} events");
            steps += 1;
            if is_over {
                break;
            }
        }
        assert!(steps > 8, "{wire}: {steps}");
    }
}

/// The end of a run, without the ids and numbers in which two runs differ.
#[derive(Debug, PartialEq)]
struct RunEnd {
    text: Option<String>,
    outcome: String,
    messages: Vec<String>,
    tools: Vec<(String, ToolRunEnd)>,
}

impl RunEnd {
    fn of(report: &AgentReport) -> Self {
        let outcome = &report.response.outcome;
        let message = |message: &ChatMessage| match message {
            ChatMessage::User { .. } => "user".to_owned(),
            ChatMessage::Assistant(message) => {
                let calls: Vec<_> =
                    message.calls.iter().map(|call| (&call.name, &call.arguments)).collect();
                format!("assistant {:?} {calls:?}", message.text)
            }
            ChatMessage::Tool { results } => {
                let results: Vec<_> = results.iter().map(|result| &result.content).collect();
                format!("tool {results:?}")
            }
            other => format!("{other:?}"),
        };
        Self {
            text: report.response.text().map(str::to_owned),
            outcome: format!("{:?} {:?}", outcome.finish, outcome.terminated),
            messages: report.conversation.iter().map(message).collect(),
            tools: report.tool_runs.iter().map(|run| (run.arguments.clone(), run.end)).collect(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_restored_at_every_step_ends_the_same() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for wire in WIRES {
        for scenario in ["tool-call", "tool-call-parallel", "length-whole-args"] {
            let folder = folder();
            let saved = folder.path().join("run.json");
            let watched = Some(saved.clone());
            let save = Save { idempotent: true, watched, ..Save::new(folder.path()) };
            let agent = |path: &Path| {
                let agent = client.agent(&format!("{wire}/{scenario}"));
                agent.tools(tools![save.clone()]).save_to(path)
            };
            let mut run = agent(&saved).run("Save a note.").unwrap();
            let (mut snapshots, mut whole) = (Vec::<String>::new(), None);
            while let Some(event) = run.next().await {
                let now = std::fs::read_to_string(&saved).unwrap();
                for snapshot in save.seen.lock().unwrap().drain(..).chain([now]) {
                    if !snapshots.contains(&snapshot) {
                        snapshots.push(snapshot);
                    }
                }
                if let RunEvent::Report(report) = event {
                    whole = Some(RunEnd::of(&report));
                }
            }
            let whole = whole.unwrap();
            // The request, the calls while they run, the next request, the end: each is seen. Steps between
            // two events may follow each other too fast to be seen.
            let least = if scenario == "length-whole-args" { 3 } else { 4 };
            assert!(snapshots.len() >= least, "{wire} {scenario}: {}", snapshots.len());
            for (number, snapshot) in snapshots.iter().enumerate() {
                let copy = folder.path().join(format!("{number}.json"));
                std::fs::write(&copy, snapshot).unwrap();
                let run = agent(&copy).resume(SavedRun::read(&copy).unwrap()).unwrap();
                let report = run.report().await.unwrap();
                let what = format!("{wire} {scenario}, step {number} of {}", snapshots.len());
                assert_eq!(RunEnd::of(&report), whole, "{what}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_was_interrupted_runs_again_only_if_it_is_idempotent() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for idempotent in [false, true] {
        let folder = folder();
        let slow = Duration::from_secs(3600);
        let mut save = Save { idempotent, slow, ..Save::new(folder.path()) };
        let saved = folder.path().join("run.json");
        let agent = |save: &Save| {
            client.agent("openai/tool-call").tools(tools![save.clone()]).save_to(&saved)
        };
        let mut run = agent(&save).run("Save a note.").unwrap();
        while save.started.load(Ordering::Relaxed) == 0 {
            tokio::select! {
                event = run.next() => assert!(event.is_some()),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        drop(run);
        save.slow = Duration::ZERO;
        let report = agent(&save).resume(SavedRun::read(&saved).unwrap()).unwrap();
        let report = report.report().await.unwrap();
        assert_eq!(save.lines().len(), usize::from(idempotent));
        let end = if idempotent { ToolRunEnd::Done } else { ToolRunEnd::Interrupted };
        assert_eq!(report.tool_runs[0].end, end);
    }
}

/// Runs an agent until its tool has started, and drops it there.
async fn started(client: &Client, save: &Save, saved: &Path, steering: Option<&str>) {
    let agent = client.agent("openai/tool-call").tools(tools![save.clone()]).save_to(saved);
    let mut run = agent.run("Save a note.").unwrap();
    steering.into_iter().for_each(|text| run.steer(text));
    while save.started.load(Ordering::Relaxed) == 0 {
        tokio::select! {
            event = run.next() => assert!(event.is_some()),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_run_goes_on_once() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let folder = folder();
    let slow = Duration::from_secs(3600);
    let mut save = Save { idempotent: true, slow, ..Save::new(folder.path()) };
    let saved = folder.path().join("run.json");
    started(&client, &save, &saved, Some("canary steering")).await;
    save.slow = Duration::ZERO;
    // Nothing says where to save: the run is saved to the file that it was read from.
    let agent = || client.agent("openai/tool-call").tools(tools![save.clone()]);
    let read = || SavedRun::read(&saved).unwrap();
    let (first, copy) = (read(), read());
    let run = agent().resume(first).unwrap();
    let error = agent().resume(read()).unwrap_err().to_string();
    assert!(error.ends_with("run.json: another process or task goes on with this run"), "{error}");
    let error = agent().save_to(&saved).run("Save.").unwrap_err().to_string();
    assert!(error.ends_with("another process or task goes on with this run"), "{error}");
    let report = run.report().await.unwrap();
    assert!(report.response.text().is_some());
    // A message that waited is not lost.
    let asked = sim.ledger().pop().unwrap();
    assert!(String::from_utf8_lossy(&asked.request).contains("canary steering"));
    // The simulated model calls its tool again after a message of the user.
    let ran = report.tool_runs.len();
    assert_eq!((save.lines().len(), ran), (2, 2));
    // An older copy does not go on, and what is over runs nothing.
    let error = agent().resume(copy).unwrap_err().to_string();
    assert!(error.ends_with("it has gone on since it was read: read it again"), "{error}");
    assert!(read().is_over());
    agent().resume(read()).unwrap().report().await.unwrap();
    assert_eq!(save.lines().len(), ran);
    // A run that is not from a file must be saved to one.
    let text = std::fs::read_to_string(&saved).unwrap();
    let loose: SavedRun = serde_json::from_str(&text).unwrap();
    let error = agent().resume(loose).unwrap_err().to_string();
    assert!(error.contains("set `Agent::save_to`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_run_that_moves_to_another_file_goes_on_there_only() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let folder = folder();
    let slow = Duration::from_secs(3600);
    let mut save = Save { idempotent: true, slow, ..Save::new(folder.path()) };
    let (from, to) = (folder.path().join("run.json"), folder.path().join("other.json"));
    started(&client, &save, &from, None).await;
    save.slow = Duration::ZERO;
    let agent = || client.agent("openai/tool-call").tools(tools![save.clone()]).save_to(&to);
    // A run that cannot go on stays where it is.
    let limits = Limits { cost: usd(1.0), ..Limits::default() };
    let error = agent().limits(limits).resume(SavedRun::read(&from).unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("no price for "), "{error}");
    assert!(!to.exists());
    // It has moved once `resume` has returned.
    drop(agent().resume(SavedRun::read(&from).unwrap()).unwrap());
    assert_eq!(save.lines().len(), 0);
    agent().resume(SavedRun::read(&to).unwrap()).unwrap().report().await.unwrap();
    assert_eq!(save.lines().len(), 1);
    let error = agent().resume(SavedRun::read(&from).unwrap()).unwrap_err().to_string();
    assert!(error.contains("run.json: it goes on in ") && error.ends_with("other.json"), "{error}");
    assert!(SavedRun::read(&to).unwrap().is_over());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_run_leaves_files_of_other_names_alone() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let folder = folder();
    let save = Save::new(folder.path());
    // Runs in `job.1` and `job.2` must not write to the same file.
    let other = folder.path().join("job.part");
    std::fs::write(&other, "canary").unwrap();
    let agent = client.agent("openai/tool-call").tools(tools![save.clone()]);
    let saved = folder.path().join("job.1");
    agent.save_to(&saved).run("Save.").unwrap().report().await.unwrap();
    assert!(SavedRun::read(&saved).unwrap().is_over());
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "canary");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_run_counts_repeated_calls_on() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let folder = folder();
    let save = Save::new(folder.path());
    let saved = folder.path().join("run.json");
    let limits = Limits { turns: 50, same_calls: 3, ..Limits::default() };
    let agent = || {
        let agent = client.agent("openai/tool-call!").tools(tools![save.clone()]);
        agent.limits(limits).save_to(&saved)
    };
    let mut run = agent().run("Save a note.").unwrap();
    let mut is_over = false;
    // Killed after every tool.
    while !is_over {
        loop {
            match run.next().await {
                Some(RunEvent::ToolFinished { .. }) => break,
                Some(RunEvent::Report(_)) | None => {
                    is_over = true;
                    break;
                }
                Some(_) => {}
            }
        }
        drop(run);
        run = agent().resume(SavedRun::read(&saved).unwrap()).unwrap();
        assert!(save.lines().len() <= 3, "{}", save.lines().len());
    }
    assert_eq!(save.lines().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_saved_starts_no_tool() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let folder = folder();
    let save = Save::new(folder.path());
    let nowhere = folder.path().join("missing").join("run.json");
    let agent = client.agent("openai/tool-call").tools(tools![save.clone()]).save_to(&nowhere);
    let error = agent.clone().run("Save a note.").unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("run.json"), "{error}");
    // The folder goes while the run is under way.
    std::fs::create_dir(folder.path().join("missing")).unwrap();
    let mut run = agent.run("Save a note.").unwrap();
    assert!(run.next().await.is_some());
    std::fs::remove_dir_all(folder.path().join("missing")).unwrap();
    let report = run.report().await.unwrap();
    assert!(save.lines().is_empty() && report.tool_runs.is_empty());
    assert!(report.response.text().is_none(), "{:?}", report.response.outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_exact_and_the_last_answer_is_inside_them() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for turns in [2, 3, 5] {
        let folder = folder();
        let save = Save::new(folder.path());
        let before = sim.ledger().len();
        // `!`: calls the tool again, whatever the conversation holds.
        let limits = Limits { turns, same_calls: 100, ..Limits::default() };
        let agent = client.agent("openai/tool-call!").tools(tools![save.clone()]).limits(limits);
        let report = agent.run("Save a note.").unwrap().report().await.unwrap();
        assert_eq!(sim.ledger().len() - before, turns as usize, "requests");
        assert_eq!(save.lines().len(), turns as usize - 1);
        assert!(report.response.text().is_some(), "{:?}", report.response.outcome);
    }
    // The policy's limits for a provider do not raise those of the run.
    for (most, requests) in [(10, 3), (2, 2)] {
        let table = format!("[providers.openai.agent]\nturn_max_iterations = {most}");
        let policy = Policy::from_toml("p.toml", &table).unwrap();
        let folder = folder();
        let save = Save::new(folder.path());
        let before = sim.ledger().len();
        let limits = Limits { turns: 3, same_calls: 100, ..Limits::default() };
        let agent = client.agent("openai/tool-call!").tools(tools![save]).limits(limits);
        let run = agent.policy(policy).run("Save a note.").unwrap();
        let report = run.report().await.unwrap();
        assert_eq!(sim.ledger().len() - before, requests, "{most}");
        assert!(report.response.text().is_some(), "{most}: {:?}", report.response.outcome);
    }
    // Calls that only repeat end the run before the limit.
    let folder = folder();
    let save = Save::new(folder.path());
    let limits = Limits { turns: 50, same_calls: 3, ..Limits::default() };
    let agent = client.agent("openai/tool-call!").tools(tools![save.clone()]).limits(limits);
    let report = agent.run("Save a note.").unwrap().report().await.unwrap();
    assert_eq!(save.lines().len(), 3);
    assert!(matches!(report.response.ended(), Ended::Partial(_) | Ended::Failed(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_can_be_added_to_a_run() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for wire in WIRES {
        let folder = folder();
        let save = Save::new(folder.path());
        let agent = client.agent(&format!("{wire}/tool-call")).tools(tools![save.clone()]);
        let run = agent.run("Save a note.").unwrap();
        run.steer("canary steering");
        let report = run.report().await.unwrap();
        assert!(report.unseen.is_empty() && report.response.text().is_some(), "{wire}");
        let last = sim.ledger().pop().unwrap();
        assert!(String::from_utf8_lossy(&last.request).contains("canary steering"), "{wire}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_answer_goes_to_another_model() {
    let sim = sim().await;
    let mut policy = quick();
    let rule = RuleChange { action: Some(Action::OtherModel), ..RuleChange::default() };
    policy.rules.insert(Reason::Refused, rule);
    let client = builder(&sim).policy(policy.clone()).build().unwrap();
    let reply = client.chat("anthropic/refusal", "Hi").await.unwrap();
    assert!(matches!(reply.ended(), Ended::Refused(_)), "no other model is named");
    policy.fallback_models = vec!["openai/refusal".to_owned(), "gemini/complete".to_owned()];
    let client = builder(&sim).policy(policy).build().unwrap();
    let reply = client.chat("anthropic/refusal", "Hi").await.unwrap();
    assert!(reply.text().is_some(), "{:?}", reply.outcome);
    assert_eq!(reply.ending.provider, "google");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_may_change_its_provider() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    let folder = folder();
    let save = Save::new(folder.path());
    let mut conversation = Vec::new();
    for wire in WIRES.iter().chain(WIRES) {
        let agent = client.agent(&format!("{wire}/tool-call"));
        let agent = agent.tools(tools![save.clone()]).conversation(conversation);
        let report = agent.run("Save a note.").unwrap().report().await.unwrap();
        assert!(report.response.text().is_some(), "{wire}: {:?}", report.response.outcome);
        conversation = report.conversation;
    }
}

/// Adds two numbers.
#[tool(idempotent)]
async fn add(
    /// The first one.
    a: i64,
    /// The second one.
    b: Option<i64>,
) -> Result<i64, String> {
    b.map(|b| a + b).ok_or_else(|| "b is missing".to_owned())
}

#[test]
fn a_function_becomes_a_tool() {
    let definition = add.definition();
    assert_eq!((&*definition.name, &*definition.description), ("add", "Adds two numbers."));
    let schema = definition.schema;
    assert_eq!(schema["properties"]["a"]["description"], "The first one.");
    assert_eq!(schema["required"], json!(["a"]));
    assert_eq!(schema["additionalProperties"], false);
    assert!(add.is_idempotent());
}

#[tokio::test]
async fn bad_tools_are_refused_with_one_clear_error() {
    struct Odd(&'static str, serde_json::Value);
    impl Tool for Odd {
        fn definition(&self) -> chat::Tool {
            let (name, schema) = (self.0.to_owned(), self.1.clone());
            chat::Tool { name, description: String::new(), schema }
        }

        fn run<'a>(&'a self, _: &'a Call<Whole>) -> ToolFuture<'a> {
            Box::pin(async { Ok(String::new()) })
        }
    }
    let client = Client::builder().key("openai", "k").build().unwrap();
    let error =
        |tool: Odd| client.agent("openai/m").tools(tools![tool]).run("Hi").unwrap_err().to_string();
    let wrong = error(Odd("f", json!({"type": "frob"})));
    assert!(wrong.starts_with("invalid schema of the tool `f`: "), "{wrong}");
    assert!(error(Odd("f", json!(1))).contains("expected a JSON object"));
    assert!(error(Odd("my tool", json!({}))).contains("invalid tool name `my tool`"));
    let twice = tools![Odd("f", json!({})), Odd("f", json!({}))];
    let error = client.agent("openai/m").tools(twice).run("Hi").unwrap_err().to_string();
    assert_eq!(error, "two tools are named `f`: names must be unique");
}
