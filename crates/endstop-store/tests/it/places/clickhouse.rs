//! ClickHouse to test on: the current engine behind a small HTTP front (`clickhouse.py`), and Debian's old server, alone or
//! as a cluster with ZooKeeper. `scripts/clickhouse` installs both. Tests need `ENDSTOP_SERVERS=1`.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use super::{Place, free_port};

/// Folder of tools that tests use.
fn tools() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = || set("XDG_CACHE_HOME").unwrap_or_else(|| set("HOME").unwrap().join(".cache"));
    set("ENDSTOP_TOOLS").unwrap_or_else(|| cache().join("endstop-tools"))
}

/// The current engine, in a process of its own.
pub(crate) struct Engine {
    pub(crate) port: u16,
    _process: Child,
    _directory: tempfile::TempDir,
}

impl Engine {
    pub(crate) fn start() -> Self {
        let python = tools().join("chdb-4.4.0/bin/python");
        assert!(python.exists(), "chdb is missing: run scripts/clickhouse");
        let front = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/places/clickhouse.py");
        let directory = tempfile::tempdir().unwrap();
        let mut process = Command::new(python)
            .arg(front)
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse().unwrap_or_else(|_| panic!("chdb did not start: {line}"));
        Self { port, _process: process, _directory: directory }
    }

    /// An empty database.
    pub(crate) fn database(&self) -> Place {
        let name = next("d");
        let server = format!("clickhouse://default:secret@127.0.0.1:{}", self.port);
        query(&format!("{server}/default"), &format!("CREATE DATABASE {name}"));
        place(format!("{server}/{name}"))
    }
}

pub(crate) fn place(url: String) -> Place {
    Place { direct: None, url, _directory: None }
}

/// A database of the current engine.
pub(crate) fn clickhouse() -> Place {
    static ENGINE: LazyLock<Engine> = LazyLock::new(Engine::start);
    ENGINE.database()
}

/// A database of Debian's old server.
pub(crate) fn old_clickhouse() -> Place {
    static SERVER: LazyLock<Server> = LazyLock::new(|| {
        let (send, receive) = std::sync::mpsc::channel();
        // The server ends with the thread that started it: one that never ends.
        std::thread::spawn(move || {
            let directory = tempfile::tempdir().unwrap();
            send.send(Server::alone(directory.path())).unwrap();
            loop {
                std::thread::park();
            }
        });
        receive.recv().unwrap()
    });
    let name = next("o");
    query(&SERVER.url("default"), &format!("CREATE DATABASE {name}"));
    place(SERVER.url(&name))
}

fn next(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a statement from outside; gives all rows as text.
pub(crate) fn query(url: &str, statement: &str) -> Vec<Vec<String>> {
    let answer =
        ask(url, "", statement.as_bytes()).unwrap_or_else(|why| panic!("{statement}: {why}"));
    let answer = answer.trim_end_matches('\n');
    if answer.is_empty() {
        return Vec::new();
    }
    let unescaped = |cell: &str| cell.replace("\\'", "'").replace("\\\\", "\\");
    let cells = |line: &str| line.split('\t').map(unescaped).collect();
    answer.split('\n').map(cells).collect()
}

/// Sends a statement from outside, with more parameters; gives the reply as text.
pub(crate) fn ask(url: &str, parameters: &str, body: &[u8]) -> Result<String, String> {
    ask_bytes(url, parameters, body).map(|answer| String::from_utf8(answer).unwrap())
}

/// Sends a statement from outside, with more parameters.
pub(crate) fn ask_bytes(url: &str, parameters: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let rest = url.strip_prefix("clickhouse://").unwrap();
    let (who, place) = rest.rsplit_once('@').unwrap_or(("default:", rest));
    let (user, password) = who.split_once(':').unwrap();
    let (host, database) = place.split('?').next().unwrap().split_once('/').unwrap();
    let host = host.split(',').next().unwrap();
    let mut stream = TcpStream::connect(host).map_err(|error| error.to_string())?;
    let length = body.len();
    let head = format!(
        "POST /?database={database}{parameters} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
         x-clickhouse-user: {user}\r\nx-clickhouse-key: {password}\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut answer = Vec::new();
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body))
        .and_then(|()| stream.read_to_end(&mut answer))
        .map_err(|error| error.to_string())?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or("no reply")?;
    let (head, body) = answer.split_at(end + 4);
    let head = String::from_utf8_lossy(head).to_lowercase();
    let chunked = head.contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body) } else { body.to_vec() };
    let good = head.starts_with("http/1.1 200") || head.starts_with("http/1.0 200");
    if good { Ok(body) } else { Err(String::from_utf8_lossy(&body).into_owned()) }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|bytes| bytes == b"\r\n") {
        let (size, rest) = body.split_at(end);
        let size = usize::from_str_radix(str::from_utf8(size).unwrap(), 16).unwrap();
        let (chunk, rest) = rest.split_at(2 + size);
        whole.extend(&chunk[2..]);
        body = rest.strip_prefix(b"\r\n").unwrap_or(rest);
    }
    whole
}

/// A process that is killed with the value.
struct Process(Mutex<Option<Child>>);

