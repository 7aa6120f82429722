//! I5 and the bounds on memory, in a process of their own: other tests open descriptors too.

use std::process::Command;
use std::time::Duration;

use endstop_gateway::config::Mode;
use endstop_sim::Options;

use crate::client::Client;
use crate::ledger::{Ask, Field, eventually, every};

const IN_CHILD: &str = "ENDSTOP_TEST_SOAK";

#[test]
#[cfg(target_os = "linux")]
fn nothing_is_left_after_many_faults() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "soak::child", "--nocapture"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let cried = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success() && said.contains("measured"), "{said}\n{cried}");
}

#[test]
fn child() {
    if std::env::var_os(IN_CHILD).is_none() {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measured());
}

async fn measured() {
    // The first round opens what stays: threads, buffers, tables.
    round().await;
    let (descriptors, resident) = (descriptors(), kilobytes("VmRSS:"));
    for _ in 0..3 {
        round().await;
    }
    eventually("descriptors back", || (self::descriptors() <= descriptors + 4).then_some(())).await;
    let grown = kilobytes("VmRSS:").saturating_sub(resident);
    assert!(grown < 48 << 10, "{grown} KiB more after three more rounds");
    let (before, few) = (kilobytes("VmHWM:"), 8);
    endless_events(few).await;
    stalled_clients(few).await;
    let grown = kilobytes("VmHWM:").saturating_sub(before);
    assert!(grown < 96 << 10, "{grown} KiB more for {few} floods of 64 MiB");
    println!("measured");
}

async fn round() {
    let field = Field::with(|config| config.limits.idle = Duration::from_millis(300)).await;
    for scenario in ["complete", "reset", "cut-in-tool-call", "stall", "error-late", "gzip"] {
        field.ask_all(every(scenario)).await;
    }
    let ask = Ask::new("openai-chat", "stall", Mode::Guard);
    for _ in 0..50 {
        let mut client = crate::ledger::begin(&field, &ask, &field.tag()).await;
        client.head().await;
    }
    field.finish().await;
}

fn flooding() -> Options {
    Options { kept_bytes: 64 << 10, ..Options::default() }
}

/// Events without an end, all at once: no more of them is held than the limit.
async fn endless_events(count: usize) {
    let field = Field::on(flooding(), |config| config.limits.event_bytes = 1 << 20).await;
    let mut clients = Vec::new();
    for _ in 0..count {
        let ask = Ask::new("openai-chat", "no-newline=67108864", Mode::Guard);
        clients.push(crate::ledger::begin(&field, &ask, &field.tag()).await);
    }
    for mut client in clients {
        let response = client.finish().await;
        assert_eq!(field.record(response.id()).await.kept.cause, "oversize_event");
    }
    field.finish().await;
}

/// Clients that read nothing, all at once: no more is read for them than fits on the way.
async fn stalled_clients(count: usize) {
    let field = Field::on(flooding(), |config| {
        config.limits.client_write = Duration::from_millis(700);
        config.limits.event_bytes = 128 << 20;
    })
    .await;
    let clients: Vec<Client> = {
        let mut clients = Vec::new();
        for _ in 0..count {
            let ask = Ask::new("openai-chat", "no-newline=67108864", Mode::Observe);
            clients.push(crate::ledger::begin(&field, &ask, &field.tag()).await);
        }
        clients
    };
    for record in field.told_all(count).await {
        assert_eq!(record.kept.cause, "client_stalled");
    }
    drop(clients);
    field.finish().await;
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn kilobytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
