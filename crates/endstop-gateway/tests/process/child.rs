//! A gateway in a process of its own: this program again, which serves what a file says.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use endstop_gateway::{Config, Gateway};
use endstop_sim::wire;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::client;

/// The file that a child serves by.
const CONFIG: &str = "ENDSTOP_TEST_GATEWAY";

/// For what comes at all, on a machine that is busy.
pub(crate) const EVER: Duration = Duration::from_secs(60);

#[test]
fn gateway() {
    let Some(file) = std::env::var_os(CONFIG) else { return };
    // It ends with whoever started it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(3);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let served = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).unwrap();
        let gateway = Gateway::bind(Config::from_file(Path::new(&file)).unwrap()).await?;
        let handle = gateway.handle();
        let recovery = handle.recording().map(|recording| recording.recovery);
        let recovery = serde_json::to_string(&recovery).unwrap();
        let admin = gateway.admin_address().unwrap();
        println!("\nlistening {} {admin} {recovery}", gateway.address());
        let told = async move {
            terminate.recv().await;
        };
        gateway.run(told).await;
        Ok::<(), endstop_gateway::Error>(())
    });
    if let Err(error) = served {
        eprintln!("endstop: {error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// A configuration in a file, with every wire's upstream at this address.
pub(crate) fn config(dir: &Path, upstream: &str, store: &str, more: &str) -> PathBuf {
    let data = dir.join("data");
    let mut text = format!(
        "listen = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\nallow_looser = true\nstore = '{store}'\n\
         data = '{}'\n{more}\n",
        data.display()
    );
    for wire in wire::ALL {
        let route = wire.route;
        let section = format!("[upstreams.{route}]\nbase_url = '{upstream}/{route}'\n");
        if !text.contains(&section) {
            text += &section;
        }
    }
    let file = dir.join("endstop.toml");
    fs::write(&file, text).unwrap();
    file
}

/// Where a gateway listens, and what it found at its start.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) recovery: Value,
}

/// A gateway that was started. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    listening: Receiver<Listening>,
    said: Arc<Mutex<String>>,
}

impl Process {
    pub(crate) fn start(config: &Path) -> Self {
        Self::start_unread(config).read()
    }

    /// The same, with so many descriptors at most, of which it inherits some.
    pub(crate) fn start_with_descriptors(config: &Path, most: usize, inherited: usize) -> Self {
        let file = fs::File::open("/dev/null").unwrap();
        // Unlike those of the standard library, these are passed on to children.
        let passed_on: Vec<_> = (0..inherited).map(|_| rustix::io::dup(&file).unwrap()).collect();
        let process = Self::start_after(config, &format!("ulimit -n {most};")).read();
        drop(passed_on);
        process
    }

    fn read(self) -> Self {
        let mut process = self;
        let saying = process.said.clone();
        let stderr = BufReader::new(process.child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                saying.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        process
    }

    /// The same, with standard error into a pipe that nobody reads.
    pub(crate) fn start_unread(config: &Path) -> Self {
        Self::start_after(config, "")
    }

    /// The same, after these commands of the shell.
    fn start_after(config: &Path, before: &str) -> Self {
        // The signal that comes with a limit on files ends a process unless it is ignored.
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("trap '' XFSZ; {before} exec \"$0\" \"$@\""));
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "child::gateway", "--nocapture", "--test-threads=1"]);
        command.env(CONFIG, config).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (tell, listening) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let Some(rest) = line.strip_prefix("listening ") else { continue };
                let mut parts = rest.splitn(3, ' ');
                let mut part = || parts.next().unwrap();
                let (address, admin) = (part().parse().unwrap(), part().parse().unwrap());
                let recovery = serde_json::from_str(part()).unwrap();
                let _ = tell.send(Listening { address, admin, recovery });
            }
        });
        Self { child, listening, said: Arc::default() }
    }

    /// Waits until it listens.
    pub(crate) fn listening(&self) -> Listening {
        match self.listening.recv_timeout(EVER) {
            Ok(listening) => listening,
            Err(why) => panic!("it does not listen ({why}): {}", self.said()),
        }
    }

    /// The same, at most so long.
    pub(crate) fn listening_within(&self, most: Duration) -> Option<Listening> {
        match self.listening.recv_timeout(most) {
            Ok(listening) => Some(listening),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("it ended: {}", self.said()),
        }
    }

    /// What it said so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// How often it said this.
    pub(crate) fn said_times(&self, what: &str) -> usize {
        self.said().matches(what).count()
    }

    /// The most memory that it has had, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// From now on no file of its may be longer than this.
    pub(crate) fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(Some(self.pid()), Resource::Fsize, limit).unwrap();
    }

    /// From now on it may open no descriptor, unless it closes another one first.
    pub(crate) fn exhaust_descriptors(&self) {
        let is_open = |number: &u64| {
            fs::symlink_metadata(format!("/proc/{}/fd/{number}", self.child.id())).is_ok()
        };
        let first_free = (0..).find(|number| !is_open(number));
        self.limit_descriptors(first_free);
    }

    /// It may open as many descriptors as it could at first.
    pub(crate) fn free_descriptors(&self) {
        self.limit_descriptors(rustix::process::getrlimit(Resource::Nofile).maximum);
    }

    fn limit_descriptors(&self, current: Option<u64>) {
        let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current, maximum };
        rustix::process::prlimit(Some(self.pid()), Resource::Nofile, limit).unwrap();
    }

    /// How many sockets it has open.
    pub(crate) fn sockets(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        // One may be closed meanwhile.
        let names = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
    }

    /// Ends it at once.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Tells it to end.
    pub(crate) fn terminate(&self) {
        rustix::process::kill_process(self.pid(), Signal::TERM).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let until = Instant::now() + EVER;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn stop(mut self) {
        self.terminate();
        let status = self.ended();
        assert!(status.success(), "{status}: {}", self.said());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Listening {
    /// Whether it is ready, and how recording goes.
    pub(crate) async fn ready(&self) -> (u16, Value) {
        let page = client::get(self.admin, "/readyz", "connection: close\r\n").await;
        (page.status, serde_json::from_slice(&page.body).unwrap())
    }

    /// Waits until this is so of what `/readyz` says.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(u16, &Value) -> bool) -> Value {
        let until = Instant::now() + EVER;
        loop {
            let (status, ready) = self.ready().await;
            if is_so(status, &ready) {
                return ready;
            }
            assert!(Instant::now() < until, "never: {what}: {status} {ready}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until all is in the store.
    pub(crate) async fn loaded(&self) -> Value {
        let none = |ready: &Value, name: &str| ready["recording"]["spool"][name] == 0;
        self.until("all is loaded", |_, ready| none(ready, "entries") && none(ready, "held")).await
    }
}
