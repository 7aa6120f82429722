//! Kept connections that the upstream closes instead of answering: the request is sent once more, on a
//! new connection, if nothing of a response has come.

use std::sync::{Arc, Mutex};

use endstop_gateway::config::Mode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;

use crate::client::{self, End, Response};
use crate::ledger::{Ask, Field, config};

/// Reaction of the upstream to a request that it has read.
#[derive(Clone, Copy, Debug)]
enum Step {
    Answer,
    /// Answers when two connections have a request.
    AnswerTogether,
    Close,
    Reset,
    /// Sends the beginning of a response, and closes.
    Half,
    /// Sends an informational response, and closes.
    Inform,
    /// Sends the beginning of a response when the head has come, and closes without reading the body.
    HalfEarly,
}
use Step::{Answer, AnswerTogether, Close, Half, HalfEarly, Inform, Reset};

/// Steps on each connection, one per request.
type Steps = &'static [&'static [Step]];

/// Requests as the upstream saw them, with the number of their connection.
type Seen = Arc<Mutex<Vec<(usize, Vec<u8>)>>>;

/// Starts an upstream that takes these steps on each connection, one per request. It closes
/// connections without further steps.
async fn upstream(steps: Steps) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let all = seen.clone();
    let together = Arc::new(Barrier::new(2));
    tokio::spawn(async move {
        for number in 0.. {
            let stream = listener.accept().await.unwrap().0;
            let steps = steps.get(number).copied().unwrap_or_default();
            tokio::spawn(serve(stream, number, steps, all.clone(), together.clone()));
        }
    });
    (url, seen)
}

