//! Whole run: start, verify, rounds, tables, goals.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::process::getpriority_process;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::contender::{ALL, Contender, DIRECT, FULL, HYPER, Place, Running, free_port, locked};
use crate::measure::{self, CONNECTIONS, FLOODED, SPLIT, Slice};
use crate::mock::FLOOD;
use crate::report::{Report, number, signed};
use crate::statistics::{greatest, least, median, order, percentile, ratios};
use crate::{loopback, process};

/// Options of a run.
#[derive(Args)]
pub(crate) struct Options {
    /// Number of rounds. Each round measures every contender once, in random order.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Measure only contenders whose names start with one of these, separated by commas. The hyper
    /// passthrough always runs.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run only these parts: G1, G2, G3, G4, G5, close, calls, hold.
    #[arg(long, value_delimiter = ',')]
    part: Vec<String>,
    /// Run at most two rounds with a quarter of the load, to check that everything works.
    #[arg(long)]
    quick: bool,
    /// Pin the client and the mock to one core, and the contenders to another.
    #[arg(long)]
    pin: bool,
    /// Path of `endstop` [default: next to this program].
    #[arg(long)]
    endstop: Option<PathBuf>,
    /// Folder where scripts/bench-gateway installed the other proxies.
    #[arg(long, default_value = "target/bench")]
    parts: PathBuf,
    /// Also write the report to this file.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

impl Options {
    fn has(&self, part: &str) -> bool {
        self.part.is_empty() || self.part.iter().any(|name| name.eq_ignore_ascii_case(part))
    }

    fn wants(&self, name: &str) -> bool {
        name == HYPER
            || self.only.is_empty()
            || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }

    fn rounds(&self) -> usize {
        if self.quick { self.rounds.min(2) } else { self.rounds }
    }

    fn scale(&self, count: usize) -> usize {
        if self.quick { count.div_ceil(4) } else { count }
    }

    /// Returns the model for paced streams of three seconds.
    fn paced(&self) -> String {
        format!("bench-paced-20-{}", self.scale(150))
    }

