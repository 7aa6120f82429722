//! The metrics of a gateway, as Prometheus and its tool read them.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use endstop_export::metrics::METRICS;
use endstop_gateway::config::Mode;

use crate::client;
use crate::ledger::{Ask, Field};

async fn field(dir: &Path) -> Arc<Field> {
    Field::with(|config| {
        config.store = Some(format!("sqlite:{}", dir.join("endings.db").display()));
        config.data = Some(dir.join("data"));
    })
    .await
}

/// Asks for a few endings on three wires, plain and streamed.
async fn ask_some(field: &Arc<Field>) {
    let endings = [
        ("openai-chat", "complete"),
        ("anthropic", "complete"),
        ("gemini", "length"),
        ("openai-chat", "cut-before-word"),
        ("openai-chat", "word=frobnicated"),
    ];
    for (wire, scenario) in endings {
        let ask = Ask::new(wire, scenario, Mode::Guard).capped(4000);
        for ask in [ask.clone().plain(), ask] {
            field.ask(ask).await;
        }
    }
}

async fn scrape(field: &Field) -> String {
    let response = client::get(field.admin, "/metrics", "").await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    response.text()
}

/// Returns the sum of the samples of a metric that have these labels.
fn sum(text: &str, metric: &str, labels: &[&str]) -> f64 {
    let own = text.lines().filter(|line| line.starts_with(&format!("{metric}{{")));
    let fit = own.filter(|line| labels.iter().all(|label| line.contains(label)));
    fit.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[tokio::test]
async fn every_ending_is_counted_with_its_labels() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path()).await;
    ask_some(&field).await;
    let text = scrape(&field).await;
    let count = |labels: &[&str]| sum(&text, "endstop_responses_total", labels);
    assert_eq!(count(&[]), 10.0, "{text}");
    for (labels, want) in [
        (
            [
                "provider=\"openai\"",
                "reason=\"complete\"",
                "finish_reason=\"stop\"",
                "closed=\"proven\"",
                "action=\"passed\"",
            ],
            2.0,
        ),
        (
            [
                "provider=\"anthropic\"",
                "reason=\"complete\"",
                "finish_reason=\"stop\"",
                "closed=\"proven\"",
                "action=\"passed\"",
            ],
            2.0,
        ),
        (
            [
                "provider=\"google\"",
                "reason=\"output_limit\"",
                "finish_reason=\"length\"",
                "closed=\"proven\"",
                "",
            ],
            2.0,
        ),
        (["provider=\"openai\"", "reason=\"cut\"", "finish_reason=\"error\"", "", "failed"], 2.0),
        (["provider=\"openai\"", "reason=\"unknown\"", "finish_reason=\"other\"", "", ""], 2.0),
    ] {
        assert_eq!(count(&labels), want, "{labels:?} {text}");
    }
    assert_eq!(sum(&text, "endstop_response_duration_seconds_count", &[]), 10.0);
    assert_eq!(sum(&text, "endstop_first_byte_seconds_count", &[]), 10.0);
    assert!(sum(&text, "endstop_tokens_total", &["type=\"output\"", "anthropic"]) > 0.0);
    assert_eq!(sum(&text, "endstop_unknown_reasons_total", &["openai"]), 1.0);
    assert_eq!(sum(&text, "endstop_truncation_exits_total", &["google"]), 2.0);
    // The first response is in the sample.
    assert!(text.contains("\nendstop_detection_response_seconds_count 1\n"), "{text}");
    assert!(text.contains("\nendstop_detection_chunk_seconds_count 1\n"), "{text}");
    assert!(text.contains("\nendstop_spool_failing 0\n"), "{text}");
    assert!(text.contains("endstop_sink_connected{sink=\"store\"}"), "{text}");
    let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(known.contains(name.split(' ').next().unwrap()), "{name}");
    }
    field.finish().await;
}

#[tokio::test]
async fn metrics_need_the_token_of_operators() {
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "operators-token-0123").unwrap();
    let path = token.path().to_owned();
    let field = Field::with(|config| config.admin_token_file = Some(path)).await;
    assert_eq!(client::get(field.admin, "/metrics", "").await.status, 401);
    let shown = "authorization: Bearer operators-token-0123\r\n";
    assert_eq!(client::get(field.admin, "/metrics", shown).await.status, 200);
    field.finish().await;
}

#[tokio::test]
#[cfg_attr(not(endstop_servers), ignore = "needs promtool: set ENDSTOP_SERVERS=1")]
async fn the_tool_of_prometheus_finds_nothing_wrong() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path()).await;
    ask_some(&field).await;
    let text = scrape(&field).await;
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tool = tool.stderr(Stdio::piped()).spawn().expect("apt-get install prometheus");
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
    field.finish().await;
}

/// A process that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test]
#[cfg_attr(not(endstop_servers), ignore = "needs Prometheus: set ENDSTOP_SERVERS=1")]
async fn prometheus_scrapes_a_gateway() {
    let temp = tempfile::tempdir().unwrap();
    let field = field(temp.path()).await;
    ask_some(&field).await;
    let address = free_address();
    let config = temp.path().join("prometheus.yml");
    let text = format!(
        "scrape_configs:\n- job_name: endstop\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{}']\n",
        field.admin
    );
    std::fs::write(&config, text).unwrap();
    let mut server = Command::new("prometheus");
    server
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", temp.path().join("tsdb").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--log.level=error");
    let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _server = Running(server.expect("apt-get install prometheus"));
    let until = Instant::now() + Duration::from_secs(60);
    let path = "/api/v1/query?query=sum(endstop_responses_total)";
    loop {
        let found = match tokio::net::TcpStream::connect(address).await {
            Ok(_) => client::get(address, path, "").await.text(),
            Err(error) => error.to_string(),
        };
        if found.contains("\"10\"]") {
            break;
        }
        assert!(Instant::now() < until, "{found}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    field.finish().await;
}
