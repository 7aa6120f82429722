//! Measurement of one workload on one contender: cost and delays.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::{Client, Count, Delays, First, Keep, Progress, Sink};
use crate::clock;
use crate::contender::{Contender, Running};
use crate::mock::{FLOOD, STAMP};
use crate::process::{self, Cpu};

/// Number of connections that send the next request as soon as they have their response.
pub(crate) const CONNECTIONS: usize = 64;
/// Number of such connections for floods.
pub(crate) const FLOODED: usize = 16;
/// Number of streams whose events come with half of the next event.
pub(crate) const SPLIT: usize = 4;
/// Timeout of a slice.
const LIMIT: Duration = Duration::from_secs(180);

/// Result of one workload in one round.
#[derive(Default)]
pub(crate) struct Slice {
    /// Number of requests or events.
    pub(crate) units: usize,
    /// CPU time of the contender in microseconds.
    pub(crate) cpu_us: f64,
    pub(crate) delays: Delays,
}

impl Slice {
    /// Returns the CPU time per request or event.
    pub(crate) fn cost(&self) -> f64 {
        self.cpu_us / self.units as f64
    }
}

/// Checks that the contender answers correctly, before anything is measured.
pub(crate) async fn verify(contender: &Contender, reference: Option<&Seen>) -> Result<Seen> {
    let limit = Duration::from_secs(30);
    let seen = timeout(limit, see(contender)).await.context("no response within 30 s")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(300).collect::<String>();
    ensure!(
        text(&seen.plain).contains("word word"),
        "unexpected plain response: {}",
        text(&seen.plain)
    );
    let stamps = memchr::memmem::find_iter(&seen.flood, STAMP).count();
    ensure!(
        (FLOOD..=FLOOD + 1).contains(&stamps),
        "expected {FLOOD} events in a flood, got {stamps}"
    );
    ensure!(
        memchr::memmem::find(&seen.flood, b"data: [DONE]").is_some(),
        "a flood ended without its end marker"
    );
    if let (true, Some(reference)) = (contender.keeps_bytes, reference) {
        ensure!(seen.plain == reference.plain, "the plain response differs from the original");
        ensure!(seen.flood == reference.flood, "the flood differs from the original");
    }
    Ok(seen)
}

/// Bodies of a plain response and of a flood.
pub(crate) struct Seen {
    plain: Vec<u8>,
    pub(crate) flood: Vec<u8>,
}

async fn see(contender: &Contender) -> Result<Seen> {
    let (mut plain, mut flood) = (Keep::default(), Keep::default());
    let mut client = Client::connect(contender.address).await?;
    client.call(&contender.request("bench-plain"), &mut plain).await?;
    client.call(&contender.request("bench-flood"), &mut flood).await?;
    Ok(Seen { plain: plain.0, flood: flood.0 })
}

/// Sends plain requests over keep-alive connections, one after the other on each.
pub(crate) async fn plain(contender: &Contender, count: usize) -> Result<Slice> {
    closed_loop(contender, "bench-plain", CONNECTIONS, count, 1).await
}

/// Requests floods over keep-alive connections; the units are events.
pub(crate) async fn flood(contender: &Contender, count: usize) -> Result<Slice> {
    closed_loop(contender, "bench-flood", FLOODED, count, FLOOD).await
}

async fn closed_loop(
    contender: &Contender,
    model: &str,
    connections: usize,
    count: usize,
    units: usize,
) -> Result<Slice> {
    let request: Arc<[u8]> = contender.request(model).into();
    let left = Arc::new(AtomicUsize::new(count));
    let streamed = model != "bench-plain";
    let clients = warm(contender, Arc::clone(&request), connections.min(count)).await?;
    let meter = Meter::start(contender);
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let (request, left) = (Arc::clone(&request), Arc::clone(&left));
        tasks.spawn(async move {
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok()
            {
                let mut seen = Count::default();
                client.call(&request, &mut seen).await?;
                ensure!(!streamed || seen.is_done(), "a stream ended without its end marker");
                ensure!(
                    seen.bytes >= 300,
                    "response too short: {} bytes, expected at least 300",
                    seen.bytes
                );
            }
            Ok(())
        });
    }
    all(tasks).await?;
    Ok(Slice { units: count * units, cpu_us: meter.stop(), delays: Delays::default() })
}