    /// Returns the model for streams of two seconds with half of the next event after each event.
    fn split(&self) -> String {
        format!("bench-split-5-{}", self.scale(400))
    }
}

/// Number of streams, and time between two events of each. Both have the same number of events per
/// second in all.
const FEW: (usize, Duration) = (100, Duration::from_millis(50));
const MANY: (usize, Duration) = (8_000, Duration::from_millis(4_000));

/// Workload while system calls are counted: plain requests, floods, events per paced stream, paced
/// streams.
const CALLS: (usize, usize, usize, usize) = (2_000, 80, 50, 8);

/// Streams with tool calls: milliseconds between events, events per call, streams at once.
const HOLD: (u64, usize, usize) = (20, 50, 8);

fn hold_model() -> String {
    format!("bench-hold-{}-{}", HOLD.0, HOLD.1)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.rounds == 0 {
        bail!("`--rounds` must be at least 1");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let started = Instant::now();
    let mut bench = Bench::start(options)?;
    let stolen = process::stolen();
    runtime.block_on(async {
        // On an interrupt, dropping `bench` stops all child processes.
        tokio::select! {
            done = bench.all() => done,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })?;
    let (steal, all) = process::stolen();
    let share = (steal - stolen.0) as f64 / (all - stolen.1).max(1) as f64 * 100.0;
    let seconds = started.elapsed().as_secs();
    bench.report.line(&format!(
        "\nThe run took {seconds} s. Load average at the end: {}. Steal time: {share:.1}%.",
        load_average()
    ));
    if let Some(file) = &options.markdown {
        bench.report.write(file)?;
    }
    Ok(())
}

/// Results of one workload by contender, one value per round.
#[derive(Default)]
struct Series {
    cost: HashMap<&'static str, Vec<f64>>,
    units: HashMap<&'static str, usize>,
    /// Delays in microseconds, one value per round: median, p99, p99.9, maximum.
    late: HashMap<&'static str, [Vec<f64>; 4]>,
    /// Delays of the finish reason: median, p99.
    late_end: HashMap<&'static str, [Vec<f64>; 2]>,
    /// Totals of all rounds: events later than 1 ms, all events.
    late_count: HashMap<&'static str, (usize, usize)>,
}

impl Series {
    fn add(&mut self, name: &'static str, mut slice: Slice) {
        self.cost.entry(name).or_default().push(slice.cost());
        self.units.insert(name, slice.units);
        let events = &mut slice.delays.events;
        let count = self.late_count.entry(name).or_default();
        count.0 += events.iter().filter(|delay| **delay > 1_000_000).count();
        count.1 += events.len();
        let late = self.late.entry(name).or_default();
        for (values, share) in late.iter_mut().zip([0.5, 0.99, 0.999, 1.0]) {
            values.push(percentile(events, share) as f64 / 1000.0);
        }
        let ends = self.late_end.entry(name).or_default();
        for (values, share) in ends.iter_mut().zip([0.5, 0.99]) {
            values.push(percentile(&mut slice.delays.ends, share) as f64 / 1000.0);
        }
    }

    fn costs(&self, name: &str) -> &[f64] {
        self.cost.get(name).map_or(&[], Vec::as_slice)
    }

    fn ratio(&self, name: &str) -> f64 {
        median(&ratios(self.costs(name), self.costs(HYPER)))
    }

    /// Returns the median over the rounds of one of the percentiles.
    fn late(&self, name: &str, share: usize) -> f64 {
        self.late.get(name).and_then(|late| late.get(share)).map_or(f64::NAN, |late| median(late))
    }

    fn latest(&self, name: &str) -> f64 {
        self.late.get(name).and_then(|late| late.last()).map_or(f64::NAN, |late| greatest(late))
    }
}

struct Bench<'a> {
    options: &'a Options,
    contenders: Vec<Contender>,
    place: Place,
    control: SocketAddr,
    report: Report,
    /// Table rows: goal, measured value, value of hyper, whether the goal is met.
    goals: Vec<Vec<String>>,
    /// Declared after the contenders, so that it is stopped after them.
    _mock: Running,
    _work: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    fn start(options: &'a Options) -> Result<Self> {
        let work = tempfile::tempdir()?;
        let (port, control) = (free_port()?, free_port()?);
        let own = std::env::current_exe()?;
        let mut mock = Command::new(&own);
        mock.args(["mock", "--port", &port.to_string(), "--control", &control.to_string()]);
        pin(options, 0);
        let mock = Running::start(mock, &work.path().join("mock.log"))?;
        let mut models: Vec<String> =
            ["plain", "flood", "short", "close", "idle", "paced-20-100000"]
                .map(|name| format!("bench-{name}"))
                .to_vec();
        models.extend([FEW, MANY].map(|(_, period)| tick_model(period)));
        models.extend([options.paced(), options.split(), format!("bench-paced-20-{}", CALLS.2)]);
        models.push(hold_model());
        models.sort();
        models.dedup();
        let beside = own.with_file_name("endstop");
        let place = Place {
            mock: port,
            work: work.path().to_owned(),
            parts: std::path::absolute(&options.parts)?,
            endstop: options.endstop.clone().unwrap_or(beside),
            models,
        };
        Ok(Self {
            options,
            contenders: Vec::new(),
            place,
            control: loopback(control),
            report: Report::default(),
            goals: Vec::new(),
            _mock: mock,
            _work: work,
        })
    }

    async fn all(&mut self) -> Result<()> {
        self.introduce();
        self.start_contenders().await?;
        if self.options.has("G1") {
            self.unary().await?;
        }
        if self.options.has("G2") {
            self.floods().await?;
        }
        if self.options.has("G3") {
            self.paced().await?;
            self.split().await?;
        }
        if self.options.has("G4") {
            self.first_bytes().await?;
        }
        if self.options.has("close") {
            self.leaves().await?;
        }
        if self.options.has("hold") {
            self.holds().await?;
        }
        if self.options.has("calls") {
            self.system_calls().await?;
        }
        if self.options.has("G5") {
            self.idle().await?;
        }
        self.report.heading("Goals");
        self.report.table(&["goal", "measured", "hyper", "met"], &self.goals);
        Ok(())
    }

    fn introduce(&mut self) {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown");
        let count = processors.lines().filter(|line| line.starts_with("processor")).count();
        let memory = read("/proc/meminfo").split_whitespace().nth(1).and_then(|kb| kb.parse().ok());
        let memory: u64 = memory.unwrap_or(0) / 1_000_000;
        let kernel = read("/proc/sys/kernel/osrelease");
        self.report.line(&format!(
            "Machine: {count} x {model}, {memory} GB, Linux {}; load average at the start: {}{}. \
             One worker thread per contender{}; rounds: {}, in random order. CPU is the user and \
             system time of all threads of a contender's processes during its slice. x hyper: the \
             ratio to the hyper passthrough in the same round. The passthrough uses tokio's \
             default scheduler with one worker, as `endstop serve` does here.",
            kernel.split('-').next().unwrap_or_default().trim(),
            load_average(),
            priority(),
            if self.options.pin { ", on another core than the client and the mock" } else { "" },
            self.options.rounds(),
        ));
    }

    async fn start_contenders(&mut self) -> Result<()> {
        let mut reference = None;
        let mut rows = Vec::new();
        for name in ALL.iter().filter(|name| self.options.wants(name) || **name == DIRECT) {
            pin(self.options, 1);
            let started = Contender::start(name, &self.place);
            pin(self.options, 0);
            let (outcome, version) = match started {
                Err(error) => (Err(error), String::new()),
                Ok(contender) => {
                    let seen = measure::verify(&contender, reference.as_ref()).await;
                    let version = contender.version.clone();
                    let outcome = seen.map(|seen| {
                        reference.get_or_insert(seen);
                        self.contenders.push(contender);
                    });
                    (outcome, version)
                }
            };
            let kept = self.contenders.last().is_some_and(|last| last.keeps_bytes);
            rows.push(vec![
                (*name).to_owned(),
                version,
                match &outcome {
                    Ok(()) if kept => "yes".to_owned(),
                    Ok(()) => "no, rewrites bodies".to_owned(),
                    Err(error) => format!("skipped: {error:#}").replace(['\r', '\n', '|'], " "),
                },
            ]);
            if let (HYPER | DIRECT, Err(error)) = (*name, outcome) {
                return Err(error.context("cannot measure without the reference"));
            }
        }
        self.report.heading("Contenders");
        self.report.table(&["contender", "version", "same bytes"], &rows);
        self.report.line(&format!(
            "Built with hyper {}, tokio {}. Plain requests, floods and paced streams per round: \
             {}{}.",
            locked("hyper"),
            locked("tokio"),
            self.loads(FULL),
            self.slow()
        ));
        Ok(())
    }

    fn loads(&self, load: crate::contender::Load) -> String {
        format!(
            "{}, {}, {}",
            self.options.scale(load.plain),
            self.options.scale(load.floods),
            load.streams
        )
    }

    fn slow(&self) -> String {
        let slow = self.contenders.iter().filter(|contender| contender.load != FULL);
        let slow = slow.map(|of| format!("{} ({})", of.name, self.loads(of.load)));
        let slow = slow.collect::<Vec<_>>().join("; ");
        if slow.is_empty() { String::new() } else { format!("; fewer for slow contenders: {slow}") }
    }

    /// Measures every contender once per round, in random order. A contender that fails is skipped
    /// from then on.
    async fn rounds<F>(&mut self, salt: u64, mut slice: F) -> Result<Series>
    where
        F: AsyncFnMut(&Contender) -> Result<Slice>,
    {
        let mut series = Series::default();
        let mut failed: Vec<&'static str> = Vec::new();
        for round in 0..=self.options.rounds() {
            for at in order(self.contenders.len(), salt * 100 + round as u64) {
                let Some(contender) = self.contenders.get(at) else { continue };
                if failed.contains(&contender.name) {
                    continue;
                }
                match slice(contender).await {
                    // Round 0 is a warm-up.
                    Ok(_) if round == 0 => {}
                    Ok(slice) => series.add(contender.name, slice),
                    Err(error) => {
                        failed.push(contender.name);
                        let line = format!("{} failed: {error:#}", contender.name);
                        self.report.line(&line.replace(['\r', '\n'], " "));
                    }
                }
            }
        }
        if failed.contains(&HYPER) {
            bail!("the hyper passthrough failed");
        }
        for name in failed {
            series.cost.remove(name);
            series.late.remove(name);
        }
        Ok(series)
    }

    fn names(&self) -> Vec<&'static str> {
        self.contenders.iter().map(|contender| contender.name).collect()
    }

    fn costs(&mut self, unit: &str, series: &Series) {
        let head =
            ["contender", "x hyper", "min", &format!("CPU us/{unit}"), "min", &format!("{unit}s")];
        let rows: Vec<Vec<String>> = self
            .names()
            .into_iter()
            .filter(|name| *name != DIRECT && !series.costs(name).is_empty())
            .map(|name| {
                let ratios = ratios(series.costs(name), series.costs(HYPER));
                vec![
                    name.to_owned(),
                    format!("{:.2}", median(&ratios)),
                    format!("{:.2}", least(&ratios)),
                    number(median(series.costs(name))),
                    number(least(series.costs(name))),
                    series.units.get(name).copied().unwrap_or(0).to_string(),
                ]
            })
            .collect();
        self.report.table(&head, &rows);
    }

    /// Adds a goal for each of our modes that ran.
    fn goal(&mut self, text: &str, limit: f64, unit: &str, value: impl Fn(&str) -> f64) {
        let reference = value(HYPER);
        for name in ["endstop guard", "endstop observe"] {
            let value = value(name);
            if value.is_nan() {
                continue;
            }
            self.goals.push(vec![
                format!("{name}: {text} <= {limit}{unit}"),
                format!("{}{unit}", number(value)),
                format!("{}{unit}", number(reference)),
                if value <= limit { "yes" } else { "no" }.to_owned(),
            ]);
        }
    }

    async fn unary(&mut self) -> Result<()> {
        let options = self.options;
        let series = self
            .rounds(1, async |contender| {
                measure::plain(contender, options.scale(contender.load.plain)).await
            })
            .await?;
        self.report.heading(&format!(
            "G1. Plain responses of 600 bytes, {CONNECTIONS} connections without pauses"
        ));
        self.costs("request", &series);
        self.goal("CPU per plain response, x hyper", 1.1, "", |name| series.ratio(name));
        Ok(())
    }

    async fn floods(&mut self) -> Result<()> {
        let options = self.options;
        let series = self
            .rounds(2, async |contender| {
                measure::flood(contender, options.scale(contender.load.floods)).await
            })
            .await?;
        self.report.heading(&format!(
            "G2. Flood: {FLOOD} events of 330 bytes in separate chunks, without pauses, {FLOODED} \
             streams in parallel"
        ));
        self.costs("event", &series);
        self.goal("CPU per event of a flood, x hyper", 0.8, "", |name| series.ratio(name));
        Ok(())
    }

    async fn paced(&mut self) -> Result<()> {
        let model = self.options.paced();
        let series = self
            .rounds(3, async |contender| {
                measure::paced(contender, &model, contender.load.streams).await
            })
            .await?;
        self.report.heading("G3. Paced: parallel streams with 50 events per second each");
        self.costs("event", &series);
        self.delays(&series);
        self.goal("CPU per paced event, x hyper", 1.1, "", |name| series.ratio(name));
        let added = |name: &str, share| series.late(name, share) - series.late(HYPER, share);
        self.goal("added delay of an event, median", 10.0, " us", |name| added(name, 0));
        self.goal("added delay of an event, p99", 100.0, " us", |name| added(name, 1));
        Ok(())
    }

    async fn split(&mut self) -> Result<()> {
        let model = self.options.split();
        let series = self
            .rounds(4, async |contender| {
                measure::paced(contender, &model, split_streams(contender)).await
            })
            .await?;
        self.report.heading(&format!(
            "G3. Held: {SPLIT} streams, every 5 ms a whole event followed by half of the next one"
        ));
        self.report.line(
            "A proxy that waits for the rest of the half event delays the whole one by 5 ms. \
             litellm has one stream, because it could not keep up with four.\n",
        );
        self.delays(&series);
        self.goal("delay of a whole event, p99.9", 1000.0, " us", |name| series.late(name, 2));
        self.goal("delay of a whole event, maximum", 1000.0, " us", |name| series.latest(name));
        Ok(())
    }

    fn delays(&mut self, series: &Series) {
        let head = [
            "delay, us",
            "median",
            "p99",
            "p99.9",
            "max",
            "over 1 ms",
            "+median",
            "+p99",
            "+median direct",
            "+p99 direct",
            "finish reason, median",
            "p99",
        ];
        let rows: Vec<Vec<String>> = self
            .names()
            .into_iter()
            .filter(|name| series.late.contains_key(name))
            .map(|name| {
                let late = |share| series.late(name, share);
                let over = |other, share| signed(late(share) - series.late(other, share));
                let (above, all) = series.late_count.get(name).copied().unwrap_or_default();
                let end = |share: usize| {
                    let ends = series.late_end.get(name).and_then(|ends| ends.get(share));
                    let end = ends.map_or(f64::NAN, |ends| median(ends));
                    number(if end > 0.0 { end } else { f64::NAN })
                };
                vec![
                    name.to_owned(),
                    number(late(0)),
                    number(late(1)),
                    number(late(2)),
                    number(series.latest(name)),
                    format!("{above} of {all}"),
                    over(HYPER, 0),
                    over(HYPER, 1),
                    over(DIRECT, 0),
                    over(DIRECT, 1),
                    end(0),
                    end(1),
                ]
            })
            .collect();
        self.report.table(&head, &rows);
        self.report.line(
            "Delay: from the mock's write until the client has read the whole event; medians of \
             the rounds. `+`: difference to the hyper passthrough, then to no proxy. The finish \
             reason may be missing for proxies that rewrite events.",
        );
    }

    async fn first_bytes(&mut self) -> Result<()> {
        let options = self.options;
        let count =
            |contender: &Contender| options.scale(if contender.load == FULL { 200 } else { 40 });
        let taken = |times: Vec<u64>| {
            let mut slice = Slice { units: times.len(), ..Slice::default() };
            slice.delays.events = times;
            slice
        };
        let pooled = self
            .rounds(5, async |contender| {
                measure::first_bytes_pooled(contender, count(contender)).await.map(taken)
            })
            .await?;
        let cold = self
            .rounds(6, async |contender| {
                measure::first_bytes_cold(contender, count(contender)).await.map(taken)
            })
            .await?;
        self.report.heading("G4. From the request to the first event, one at a time");
        let head = ["us", "pooled, median", "p99", "x hyper", "cold, median", "p99", "x hyper"];
        let rows: Vec<Vec<String>> = self
            .names()
            .into_iter()
            .map(|name| {
                let mut row = vec![name.to_owned()];
                for series in [&pooled, &cold] {
                    row.push(number(series.late(name, 0)));
                    row.push(number(series.late(name, 1)));
                    row.push(number(series.late(name, 0) / series.late(HYPER, 0)));
                }
                row
            })
            .collect();
        self.report.table(&head, &rows);
        self.report.line("Pooled: both connections are reused. Cold: both are new each time.");
        Ok(())
    }

    async fn leaves(&mut self) -> Result<()> {
        self.report
            .heading("Close: from a client's disconnect until the upstream socket is closed");
        let mut rows = Vec::new();
        let mut all = HashMap::new();
        for contender in &self.contenders {
            let count = self.options.scale(200);
            let times = match measure::leaves(contender, self.control, count).await {
                Ok(times) => times,
                Err(error) => {
                    rows.push(vec![contender.name.to_owned(), format!("failed: {error:#}")]);
                    continue;
                }
            };
            let missed = times.iter().filter(|time| time.is_none()).count();
            let mut seen: Vec<u64> = times.iter().flatten().copied().collect();
            let none = seen.is_empty();
            let mut late = |share| match percentile(&mut seen, share) {
                _ if none => f64::NAN,
                late => late as f64 / 1e6,
            };
            let (half, most, last) = (late(0.5), late(0.99), late(1.0));
            rows.push(vec![
                contender.name.to_owned(),
                number(half),
                number(most),
                number(last),
                times.len().to_string(),
                missed.to_string(),
            ]);
            all.insert(contender.name, if missed == 0 { last } else { f64::INFINITY });
        }
        let head = ["ms", "median", "p99", "max", "disconnects", "not within 2 s"];
        self.report.table(&head, &rows);
        self.report.line(
            "Every second client disconnects from a silent stream, the others from a paced one.",
        );
        self.goal("upstream closed after a disconnect, maximum", 100.0, " ms", |name| {
            all.get(name).copied().unwrap_or(f64::NAN)
        });
        Ok(())
    }

    async fn holds(&mut self) -> Result<()> {
        let (period, count, streams) = HOLD;
        self.report.heading("Tool calls: delay from the mock's write until the client has read");
        let mut rows = Vec::new();
        for contender in &self.contenders {
            let mut all = measure::Held::default();
            for _ in 0..self.options.rounds() {
                let held = measure::held(contender, &hold_model(), count, streams).await?;
                all.deltas.extend(held.deltas);
                all.calls.extend(held.calls);
                all.ends.extend(held.ends);
            }
            let mut row = vec![contender.name.to_owned()];
            for delays in [&mut all.deltas, &mut all.calls, &mut all.ends] {
                row.extend([0.5, 0.99].map(|share| number(percentile(delays, share) as f64 / 1e6)));
            }
            rows.push(row);
        }
        let head = [
            "ms",
            "argument deltas, median",
            "p99",
            "end of the first call, median",
            "p99",
            "finish reason, median",
            "p99",
        ];
        self.report.table(&head, &rows);
        self.report.line(&format!(
            "Each of {streams} streams has two calls of {count} events, one event every {period} ms. \
             Guard holds the end of the first call until the response is complete, here {} ms.",
            period * count as u64
        ));
        Ok(())
    }

    async fn system_calls(&mut self) -> Result<()> {
        self.report.heading("System calls, counted by strace");
        let mut rows = Vec::new();
        let paced = format!("bench-paced-20-{}", CALLS.2);
        for contender in self.contenders.iter().filter(|one| one.load == FULL) {
            let work = &self.place.work;
            let plain = measure::plain(contender, CALLS.0);
            let plain = measure::system_calls(contender, work, plain).await?;
            let flood = measure::flood(contender, CALLS.1);
            let flood = measure::system_calls(contender, work, flood).await?;
            let streams = CALLS.3;
            let events = measure::paced(contender, &paced, streams);
            let events = measure::system_calls(contender, work, events).await?;
            let per = |calls: Option<f64>, units: usize| {
                calls.map_or(f64::NAN, |calls| calls / units as f64)
            };
            if let Some(plain) = plain {
                rows.push(vec![
                    contender.name.to_owned(),
                    number(plain / (CALLS.0 + CONNECTIONS) as f64),
                    number(per(flood, (CALLS.1 + FLOODED) * FLOOD)),
                    number(per(events, streams * CALLS.2)),
                ]);
            }
        }
        if rows.is_empty() {
            self.report.line("skipped: strace is missing or cannot attach");
            return Ok(());
        }
        let head = ["contender", "plain, per request", "flood, per event", "paced, per event"];
        self.report.table(&head, &rows);
        self.report.line("Includes opening the connections and the first request on each.");
        Ok(())
    }

    async fn idle(&mut self) -> Result<()> {
        self.report
            .heading("G5. Idle streams: resident memory, and CPU per event of many slow streams");
        let names = self.names();
        // Fresh processes, one at a time, because earlier workloads affect memory.
        self.contenders.clear();
        let (mut rows, mut memory, mut growth) = (Vec::new(), HashMap::new(), HashMap::new());
        for name in names.into_iter().filter(|name| *name != DIRECT) {
            pin(self.options, 1);
            let contender = Contender::start(name, &self.place);
            pin(self.options, 0);
            let row = match contender {
                Ok(contender) => self.scale(&contender).await,
                Err(error) => Err(error),
            };
            match row {
                Ok(scale) => {
                    memory.insert(name, scale.megabytes(MANY.0));
                    growth.insert(name, scale.growth());
                    rows.push(scale.row(name));
                }
                Err(error) => {
                    let text = format!("failed: {error:#}").replace(['\r', '\n'], " ");
                    rows.push(vec![name.to_owned(), text]);
                }
            }
        }
        let head = [
            "contender",
            "1, MB",
            "100, MB",
            "1,000, MB",
            "8,000, MB",
            "KB/stream",
            "us/event at 100",
            "at 8,000",
            "growth",
        ];
        self.report.table(&head, &rows);
        self.report.line(
            "KB per stream: from one stream to the highest count. CPU: 2,000 events per second in \
             total, over 100 streams and over 8,000.",
        );
        let of = |map: &HashMap<&str, f64>, name: &str| map.get(name).copied().unwrap_or(f64::NAN);
        self.goal("8,000 idle streams", 350.0, " MB", |name| of(&memory, name));
        self.goal("CPU per event, ratio of 8,000 streams to 100", 1.3, "", |name| {
            of(&growth, name)
        });
        Ok(())
    }

    async fn scale(&self, contender: &Contender) -> Result<Scale> {
        measure::verify(contender, None).await?;
        let most = contender.load.idle.min(if self.options.quick { 1_000 } else { usize::MAX });
        // The client and the mock hold one socket per stream, a contender two.
        let most = most.min(usize::try_from(process::open_files() / 2).unwrap_or(0) - 200);
        let mut scale = Scale::default();
        let mut streams = Vec::new();
        for count in [1, 100, 1_000, MANY.0].into_iter().filter(|count| *count <= most) {
            let opened = measure::open(contender, "bench-idle", &mut streams, count);
            tokio::time::timeout(Duration::from_secs(120), opened)
                .await
                .with_context(|| format!("{count} streams did not open within 2 minutes"))??;
            tokio::time::sleep(Duration::from_millis(500)).await;
            scale.memory.push((count, measure::resident(contender)));
        }
        drop(streams);
        tokio::time::sleep(Duration::from_secs(1)).await;
        if most >= MANY.0 {
            scale.few = measure::ticks(contender, FEW.1, FEW.0, 3).await?;
            scale.many = measure::ticks(contender, MANY.1, MANY.0, 3).await?;
        }
        Ok(scale)
    }
}

/// Memory and cost of one contender by number of streams.
#[derive(Default)]
struct Scale {
    memory: Vec<(usize, u64)>,
    few: Vec<f64>,
    many: Vec<f64>,
}

impl Scale {
    fn megabytes(&self, streams: usize) -> f64 {
        let at = self.memory.iter().find(|(count, _)| *count == streams);
        at.map_or(f64::NAN, |(_, bytes)| *bytes as f64 / 1e6)
    }

