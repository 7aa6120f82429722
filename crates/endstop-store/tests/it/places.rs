//! Stores to test on, each empty: a file, a database of a real Postgres, the same through pgbouncer, a database of
//! ClickHouse's engine.
//!
//! Each server has a shell beside it that reads from a pipe of this process: when the process ends, in
//! whatever way, the pipe closes, and the shell stops the server and removes its directory.

// Other crates have this file by its path, too.
#[path = "places/clickhouse.rs"]
pub(crate) mod clickhouse;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use endstop_store::{Store, open};
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// An empty store.
pub(crate) struct Place {
    pub(crate) url: String,
    /// Postgres without the pooler, for looking from outside.
    pub(crate) direct: Option<String>,
    _directory: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn open(&self) -> Box<dyn Store> {
        open(&self.url).unwrap()
    }

    /// Runs SQL from outside, whatever the store.
    pub(crate) fn run(&self, text: &str) {
        if self.direct.is_some() {
            self.sql(text);
            return;
        }
        if self.is_clickhouse() {
            clickhouse::query(&self.url, text);
            return;
        }
        let file = self.url.strip_prefix("sqlite:").unwrap();
        rusqlite::Connection::open(file).unwrap().execute_batch(text).unwrap();
    }

    fn is_clickhouse(&self) -> bool {
        self.url.starts_with("clickhouse:")
    }

    /// Counts rows of a period from outside, by plain SQL.
    pub(crate) fn count(&self, since: u64, until: u64, condition: &str) -> u64 {
        if self.is_clickhouse() {
            let found = clickhouse::query(
                &self.url,
                &format!(
                    "SELECT count() FROM gateway_requests FINAL WHERE created_at >= \
                     fromUnixTimestamp64Milli({since}) AND created_at < \
                     fromUnixTimestamp64Milli({until}) AND {condition}"
                ),
            );
            return found[0][0].parse().unwrap();
        }
        if self.direct.is_some() {
            let at = |ms: u64| format!("timestamptz 'epoch' + interval '1 ms' * {ms}");
            let found = self.sql(&format!(
                "SELECT count(*) FROM gateway_requests WHERE created_at >= {} AND created_at < {} \
                 AND {condition}",
                at(since),
                at(until)
            ));
            return found[0][0].as_ref().unwrap().parse().unwrap();
        }
        let file = self.url.strip_prefix("sqlite:").unwrap();
        let sql = format!(
            "SELECT count(*) FROM gateway_requests WHERE created_at >= {since} AND \
             created_at < {until} AND {condition}"
        );
        rusqlite::Connection::open(file).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    /// Counts the words of a period from outside, by plain SQL: their parts, then the count.
    pub(crate) fn words(&self, since: u64, until: u64, condition: &str) -> Vec<[String; 7]> {
        let words = |since: &str, until: &str| {
            format!(
                "SELECT provider, coalesce(model, ''), dialect, coalesce(native_field, ''), \
                 native_finish_reason, reason, CAST(count(*) AS text) FROM gateway_requests \
                 WHERE created_at >= {since} AND created_at < {until} AND {condition} \
                 AND native_finish_reason IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6"
            )
        };
        let mut found: Vec<[String; 7]> = if self.is_clickhouse() {
            let at = |ms: u64| format!("fromUnixTimestamp64Milli({ms})");
            let sql = words(&at(since), &at(until));
            let sql = sql
                .replace("gateway_requests", "gateway_requests FINAL")
                .replace(" AS text", " AS String");
            let rows = clickhouse::query(&self.url, &sql);
            rows.into_iter().map(|row| row.try_into().unwrap()).collect()
        } else if self.direct.is_some() {
            let at = |ms: u64| format!("timestamptz 'epoch' + interval '1 ms' * {ms}");
            let cells = |row: Vec<Option<String>>| {
                let cells: Vec<String> = row.into_iter().map(Option::unwrap).collect();
                cells.try_into().unwrap()
            };
            self.sql(&words(&at(since), &at(until))).into_iter().map(cells).collect()
        } else {
            let file = self.url.strip_prefix("sqlite:").unwrap();
            let connection = rusqlite::Connection::open(file).unwrap();
            let sql = words(&since.to_string(), &until.to_string());
            let mut statement = connection.prepare(&sql).unwrap();
            let cells =
                |row: &rusqlite::Row<'_>| Ok(std::array::from_fn(|at| row.get(at).unwrap()));
            let rows = statement.query_map([], cells).unwrap();
            rows.map(Result::unwrap).collect()
        };
        found.sort();
        found
    }

    pub(crate) fn sql(&self, text: &str) -> Vec<Vec<Option<String>>> {
        sql(self.direct.as_ref().unwrap(), text)
    }
}

pub(crate) fn sqlite() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("e.db").display());
    Place { url, direct: None, _directory: Some(directory) }
}

pub(crate) fn postgres() -> Place {
    static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);
    let url = SERVER.database();
    Place { direct: Some(url.clone()), url, _directory: None }
}

