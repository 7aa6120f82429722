//! Contenders: starts each proxy, builds its requests and stops it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{loopback, process};

/// Names of all contenders, in the order of the tables.
pub(crate) const ALL: &[&str] = &[
    DIRECT,
    HYPER,
    "hyper current-thread",
    "endstop guard",
    "endstop observe",
    "endstop guard logging",
    "endstop guard spool",
    "endstop guard recording",
    "tcp copy",
    "nginx",
    "haproxy",
    "envoy",
    "tensorzero",
    "portkey",
    "litellm",
];

/// Mock without a proxy.
pub(crate) const DIRECT: &str = "direct";

/// Reference for the ratios.
pub(crate) const HYPER: &str = "hyper passthrough";

/// Load of one round; smaller for slow contenders.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Load {
    /// Number of plain requests.
    pub(crate) plain: usize,
    /// Number of floods.
    pub(crate) floods: usize,
    /// Number of paced streams.
    pub(crate) streams: usize,
    /// Maximum number of idle streams.
    pub(crate) idle: usize,
}

pub(crate) const FULL: Load = Load { plain: 20_000, floods: 600, streams: 200, idle: 8_000 };

/// Environment of a run: paths, the port of the mock and the models.
pub(crate) struct Place {
    pub(crate) mock: u16,
    /// Folder for configurations and logs of this run.
    pub(crate) work: PathBuf,
    /// Folder where `scripts/bench-gateway` installs the other proxies.
    pub(crate) parts: PathBuf,
    pub(crate) endstop: PathBuf,
    /// Models that the run requests; some proxies need a list of them.
    pub(crate) models: Vec<String>,
}

/// Recording of responses by the gateway.
#[derive(Clone, Copy)]
enum Keep {
    /// No recording.
    Nothing,
    /// Responses are written to the spool, and not loaded into a store.
    Spool,
    /// Responses are written to the spool, and another thread loads them into SQLite.
    Store,
}

/// Running proxy.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) load: Load,
    /// Whether it passes bodies on byte for byte.
    pub(crate) keeps_bytes: bool,
    pub(crate) address: SocketAddr,
    path: &'static str,
    headers: String,
    prefix: &'static str,
    running: Option<Running>,
}

impl Contender {
    pub(crate) fn start(name: &'static str, place: &Place) -> Result<Self> {
        let port = free_port()?;
        let mut contender = Self {
            name,
            version: String::new(),
            load: FULL,
            keeps_bytes: true,
            address: loopback(port),
            path: "/v1/chat/completions",
            headers: String::new(),
            prefix: "",
            running: None,
        };
        match name {
            DIRECT => {
                contender.address = loopback(place.mock);
                contender.wait(place)?;
            }
            HYPER => contender.start_own("passthrough", &[], place)?,
            "hyper current-thread" => {
                contender.start_own("passthrough", &["--current-thread"], place)?;
            }
            "tcp copy" => contender.start_own("copy", &[], place)?,
            "endstop guard" => contender.start_endstop("guard", "off", Keep::Nothing, place)?,
            "endstop observe" => contender.start_endstop("observe", "off", Keep::Nothing, place)?,
            "endstop guard logging" => {
                contender.start_endstop("guard", "json", Keep::Nothing, place)?;
            }
            "endstop guard spool" => contender.start_endstop("guard", "off", Keep::Spool, place)?,
            "endstop guard recording" => {
                contender.start_endstop("guard", "off", Keep::Store, place)?;
            }
            "nginx" => contender.start_nginx(place)?,
            "haproxy" => contender.start_haproxy(place)?,
            "envoy" => contender.start_envoy(place)?,
            "tensorzero" => contender.start_tensorzero(place)?,
            "portkey" => contender.start_portkey(place)?,
            "litellm" => contender.start_litellm(place)?,
            _ => bail!("unknown contender `{name}`"),
        }
        Ok(contender)
    }

    /// Returns the process to measure, together with its children; `None` for `direct`.
    pub(crate) fn process(&self) -> Option<u32> {
        Some(self.running.as_ref()?.child.id())
    }

