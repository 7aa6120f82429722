//! The agent loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use endstop::chat;
use endstop::tool_call::{Call, Whole};
use endstop_client::{Tool, ToolFuture, tools};
use serde_json::json;

use crate::{WIRES, builder, sim};

/// Counts its calls.
#[derive(Clone, Default)]
struct Save(Arc<AtomicU32>);

impl Tool for Save {
    fn definition(&self) -> chat::Tool {
        chat::Tool {
            name: "save".to_owned(),
            description: "Saves a note.".to_owned(),
            schema: json!({"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}),
        }
    }

    fn run<'a>(&'a self, _: &'a Call<Whole>) -> ToolFuture<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok("saved".to_owned()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_call_runs_once_and_the_answer_follows() {
    let sim = sim().await;
    let client = builder(&sim).build().unwrap();
    for wire in WIRES {
        let save = Save::default();
        let agent = client.agent(&format!("{wire}/tool-call")).tools(tools![save.clone()]);
        let report = agent.run("Save a note.").unwrap().report().await.unwrap();
        println!("{wire} {:?} {:?}", save.0.load(Ordering::Relaxed), report.response.ended());
    }
}