pub(crate) fn pooled() -> Place {
    static POOLER: OnceLock<(u16, Child)> = OnceLock::new();
    let direct = postgres().direct.unwrap();
    let port: u16 = direct.rsplit_once(':').unwrap().1.split('/').next().unwrap().parse().unwrap();
    let (pool, _) = POOLER.get_or_init(|| start_pooler(port));
    let url = direct.replace(&format!(":{port}/"), &format!(":{pool}/"));
    Place { url, direct: Some(direct), _directory: None }
}

/// A server of its own, to be stopped and started.
pub(crate) struct Postgres {
    pub(crate) port: u16,
    pub(crate) directory: PathBuf,
    _watch: Child,
}

impl Postgres {
    pub(crate) fn start() -> Self {
        let port = free_port();
        let directory = directory("pg");
        let data = directory.join("data");
        let stop = format!(
            "{} -D {} -m immediate -w stop",
            as_postgres_words(&tool("pg_ctl")),
            data.display()
        );
        let watch = watch(&stop, &directory);
        let made = as_postgres(&tool("initdb"))
            .args(["-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "-D"])
            .arg(&data)
            .output()
            .unwrap_or_else(|error| panic!("initdb: {error}; install PostgreSQL"));
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let server = Self { port, directory, _watch: watch };
        server.run();
        server
    }

    pub(crate) fn run(&self) {
        let options = format!(
            "-p {} -k {} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200",
            self.port,
            self.directory.display()
        );
        let log = self.directory.join("log");
        let started = as_postgres(&tool("pg_ctl"))
            .args(["-w", "-t", "60", "-o", &options, "-l"])
            .arg(log)
            .arg("-D")
            .arg(self.directory.join("data"))
            .arg("start")
            .stdout(Stdio::null())
            .status();
        assert!(started.unwrap().success(), "Postgres did not start");
    }

    pub(crate) fn stop(&self) {
        let stopped = as_postgres(&tool("pg_ctl"))
            .args(["-m", "fast", "-w", "-D"])
            .arg(self.directory.join("data"))
            .arg("stop")
            .stdout(Stdio::null())
            .status();
        assert!(stopped.unwrap().success());
    }

    /// Signals every process of the server.
    pub(crate) fn signal(&self, name: &str) {
        let pid = fs::read_to_string(self.directory.join("data/postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let send = |pids: &[&str]| Command::new("kill").arg(format!("-{name}")).args(pids).status();
        // A child may have ended meanwhile.
        let _ = send(&children.split_whitespace().collect::<Vec<_>>());
        assert!(send(&[pid]).unwrap().success());
    }

    /// A new database.
    pub(crate) fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let server = format!("postgres://postgres@127.0.0.1:{}", self.port);
        sql(&format!("{server}/postgres"), &format!("CREATE DATABASE {name}"));
        format!("{server}/{name}")
    }
}

fn start_pooler(postgres: u16) -> (u16, Child) {
    let port = free_port();
    let directory = directory("pool");
    let ini = directory.join("pgbouncer.ini");
    let settings = format!(
        "[databases]\n* = host=127.0.0.1 port={postgres} user=postgres\n[pgbouncer]\n\
         listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
         pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 200\n\
         logfile = {0}/log\n",
        directory.display()
    );
    fs::write(&ini, settings).unwrap();
    give(&directory);
    let program = as_postgres_words("pgbouncer");
    let script = format!(
        "{program} -q {} & pool=$!; read _; kill $pool; wait $pool; rm -rf {}",
        ini.display(),
        directory.display()
    );
    let child = shell(&script);
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "pgbouncer did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    (port, child)
}

/// Runs SQL from outside; gives all rows as text.
pub(crate) fn sql(url: &str, text: &str) -> Vec<Vec<Option<String>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let messages =
            client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let mut rows = Vec::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
            }
        }
        rows
    })
}

fn tool(name: &str) -> String {
    let mut known: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .map(|version| version.unwrap().path().join("bin").join(name))
        .filter(|path| path.exists())
        .collect();
    known.sort();
    known.pop().map_or_else(|| name.to_owned(), |path| path.display().to_string())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn as_postgres_words(program: &str) -> String {
    if is_root() {
        format!("setpriv --reuid=postgres --regid=postgres --clear-groups {program}")
    } else {
        program.to_owned()
    }
}

fn as_postgres(program: &str) -> Command {
    let words = as_postgres_words(program);
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).current_dir("/");
    command
}

fn directory(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("endstop-{name}-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::create_dir_all(&path).unwrap();
    give(&path);
    path
}

fn give(path: &Path) {
    if is_root() {
        let given = Command::new("chown").args(["-R", "postgres:postgres"]).arg(path).status();
        assert!(given.unwrap().success());
    }
}

fn watch(stop: &str, directory: &Path) -> Child {
    shell(&format!("read _; {stop} >/dev/null 2>&1; rm -rf {}", directory.display()))
}

/// Runs a script that ends soon after this process does.
fn shell(script: &str) -> Child {
    let mut command = Command::new("setsid");
    command.args(["sh", "-c", script]).current_dir("/").stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