impl Process {
    fn kill(&self) {
        if let Some(mut child) = self.0.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One of Debian's servers.
pub(crate) struct Server {
    pub(crate) port: u16,
    directory: PathBuf,
    process: Process,
}

impl Server {
    /// Starts a server that knows no other.
    pub(crate) fn alone(directory: &Path) -> Self {
        let server = Self::new(free_port(), directory.join("alone"));
        server.write(&[free_port(), free_port()], "");
        server.run();
        server
    }

    fn new(port: u16, directory: PathBuf) -> Self {
        fs::create_dir_all(directory.join("data")).unwrap();
        Self { port, directory, process: Process(Mutex::new(None)) }
    }

    /// Writes the configuration.
    fn write(&self, ports: &[u16; 2], more: &str) {
        let (directory, [tcp, inter]) = (self.directory.display(), ports);
        let config = format!(
            "<yandex><logger><level>warning</level><log>{directory}/log</log>\
             <errorlog>{directory}/errors</errorlog></logger>\
             <http_port>{}</http_port><tcp_port>{tcp}</tcp_port>\
             <interserver_http_port>{inter}</interserver_http_port>\
             <interserver_http_host>127.0.0.1</interserver_http_host>\
             <listen_host>127.0.0.1</listen_host><path>{directory}/data/</path>\
             <tmp_path>{directory}/tmp/</tmp_path><users_config>{directory}/users.xml</users_config>\
             <default_profile>default</default_profile><default_database>default</default_database>\
             <mark_cache_size>5368709120</mark_cache_size>{more}</yandex>",
            self.port
        );
        let users = "<yandex><profiles><default/></profiles><quotas><default/></quotas><users><default>\
                     <password>secret</password><networks><ip>127.0.0.1</ip></networks>\
                     <profile>default</profile><quota>default</quota></default></users></yandex>";
        fs::write(self.directory.join("config.xml"), config).unwrap();
        fs::write(self.directory.join("users.xml"), users).unwrap();
    }

    pub(crate) fn run(&self) {
        let root = tools().join("clickhouse-18");
        let program = root.join("usr/sbin/clickhouse-server");
        assert!(program.exists(), "ClickHouse is missing: run scripts/clickhouse");
        let libraries = ["usr/lib/x86_64-linux-gnu", "usr/lib", "lib/x86_64-linux-gnu"];
        let libraries: Vec<String> =
            libraries.iter().map(|path| root.join(path).display().to_string()).collect();
        let child = dying_with_us(&program)
            .arg(format!("--config-file={}", self.directory.join("config.xml").display()))
            .env("LD_LIBRARY_PATH", libraries.join(":"))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        *self.process.0.lock().unwrap() = Some(child);
        until(|| ask(&self.url("default"), "", b"SELECT 1").is_ok(), "ClickHouse starts");
    }

    /// Ends it at once, as `kill -9` does.
    pub(crate) fn kill(&self) {
        self.process.kill();
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("clickhouse://default:secret@127.0.0.1:{}/{database}", self.port)
    }
}

/// A program that ends when this process does.
fn dying_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Two shards of two replicas each, with ZooKeeper.
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    _zookeeper: Process,
    _directory: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (zookeeper, keeper) = start_zookeeper(directory.path());
        let ports: Vec<[u16; 3]> =
            (0..4).map(|_| [free_port(), free_port(), free_port()]).collect();
        let replica = |[_, tcp, _]: &[u16; 3]| {
            format!(
                "<replica><host>127.0.0.1</host><port>{tcp}</port><user>default</user>\
                 <password>secret</password></replica>"
            )
        };
        let shards: String = ports
            .chunks(2)
            .map(|pair| {
                let replicas: String = pair.iter().map(replica).collect();
                format!(
                    "<shard><internal_replication>true</internal_replication>{replicas}</shard>"
                )
            })
            .collect();
        let servers: Vec<Server> = ports
            .iter()
            .enumerate()
            .map(|(number, [http, tcp, inter])| {
                let server = Server::new(*http, directory.path().join(format!("s{number}")));
                let more = format!(
                    "<zookeeper><node><host>127.0.0.1</host><port>{keeper}</port></node></zookeeper>\
                     <remote_servers><both>{shards}</both></remote_servers>\
                     <macros><shard>{}</shard><replica>{}</replica></macros>\
                     <distributed_ddl><path>/clickhouse/ddl</path></distributed_ddl>",
                    number / 2,
                    number % 2
                );
                server.write(&[*tcp, *inter], &more);
                server.run();
                server
            })
            .collect();
        Self { servers, _zookeeper: zookeeper, _directory: directory }
    }

    /// An address that begins with this server, with all others behind it.
    pub(crate) fn url(&self, first: usize, database: &str) -> String {
        let servers = self.servers.iter().cycle().skip(first).take(self.servers.len());
        let hosts: Vec<String> = servers.map(|it| format!("127.0.0.1:{}", it.port)).collect();
        format!("clickhouse://default:secret@{}/{database}?cluster=both", hosts.join(","))
    }
}

fn start_zookeeper(directory: &Path) -> (Process, u16) {
    let port = free_port();
    let config = directory.join("zoo.cfg");
    let data = directory.join("zookeeper");
    fs::create_dir_all(&data).unwrap();
    let settings = format!(
        "tickTime=500\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         admin.enableServer=false\nmaxClientCnxns=0\n",
        data.display()
    );
    fs::write(&config, settings).unwrap();
    let jars = tools().join("clickhouse-18/usr/share/java");
    let child = dying_with_us(Path::new("java"))
        .args(["-Xmx256m", "-cp", &format!("{}/*", jars.display())])
        .arg("org.apache.zookeeper.server.ZooKeeperServerMain")
        .arg(config)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(fs::File::create(directory.join("zookeeper.log")).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = Process(Mutex::new(Some(child)));
    until(|| TcpStream::connect(("127.0.0.1", port)).is_ok(), "ZooKeeper starts");
    (process, port)
}

/// Waits until it is so.
pub(crate) fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