/// Opens connections and sends one request on each, so that the measurement opens none.
async fn warm(contender: &Contender, request: Arc<[u8]>, count: usize) -> Result<Vec<Client>> {
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let (address, request) = (contender.address, Arc::clone(&request));
        tasks.spawn(async move {
            let mut client = Client::connect(address).await?;
            client.call(&request, &mut Count::default()).await?;
            Ok(client)
        });
    }
    all(tasks).await
}

/// Reads paced streams in parallel.
pub(crate) async fn paced(contender: &Contender, model: &str, streams: usize) -> Result<Slice> {
    let request: Arc<[u8]> = contender.request(model).into();
    let clients = warm(contender, contender.request("bench-short").into(), streams).await?;
    let meter = Meter::start(contender);
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let request = Arc::clone(&request);
        tasks.spawn(async move {
            let mut delays = Delays::default();
            client.call(&request, &mut delays).await?;
            ensure!(delays.done, "a stream ended without its end marker");
            Ok(delays)
        });
    }
    let mut slice = Slice::default();
    for delays in all(tasks).await? {
        slice.delays.events.extend(delays.events);
        slice.delays.ends.extend(delays.ends);
    }
    slice.cpu_us = meter.stop();
    slice.units = slice.delays.events.len();
    Ok(slice)
}

/// Delays of a stream with two tool calls, in nanoseconds.
#[derive(Default)]
pub(crate) struct Held {
    /// Of each event of the first call but the last, which completes it.
    pub(crate) deltas: Vec<u64>,
    /// Of the event that completes the first call, one per stream.
    pub(crate) calls: Vec<u64>,
    /// Of the finish reason, one per stream.
    pub(crate) ends: Vec<u64>,
}

/// Reads streams with two tool calls of `count` events each, in parallel.
pub(crate) async fn held(
    contender: &Contender,
    model: &str,
    count: usize,
    streams: usize,
) -> Result<Held> {
    let request: Arc<[u8]> = contender.request(model).into();
    let clients = warm(contender, contender.request("bench-short").into(), streams).await?;
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let request = Arc::clone(&request);
        tasks.spawn(async move {
            let mut delays = Delays::default();
            client.call(&request, &mut delays).await?;
            ensure!(delays.done, "a stream ended without its end marker");
            Ok(delays)
        });
    }
    let mut held = Held::default();
    for delays in all(tasks).await? {
        ensure!(delays.events.len() == 2 * count, "a stream lacks events");
        let (first, _) = delays.events.split_at(count);
        held.deltas.extend(first.iter().take(count - 1));
        held.calls.extend(first.last());
        held.ends.extend(delays.ends);
    }
    Ok(held)
}

/// Measures the nanoseconds from a request to its first event, repeatedly on one connection.
pub(crate) async fn first_bytes_pooled(contender: &Contender, count: usize) -> Result<Vec<u64>> {
    let request = contender.request("bench-short");
    let mut client = Client::connect(contender.address).await?;
    client.call(&request, &mut Count::default()).await?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let mut first = First::default();
        let start = clock::now();
        let mut decoder = client.send(&request).await?;
        while client.read(&mut decoder, &mut first).await? != Progress::End {}
        times.push(first.at.context("the stream has no events")?.saturating_sub(start));
    }
    Ok(times)
}

/// Measures the same with a new connection on both sides each time.
pub(crate) async fn first_bytes_cold(contender: &Contender, count: usize) -> Result<Vec<u64>> {
    let request = contender.request("bench-close");
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let mut first = First::default();
        let start = clock::now();
        let mut client = Client::connect(contender.address).await?;
        let mut decoder = client.send(&request).await?;
        while client.read(&mut decoder, &mut first).await? != Progress::End {}
        times.push(first.at.context("the stream has no events")?.saturating_sub(start));
    }
    Ok(times)
}

/// Opens streams until there are `count`, and reads the first event of each.
pub(crate) async fn open(
    contender: &Contender,
    model: &str,
    streams: &mut Vec<Client>,
    count: usize,
) -> Result<()> {
    let request: Arc<[u8]> = contender.request(model).into();
    while streams.len() < count {
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS.min(count - streams.len()) {
            let (address, request) = (contender.address, Arc::clone(&request));
            tasks.spawn(async move {
                let mut client = Client::connect_small(address).await?;
                let progress = client.call(&request, &mut First::default()).await?;
                ensure!(progress == Progress::Enough, "an idle stream ended early");
                Ok(client)
            });
        }
        streams.extend(all(tasks).await?);
    }
    Ok(())
}

