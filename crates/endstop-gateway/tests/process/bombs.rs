//! Compressed answers that decode to gigabytes: memory stays small, and other clients are served.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::bomb::{BOMB, bomb};
use crate::child::{Process, config};
use crate::client::{self, Response};

const WELL: &str = r#"{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;

/// An upstream that answers as the request asks.
async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bombs = Arc::new([
        answer("text/event-stream", "br", &bomb(br#"data: {"x":""#)),
        answer("application/json", "br", &bomb(br#"{"x":""#)),
        answer("application/json", "identity", WELL.as_bytes()),
    ]);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, bombs.clone()));
        }
    });
    address
}

fn answer(kind: &str, encoding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: {encoding}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

async fn serve(mut stream: TcpStream, answers: Arc<[Vec<u8>; 3]>) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer).await {
            Ok(size) if size > 0 => request.extend_from_slice(&buffer[..size]),
            Ok(_) | Err(_) => return,
        }
        // The bodies of all requests end with the number of the answer.
        if let [.., number @ b'0'..=b'2', b'}'] = &*request {
            let answer = &answers[usize::from(number - b'0')];
            request.clear();
            if stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }
}

async fn ask(to: SocketAddr, mode: &str, number: usize) -> Response {
    let body = format!(r#"{{"model":"m","stream":{},"x":{number}}}"#, number == 0);
    let headers = [
        ("content-type".to_owned(), "application/json".to_owned()),
        ("x-endstop-mode".to_owned(), mode.to_owned()),
    ];
    client::ask(to, client::request("/openai/v1/chat/completions", &headers, &body)).await
}

/// 8 bombs of 2.6 GB each at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_bombs_at_once_take_little_memory_and_stop_nobody() {
    const { assert!(BOMB > 2_600_000_000) };
    let dir = tempfile::tempdir().unwrap();
    let upstream = upstream().await;
    let config = config(dir.path(), &format!("http://{upstream}"), "off", "log = 'off'");
    let process = Process::start(&config);
    let to = process.listening().address;
    for _ in 0..3 {
        let bombs: Vec<_> = (0..8)
            .map(|number| {
                let mode = if number % 4 < 2 { "guard" } else { "observe" };
                tokio::spawn(ask(to, mode, number % 2))
            })
            .collect();
        // Meanwhile, others are answered.
        for _ in 0..50 {
            let well = ask(to, "guard", 2).await;
            assert_eq!((well.status, well.text()), (200, WELL.to_owned()));
        }
        for bomb in bombs {
            let response = bomb.await.unwrap();
            assert_ne!(response.status, 0);
            assert_ne!(response.header("x-endstop-reason"), "complete");
        }
    }
    let peak = process.peak_memory();
    assert!(peak < 200 << 20, "{} MiB", peak >> 20);
    process.kill();
}