    fn growth(&self) -> f64 {
        median(&self.many) / median(&self.few)
    }

    fn row(&self, name: &str) -> Vec<String> {
        let per_stream = match (self.memory.first(), self.memory.last()) {
            (Some(first), Some(last)) if last.0 > first.0 => {
                last.1.saturating_sub(first.1) as f64 / (last.0 - first.0) as f64 / 1e3
            }
            _ => f64::NAN,
        };
        let megabytes = [1, 100, 1_000, MANY.0].map(|count| number(self.megabytes(count)));
        let cost = [median(&self.few), median(&self.many), self.growth()].map(number);
        [vec![name.to_owned()], megabytes.to_vec(), vec![number(per_stream)], cost.to_vec()]
            .concat()
    }
}

/// Returns the number of split streams; lower for slow contenders.
fn split_streams(contender: &Contender) -> usize {
    SPLIT.min(contender.load.streams / 5)
}

fn tick_model(period: Duration) -> String {
    format!("bench-paced-{}-100000", period.as_millis())
}

/// Pins this process, and processes started later, to a core.
fn pin(options: &Options, core: usize) {
    if options.pin {
        let mut cores = CpuSet::new();
        cores.set(core);
        if sched_setaffinity(None, &cores).is_err() {
            eprintln!("cannot pin to core {core}");
        }
    }
}

/// Returns a note if the run has a changed scheduling priority.
fn priority() -> String {
    match getpriority_process(None) {
        Ok(nice) if nice != 0 => format!("; everything ran at nice {nice}"),
        Ok(_) | Err(_) => String::new(),
    }
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