    /// Returns a request for this model.
    pub(crate) fn request(&self, model: &str) -> Vec<u8> {
        let stream = if model == "bench-plain" { "" } else { ",\"stream\":true" };
        let body = format!(
            "{{\"model\":\"{}{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Say it in \
             two hundred words.\"}}]{stream}}}",
            self.prefix
        );
        format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer sk-bench\r\n{}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.path,
            self.address,
            self.headers,
            body.len()
        )
        .into_bytes()
    }

    fn start_own(&mut self, command: &str, arguments: &[&str], place: &Place) -> Result<()> {
        self.version = if command == "copy" { "tokio" } else { "hyper" }.to_owned();
        self.version = format!("{0} {1}", self.version, locked(&self.version));
        let mut child = Command::new(std::env::current_exe()?);
        child.args([command, "--port", &self.address.port().to_string()]);
        child.args(["--upstream", &place.mock.to_string()]).args(arguments);
        self.run(child, place)
    }

    fn start_endstop(&mut self, mode: &str, log: &str, keep: Keep, place: &Place) -> Result<()> {
        if !place.endstop.exists() {
            bail!("`endstop` not found: run `cargo build --profile dist -p endstop-cli`");
        }
        self.path = "/openai/v1/chat/completions";
        self.version = says(Command::new(&place.endstop).arg("--version"));
        let data = place.work.join(format!("data-{}", self.address.port()));
        let store = match keep {
            Keep::Nothing => "off".to_owned(),
            // Port 1 refuses connections, so the spool is never loaded.
            Keep::Spool => "postgres://nobody@127.0.0.1:1/none".to_owned(),
            Keep::Store => format!("sqlite:{}", data.join("endstop.db").display()),
        };
        let data = data.display();
        let config = format!(
            "listen = \"{}\"\nadmin = \"{}\"\nmode = \"{mode}\"\nlog = \"{log}\"\n\
             data = \"{data}\"\nstore = \"{store}\"\n\n[upstreams.openai]\n\
             base_url = \"http://{}/v1\"\n",
            self.address,
            loopback(free_port()?),
            loopback(place.mock)
        );
        let file = self.write(place, "toml", &config)?;
        let mut child = Command::new(&place.endstop);
        child.arg("serve").arg("--config").arg(file).env("TOKIO_WORKER_THREADS", "1");
        self.run(child, place)
    }

    fn start_nginx(&mut self, place: &Place) -> Result<()> {
        let program = debian(place, "nginx")?;
        self.version = says(command(&program, place).arg("-v"));
        let work = place.work.display();
        let config = format!(
            "daemon off;\nworker_processes 1;\nworker_rlimit_nofile {files};\nerror_log stderr;\n\
             pid {work}/nginx.pid;\nevents {{ worker_connections {files}; }}\nhttp {{\n\
             access_log off;\nclient_body_temp_path {work}/body;\nproxy_temp_path {work}/proxy;\n\
             fastcgi_temp_path {work}/fastcgi;\nuwsgi_temp_path {work}/uwsgi;\n\
             scgi_temp_path {work}/scgi;\nkeepalive_requests 1000000000;\n\
             upstream mock {{ server {mock}; keepalive 128; keepalive_requests 1000000000; }}\n\
             server {{ listen {address} backlog=4096; location / {{\nproxy_pass http://mock;\n\
             proxy_http_version 1.1;\nproxy_set_header Connection \"\";\nproxy_buffering off;\n\
             proxy_read_timeout 1h;\n}} }}\n}}\n",
            files = process::open_files().min(60_000) - 100,
            mock = loopback(place.mock),
            address = self.address,
        );
        let file = self.write(place, "conf", &config)?;
        let mut child = command(&program, place);
        child.args(["-e", "stderr", "-p"]).arg(&place.work).arg("-c").arg(file);
        self.run(child, place)
    }

    fn start_haproxy(&mut self, place: &Place) -> Result<()> {
        let program = debian(place, "haproxy")?;
        self.version = says(command(&program, place).arg("-v"));
        let config = format!(
            "global\n  nbthread 1\n  maxconn {}\ndefaults\n  mode http\n  option http-no-delay\n\
             \x20 option abortonclose\n  http-reuse always\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
             frontend in\n  bind {} backlog 4096\n  default_backend out\nbackend out\n\
             \x20 server mock {}\n",
            process::open_files().min(60_000) / 2 - 500,
            self.address,
            loopback(place.mock)
        );
        let file = self.write(place, "cfg", &config)?;
        let mut child = command(&program, place);
        child.args(["-db", "-f"]).arg(file);
        self.run(child, place)
    }

    fn start_envoy(&mut self, place: &Place) -> Result<()> {
        let program = installed(place, "envoy/bin/envoy")?;
        self.version = says(Command::new(&program).arg("--version"));
        let limits = "max_connections: 100000, max_pending_requests: 100000, \
                      max_requests: 100000";
        let (port, mock) = (self.address.port(), place.mock);
        let config = format!(
            r#"static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    tcp_backlog_size: 4096
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          codec_type: HTTP1
          stream_idle_timeout: 0s
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: "/"}}, route: {{cluster: mock, timeout: 0s}}}}]}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: mock
    type: STATIC
    circuit_breakers: {{thresholds: [{{{limits}}}]}}
    load_assignment:
      cluster_name: mock
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {mock}}}}}}}}}]}}]
"#
        );
        let file = self.write(place, "yaml", &config)?;
        let mut child = Command::new(program);
        child.arg("-c").arg(file);
        child.args(["--concurrency", "1", "-l", "warn", "--disable-hot-restart"]);
        self.run(child, place)
    }

    fn start_tensorzero(&mut self, place: &Place) -> Result<()> {
        let python = installed(place, "tensorzero/bin/python")?;
        self.version = package(&python, "tensorzero");
        self.path = "/openai/v1/chat/completions";
        self.prefix = "tensorzero::model_name::";
        self.keeps_bytes = false;
        self.load = Load { plain: 4_000, floods: 60, streams: 50, idle: 1_000 };
        let mut config = "[gateway]\nobservability.enabled = false\n".to_owned();
        for model in &place.models {
            write!(
                config,
                "\n[models.{model}]\nrouting = [\"m\"]\n[models.{model}.providers.m]\n\
                 type = \"openai\"\nmodel_name = \"{model}\"\napi_base = \"http://{}/v1/\"\n\
                 api_key_location = \"none\"\n",
                loopback(place.mock)
            )?;
        }
        let file = self.write(place, "toml", &config)?;
        // TensorZero chooses its own port and prints it.
        let start = "import sys, threading, tensorzero\n\
            g = tensorzero._start_http_gateway(config_file=sys.argv[1], clickhouse_url=None, \
            postgres_url=None, valkey_url=None, async_setup=False)\n\
            print(g.base_url, flush=True)\nthreading.Event().wait()\n";
        let mut child = Command::new(python);
        child.args(["-c", start]).arg(file).env("TOKIO_WORKER_THREADS", "1");
        self.spawn(child, place)?;
        let log = self.log(place);
        let port = wait_for(Duration::from_secs(60), || {
            let text = fs::read_to_string(&log).ok()?;
            let (_, rest) = text.split_once("http://")?;
            rest.lines()
                .next()?
                .trim_end_matches('/')
                .rsplit(':')
                .next()?
                .split('/')
                .next()?
                .parse()
                .ok()
        });
        self.address = loopback(port.context("no port found in its output")?);
        self.wait(place)
    }

    fn start_portkey(&mut self, place: &Place) -> Result<()> {
        let folder = place.parts.join("portkey");
        let program = "node_modules/@portkey-ai/gateway/build/start-server.js";
        if !folder.join(program).exists() {
            bail!("not installed");
        }
        self.version = format!(
            "{}, @hono/node-server pinned to {}",
            npm_version(&folder, "@portkey-ai/gateway"),
            npm_version(&folder, "@hono/node-server")
        );
        self.keeps_bytes = false;
        self.load = Load { plain: 2_000, floods: 32, streams: 20, idle: 1_000 };
        self.headers = format!(
            "x-portkey-provider: openai\r\nx-portkey-custom-host: http://{}/v1\r\n",
            loopback(place.mock)
        );
        let mut child = Command::new("node");
        child.current_dir(folder).env("NODE_ENV", "production");
        child.args(["-r", "./lo.cjs", program, "--headless"]);
        child.arg(format!("--port={}", self.address.port()));
        self.run(child, place)
    }

    fn start_litellm(&mut self, place: &Place) -> Result<()> {
        let program = installed(place, "litellm/bin/litellm")?;
        self.version = package(&place.parts.join("litellm/bin/python"), "litellm");
        self.keeps_bytes = false;
        self.load = Load { plain: 320, floods: 16, streams: 5, idle: 100 };
        let mut config = "model_list:\n".to_owned();
        for model in &place.models {
            writeln!(
                config,
                "- {{model_name: {model}, litellm_params: {{model: openai/{model}, \
                 api_base: \"http://{}/v1\", api_key: k}}}}",
                loopback(place.mock)
            )?;
        }
        config += "general_settings: {dangerously_permit_weak_or_unset_master_key: true}\n\
                   litellm_settings: {telemetry: false}\n";
        let file = self.write(place, "yaml", &config)?;
        let mut child = Command::new(program);
        child.arg("--config").arg(file).args(["--host", "127.0.0.1", "--num_workers", "1"]);
        // LiteLLM closes idle connections after 5 s by default, which a slow round can exceed.
        child.args(["--keepalive_timeout", "75"]);
        child.args(["--port", &self.address.port().to_string()]);
        child.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_LOG", "ERROR");
        self.run(child, place)
    }

    fn write(&self, place: &Place, extension: &str, text: &str) -> Result<PathBuf> {
        let file = place.work.join(self.name.replace(' ', "-")).with_extension(extension);
        fs::write(&file, text)?;
        Ok(file)
    }

    fn log(&self, place: &Place) -> PathBuf {
        place.work.join(self.name.replace(' ', "-")).with_extension("log")
    }

    fn run(&mut self, child: Command, place: &Place) -> Result<()> {
        self.spawn(child, place)?;
        self.wait(place)
    }

    fn spawn(&mut self, child: Command, place: &Place) -> Result<()> {
        self.running = Some(Running::start(child, &self.log(place))?);
        Ok(())
    }

    /// Waits until it accepts connections.
    fn wait(&mut self, place: &Place) -> Result<()> {
        let address = self.address;
        let open = wait_for(Duration::from_secs(60), || {
            let running = self.running.as_mut();
            let ended = running.is_some_and(|one| matches!(one.child.try_wait(), Ok(Some(_))));
            let open = TcpStream::connect(address).is_ok();
            (open || ended).then_some(open)
        });
        if open == Some(true) {
            return Ok(());
        }
        let log = fs::read_to_string(self.log(place)).unwrap_or_default();
        let last = log.lines().rev().take(5).collect::<Vec<_>>();
        bail!("failed to start: {}", last.into_iter().rev().collect::<Vec<_>>().join(" | "))
    }
}

