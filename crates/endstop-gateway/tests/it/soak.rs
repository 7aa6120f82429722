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
    in_child("faults");
}

/// 40 bodies of 31 MiB that are sent up to their last bytes, and then a byte a second.
#[test]
#[cfg(target_os = "linux")]
fn bodies_that_never_end_take_no_more_memory_than_allowed() {
    in_child("bodies");
}

fn in_child(what: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "soak::child", "--nocapture"])
        .env(IN_CHILD, what)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout).into_owned();
    let cried = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success() && said.contains("measured"), "{said}\n{cried}");
}

#[test]
fn child() {
    let Some(what) = std::env::var_os(IN_CHILD) else { return };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if what == "bodies" {
        runtime.block_on(endless_bodies());
    } else {
        runtime.block_on(measured());
    }
}

async fn endless_bodies() {
    const SIZE: usize = 31 << 20;
    let field = Field::with(|config| config.limits.request_memory = 128 << 20).await;
    let mut sending = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let address = field.address;
        sending.spawn(async move { send_slowly(address, SIZE).await });
    }
    // Three fit; the others are refused.
    let mut answered = 0;
    for _ in 0..37 {
        let response = sending.join_next().await.unwrap().unwrap();
        // A reset may overtake the answer when not everything was read.
        if response.status != 0 {
            assert_eq!(response.status, 503, "{response:?}");
            assert_eq!(response.header("retry-after"), "5");
            assert!(response.text().contains("request_memory"), "{}", response.text());
            answered += 1;
        }
    }
    assert!(answered > 0, "nobody saw why");
    // Others are served meanwhile.
    for _ in 0..20 {
        field.ask(Ask::new("openai-chat", "complete", Mode::Guard)).await;
    }
    assert_eq!(sending.len(), 3, "those that fit go on");
    let most = kilobytes("VmHWM:");
    assert!(most < 200_000_000 >> 10, "{most} KiB");
    sending.shutdown().await;
    println!("measured {most} KiB");
    field.finish().await;
}

/// Sends all but the last bytes of a body, and then a byte a second, until there is an answer.
async fn send_slowly(to: std::net::SocketAddr, size: usize) -> crate::client::Response {
    use tokio::io::AsyncWriteExt as _;
    let mut client = Client::connect(to).await;
    let path = "/openai/v1/chat/completions";
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n");
    client.send(head).await;
    let piece = [b' '; 64 << 10];
    for _ in 0..(size - (1 << 20)) / piece.len() {
        if client.stream.write_all(&piece).await.is_err() {
            return client.finish().await;
        }
    }
    loop {
        tokio::select! {
            response = client.finish() => return response,
            () = tokio::time::sleep(Duration::from_secs(1)) => client.send(" ").await,
        }
    }
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