async fn serve(
    mut stream: TcpStream,
    number: usize,
    steps: &[Step],
    seen: Seen,
    together: Arc<Barrier>,
) {
    for step in steps {
        let early = matches!(step, HalfEarly);
        let Some(request) = read_request(&mut stream, early).await else { return };
        let streamed = request.windows(13).any(|text| text == b"\"stream\":true");
        seen.lock().unwrap().push((number, request));
        match step {
            Answer => stream.write_all(&answer(streamed)).await.unwrap(),
            AnswerTogether => {
                together.wait().await;
                stream.write_all(&answer(streamed)).await.unwrap();
            }
            Close => return,
            Reset => {
                let _ = socket2::SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
                return;
            }
            Half | HalfEarly => {
                stream.write_all(b"HTTP/1.1 2").await.unwrap();
                return;
            }
            Inform => {
                stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").await.unwrap();
                return;
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, only_head: bool) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        if let Some(end) = request.windows(4).position(|text| text == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let whole = end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap());
            if only_head || request.len() >= whole {
                return Some(request);
            }
        }
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

fn answer(streamed: bool) -> Vec<u8> {
    let (kind, body) = match streamed {
        true => (
            "text/event-stream",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n\
             data: [DONE]\n\n",
        ),
        false => (
            "application/json",
            r#"{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}"#,
        ),
    };
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

async fn field(url: &str) -> Arc<Field> {
    let upstreams = config(url).upstreams;
    Field::with(|config| config.upstreams = upstreams).await
}

fn ask(streamed: bool, size: usize) -> Ask {
    let mut ask = Ask { streamed, ..Ask::new("openai-chat", "complete", Mode::Guard) };
    let text = "x".repeat(size);
    ask.body = format!(
        r#"{{"model":"m","stream":{streamed},"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    ask
}

async fn send(field: &Field, ask: &Ask) -> Response {
    field.admit(1);
    let response = client::ask(field.address, ask.request("none")).await;
    assert_eq!(response.end, End::Clean, "{response:?}");
    response
}

/// Sends a request so often. Returns the statuses, and the connections on which the upstream saw it.
async fn ask_often(steps: Steps, times: usize, ask: &Ask) -> (Vec<u16>, Vec<usize>) {
    let (url, seen) = upstream(steps).await;
    let field = field(&url).await;
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(send(&field, ask).await.status);
    }
    field.finish().await;
    let seen = seen.lock().unwrap();
    let whole = |request: &[u8]| request.ends_with(ask.body.as_bytes()) && request == seen[0].1;
    let halves = steps.concat().iter().any(|step| matches!(step, HalfEarly));
    assert!(halves || seen.iter().all(|(_, request)| whole(request)), "the requests differ");
    (statuses, seen.iter().map(|(connection, _)| *connection).collect())
}

/// The same twice, so that the second request finds a kept connection.
async fn ask_twice(steps: Steps, ask: &Ask) -> (Vec<u16>, Vec<usize>) {
    loop {
        let (statuses, seen) = ask_often(steps, 2, ask).await;
        assert_eq!((statuses[0], seen[0]), (200, 0));
        // On a busy machine, the connection may come back too late.
        if seen[1] == 0 {
            return (statuses, seen);
        }
    }
}

#[tokio::test]
async fn a_request_is_sent_once_more_if_a_kept_connection_was_closed() {
    let all: [Steps; 2] = [&[&[Answer, Close], &[Answer]], &[&[Answer, Reset], &[Answer]]];
    // The second size is sent in pieces.
    for (streamed, size) in [(true, 10), (true, 1 << 20), (false, 10), (false, 1 << 20)] {
        for steps in all {
            let (statuses, seen) = ask_twice(steps, &ask(streamed, size)).await;
            assert_eq!((&*statuses, &*seen), (&[200, 200][..], &[0, 0, 1][..]), "{steps:?}");
        }
    }
}

#[tokio::test]
async fn a_request_is_sent_once_more_at_most() {
    let steps: Steps = &[&[Answer, Close], &[Close], &[Answer]];
    let (statuses, seen) = ask_twice(steps, &ask(true, 10)).await;
    assert_eq!((&*statuses, &*seen), (&[200, 502][..], &[0, 0, 1][..]));
}

#[tokio::test]
async fn a_request_on_a_new_connection_is_not_sent_again() {
    let all: [Steps; 2] = [&[&[Close], &[Answer]], &[&[Reset], &[Answer]]];
    for steps in all {
        let (statuses, seen) = ask_often(steps, 1, &ask(true, 10)).await;
        assert_eq!((&*statuses, &*seen), (&[502][..], &[0][..]), "{steps:?}");
    }
}

#[tokio::test]
async fn a_request_is_not_sent_again_after_a_byte_of_a_response() {
    let all: [Steps; 2] = [&[&[Answer, Half], &[Answer]], &[&[Answer, Inform], &[Answer]]];
    for steps in all {
        for size in [10, 1 << 20] {
            let (statuses, seen) = ask_twice(steps, &ask(true, size)).await;
            assert_eq!((&*statuses, &*seen), (&[200, 502][..], &[0, 0][..]), "{steps:?}");
        }
    }
}

/// The rest of the request cannot be written, and the byte is found by looking for it.
#[tokio::test]
async fn a_request_is_not_sent_again_after_a_byte_that_came_during_the_upload() {
    let steps: Steps = &[&[Answer, HalfEarly], &[Answer]];
    let (statuses, seen) = ask_twice(steps, &ask(true, 8 << 20)).await;
    assert_eq!((&*statuses, &*seen), (&[200, 502][..], &[0, 0][..]));
}

/// Not on another kept one, which may be closed too.
#[tokio::test]
async fn the_second_connection_is_a_new_one() {
    let steps: Steps = &[&[AnswerTogether, Close], &[AnswerTogether, Close], &[Answer]];
    let question = ask(true, 10);
    loop {
        let (url, seen) = upstream(steps).await;
        let field = field(&url).await;
        let (one, other) = tokio::join!(send(&field, &question), send(&field, &question));
        assert_eq!((one.status, other.status), (200, 200));
        assert_eq!(send(&field, &question).await.status, 200);
        field.finish().await;
        let seen: Vec<usize> = seen.lock().unwrap().iter().map(|(on, _)| *on).collect();
        if seen[2] < 2 {
            assert_eq!((seen.len(), seen[3]), (4, 2), "{seen:?}");
            return;
        }
    }
}

/// An upstream that closes after every response: whether it is seen before the next request is sent
/// is a matter of luck, and nobody notices.
#[tokio::test]
async fn upstreams_may_close_after_every_response() {
    const ONCE: &[Step] = &[Answer];
    let (statuses, seen) = ask_often(&[ONCE; 20], 20, &ask(true, 10)).await;
    assert_eq!((statuses, seen.len()), (vec![200; 20], 20));
}

/// Requests that do not ask a model are passed on as they come: without a body they can be sent again.
#[tokio::test]
async fn requests_that_are_passed_on_are_sent_once_more_if_they_have_no_body() {
    let get = "GET /openai/v1/models HTTP/1.1\r\nhost: x\r\n\r\n";
    let upload = "POST /openai/v1/files HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
    for (request, status, connections) in [(get, 200, &[0, 0, 1][..]), (upload, 502, &[0, 0])] {
        loop {
            let (url, seen) = upstream(&[&[Answer, Close], &[Answer]]).await;
            let field = field(&url).await;
            let first = client::ask(field.address, request).await;
            let second = client::ask(field.address, request).await;
            field.finish().await;
            let seen: Vec<usize> = seen.lock().unwrap().iter().map(|(on, _)| *on).collect();
            if seen[1] == 0 {
                assert_eq!((first.status, second.status), (200, status), "{request}");
                assert_eq!(seen, connections, "{request}");
                break;
            }
        }
    }
}