/// Process that is stopped, with its children, when this is dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(child: Command, log: &Path) -> Result<Self> {
        let mut child = with_parent(&child);
        let log = File::create(log)?;
        // Our own commands end when their standard input ends.
        child.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let child = child
            .spawn()
            .with_context(|| format!("cannot start {}", child.get_program().display()))?;
        Ok(Self { child })
    }
}

impl Running {
    /// Sends an interrupt, as Ctrl-C does, and waits for the process to end.
    pub(crate) fn interrupt(mut self) {
        signal(&[self.child.id()], Signal::INT);
        wait_for(Duration::from_secs(5), || self.child.try_wait().ok().flatten());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let processes = process::tree(self.child.id());
        signal(&processes, Signal::TERM);
        let ended = wait_for(Duration::from_secs(3), || self.child.try_wait().ok().flatten());
        if ended.is_none() {
            signal(&processes, Signal::KILL);
            // Reaps the process; its exit status does not matter.
            drop(self.child.wait());
        }
    }
}

fn signal(processes: &[u32], signal: Signal) {
    for process in processes {
        if let Some(process) = i32::try_from(*process).ok().and_then(Pid::from_raw) {
            // Fails for processes that have already ended.
            let _ = kill_process(process, signal);
        }
    }
}

/// Wraps a command so that the kernel ends it if this process is killed.
fn with_parent(inner: &Command) -> Command {
    let mut outer = if Path::new("/usr/bin/setpriv").exists() {
        let mut outer = Command::new("/usr/bin/setpriv");
        outer.args(["--pdeathsig", "TERM", "--"]).arg(inner.get_program());
        outer
    } else {
        Command::new(inner.get_program())
    };
    outer.args(inner.get_args());
    outer.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
    if let Some(folder) = inner.get_current_dir() {
        outer.current_dir(folder);
    }
    outer
}