/// Measures the CPU time per event of many slow streams, once per time window.
pub(crate) async fn ticks(
    contender: &Contender,
    period: Duration,
    streams: usize,
    windows: usize,
) -> Result<Vec<f64>> {
    let model = format!("bench-paced-{}-100000", period.as_millis());
    let mut clients = Vec::new();
    open(contender, &model, &mut clients, streams).await?;
    let seen = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for mut client in clients {
        let seen = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut events = Events(seen);
            // `open` has already read the head.
            client.skim(&mut events).await
        });
    }
    let window = Duration::from_secs(4);
    sleep(window).await;
    let mut costs = Vec::new();
    for _ in 0..windows {
        let (meter, before) = (Meter::start(contender), seen.load(Ordering::Relaxed));
        sleep(window).await;
        let events = seen.load(Ordering::Relaxed) - before;
        costs.push(meter.stop() / events as f64);
        if let Some(ended) = tasks.try_join_next() {
            ended??;
            bail!("a stream ended early");
        }
    }
    tasks.shutdown().await;
    Ok(costs)
}

/// Sink that counts events.
struct Events(Arc<AtomicU64>);

impl Sink for Events {
    fn take(&mut self, bytes: &[u8], _: u64) -> bool {
        let events = memchr::memmem::find_iter(bytes, STAMP).count();
        self.0.fetch_add(events as u64, Ordering::Relaxed);
        false
    }
}

/// Measures the nanoseconds from a client's disconnect until the mock sees its socket closed;
/// `None` if it takes more than two seconds.
pub(crate) async fn leaves(
    contender: &Contender,
    control: std::net::SocketAddr,
    count: usize,
) -> Result<Vec<Option<u64>>> {
    let mut times = Vec::new();
    let mut told = TcpStream::connect(control).await?;
    for number in 0..count {
        let model = if number % 2 == 0 { "bench-idle" } else { "bench-paced-20-100000" };
        let mut client = Vec::new();
        open(contender, model, &mut client, 1).await?;
        sleep(Duration::from_millis(3)).await;
        let left = clock::now();
        drop(client);
        times.push(
            timeout(Duration::from_secs(2), seen_after(&mut told, left)).await.ok().flatten(),
        );
        if times.iter().filter(|time| time.is_none()).count() >= 5 {
            break;
        }
    }
    Ok(times)
}

async fn seen_after(told: &mut TcpStream, left: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    loop {
        told.read_exact(&mut bytes).await.ok()?;
        // An earlier time belongs to a previous stream that had timed out.
        if let Some(time) = u64::from_le_bytes(bytes).checked_sub(left) {
            return Some(time);
        }
    }
}

/// Meter of a contender's CPU time during a slice.
struct Meter {
    process: Option<u32>,
    start: Option<Cpu>,
}

impl Meter {
    fn start(contender: &Contender) -> Self {
        let process = contender.process();
        Self { process, start: process.map(Cpu::of) }
    }

    /// Returns the microseconds used; NaN if no proxy runs between the client and the mock.
    fn stop(&self) -> f64 {
        match (self.process, &self.start) {
            (Some(process), Some(start)) => Cpu::of(process).since(start),
            _ => f64::NAN,
        }
    }
}

/// Counts the system calls of all threads of a contender during a workload; `None` without strace.
pub(crate) async fn system_calls<T>(
    contender: &Contender,
    work: &Path,
    workload: impl Future<Output = Result<T>>,
) -> Result<Option<f64>> {
    let Some(root) = contender.process() else { return Ok(None) };
    let summary = work.join("strace.txt");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-o"]).arg(&summary);
    strace.args(process::tree(root).iter().flat_map(|one| ["-p".to_owned(), one.to_string()]));
    let log = work.join("strace.log");
    let strace = Running::start(strace, &log)?;
    sleep(Duration::from_millis(500)).await;
    if !std::fs::read_to_string(log)?.contains("attached") {
        return Ok(None);
    }
    let done = timeout(LIMIT, workload).await;
    strace.interrupt();
    done.context("not finished within 3 minutes")??;
    let text = std::fs::read_to_string(summary)?;
    let total = text.lines().find(|line| line.ends_with(" total"));
    let calls = total.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
    Ok(calls)
}

/// Returns the resident memory of a contender in bytes.
pub(crate) fn resident(contender: &Contender) -> u64 {
    contender.process().map_or(0, process::resident)
}

/// Waits for all tasks; returns the first error.
async fn all<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let joined = async {
        let mut values = Vec::with_capacity(tasks.len());
        while let Some(ended) = tasks.join_next().await {
            values.push(ended??);
        }
        Ok(values)
    };
    timeout(LIMIT, joined).await.context("not finished within 3 minutes")?
}
