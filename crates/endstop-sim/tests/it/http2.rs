//! Tests of HTTP/2 on the same port.

use bytes::Bytes;
use endstop_sim::{Options, ResponseEnd, Sim};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::client::eventually;

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn connect(sim: &Sim) -> Sender {
    let stream = TokioIo::new(TcpStream::connect(sim.addr()).await.unwrap());
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(sim: &Sim, model: &str) -> hyper::Request<Full<Bytes>> {
    let body = format!(r#"{{"model":"{model}","stream":true,"messages":[]}}"#);
    hyper::Request::post(format!("{}/v1/chat/completions", sim.url()))
        .header("x-sim-tag", model)
        .body(Full::from(body))
        .unwrap()
}

#[tokio::test]
async fn an_answer_and_a_cut_and_a_reset() {
    let sim = Sim::start(Options::default()).await.unwrap();
    let mut sender = connect(&sim).await;
    let response = sender.send_request(request(&sim, "complete")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(b"data: [DONE]\n\n"));
    assert_eq!(sim.tagged("complete").unwrap().body, body);
    let response = sender.send_request(request(&sim, "cut-before-word")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(!body.is_empty() && !body.ends_with(b"data: [DONE]\n\n"));
    let response = sender.send_request(request(&sim, "reset-before-word")).await.unwrap();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    let error = loop {
        match body.frame().await.unwrap() {
            Ok(frame) => bytes.extend(frame.into_data().unwrap()),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("error") && bytes.len() > 1000, "{error}");
}

#[tokio::test]
async fn a_stream_that_is_dropped_is_seen() {
    let sim = Sim::start(Options::default()).await.unwrap();
    let mut sender = connect(&sim).await;
    let response = sender.send_request(request(&sim, "stall")).await.unwrap();
    let left = std::time::Instant::now();
    drop(response);
    let ended = || sim.tagged("stall").filter(|entry| entry.ended != ResponseEnd::Open);
    let entry = eventually("the response ends", ended).await;
    assert_eq!(entry.ended, ResponseEnd::PeerClosed);
    assert!(entry.peer_closed_at.unwrap() >= left);
}