fn wait_for<T>(limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if start.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(loopback(0))?.local_addr()?.port())
}

fn installed(place: &Place, path: &str) -> Result<PathBuf> {
    let path = place.parts.join(path);
    if path.exists() { Ok(path) } else { bail!("not installed") }
}

/// Returns the path of a program from an unpacked Debian package, or from `PATH`.
fn debian(place: &Place, name: &str) -> Result<PathBuf> {
    let unpacked = place.parts.join("root/usr/sbin").join(name);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&paths).map(|folder| folder.join(name));
    if unpacked.exists() {
        return Ok(unpacked);
    }
    candidates.find(|path| path.exists()).context("not installed")
}

/// Returns a command that uses the libraries unpacked with the program.
fn command(program: &Path, place: &Place) -> Command {
    let mut command = Command::new(program);
    let libraries = place.parts.join("root/usr/lib");
    if program.starts_with(&place.parts) {
        let folders = fs::read_dir(libraries).into_iter().flatten().flatten();
        let folders = folders.map(|entry| entry.path()).filter(|path| path.is_dir());
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap_or_default());
    }
    command
}

/// Returns the version that a command prints, or `unknown`.
fn says(command: &mut Command) -> String {
    let Ok(output) = command.output() else { return "unknown".to_owned() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find(|line| line.contains(|letter: char| letter.is_ascii_digit()));
    let words = line.unwrap_or("unknown").split([' ', '/']);
    let is_version = |word: &&str| {
        word.starts_with(|letter: char| letter.is_ascii_digit()) && word.contains('.')
    };
    words.clone().find(is_version).unwrap_or("unknown").to_owned()
}

fn package(python: &Path, name: &str) -> String {
    let program = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))";
    says(Command::new(python).args(["-c", program, name]))
}

fn npm_version(folder: &Path, name: &str) -> String {
    let file = folder.join("node_modules").join(name).join("package.json");
    let text = fs::read_to_string(file).unwrap_or_default();
    let version = text.split_once("\"version\":").and_then(|(_, rest)| rest.split('"').nth(1));
    version.unwrap_or("unknown").to_owned()
}

/// Returns the version of a crate in `Cargo.lock`.
pub(crate) fn locked(name: &str) -> &'static str {
    let lock = include_str!("../../../Cargo.lock");
    let at = format!("name = \"{name}\"\nversion = \"");
    lock.split_once(&at).and_then(|(_, rest)| rest.split('"').next()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_knows_the_reference() {
        assert!(locked("hyper").starts_with("1."));
        assert_eq!(locked("no-such-crate"), "unknown");
    }

    #[test]
    fn a_process_ends_when_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        let running = Running::start(sleep, &folder.path().join("log")).unwrap();
        let process = running.child.id();
        drop(running);
        assert!(!Path::new(&format!("/proc/{process}/status")).exists());
    }
}
