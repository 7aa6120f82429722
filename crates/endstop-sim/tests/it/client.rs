//! Low-level client that returns the head, the received body and the way the response closed.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use endstop_sim::Sim;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Timeout where no silence is expected. It is long because a machine under load may pause.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Waits until `found` returns something.
pub(crate) async fn eventually<T>(what: &str, found: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < LONG, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Received response.
#[derive(Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) interim: u16,
    pub(crate) body: Vec<u8>,
    /// Sizes of the HTTP chunks.
    pub(crate) chunks: Vec<usize>,
    pub(crate) close: How,
}

/// Way in which a response closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum How {
    /// Complete, as the framing requires.
    #[default]
    Whole,
    /// Connection closed before the end of the body.
    Short,
    Reset,
    Silent,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    /// Returns the decompressed body, also without a `Content-Encoding` header.
    pub(crate) fn decoded(&self) -> Vec<u8> {
        let mut plain = Vec::new();
        if self.body.starts_with(&[0x1f, 0x8b]) {
            flate2::read::MultiGzDecoder::new(&self.body[..]).read_to_end(&mut plain).unwrap();
        } else if self.header("content-encoding") == "deflate" {
            flate2::read::ZlibDecoder::new(&self.body[..]).read_to_end(&mut plain).unwrap();
        } else {
            plain.clone_from(&self.body);
        }
        plain
    }
}

/// Sends a request and reads the response until it ends or a timeout expires.
pub(crate) async fn post(
    addr: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request("POST", path, headers, body).as_bytes()).await.unwrap();
    read(&mut stream).await
}

/// Sends a request with the tag `tag` and reads the response until it ends, or until the simulator
/// sends nothing more and all that it sent arrived.
pub(crate) async fn post_stalled(
    sim: &Sim,
    path: &str,
    tag: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut stream = TcpStream::connect(sim.addr()).await.unwrap();
    let headers = [headers, &[("x-sim-tag", tag)]].concat();
    stream.write_all(request("POST", path, &headers, body).as_bytes()).await.unwrap();
    let is_silent = |response: &Response| {
        let entry = sim.tagged(tag).filter(|entry| entry.stalled);
        entry.is_some_and(|entry| entry.written == response.body.len() as u64)
    };
    read_until(&mut stream, is_silent).await
}

pub(crate) async fn get(addr: SocketAddr, path: &str) -> Response {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request("GET", path, &[], "").as_bytes()).await.unwrap();
    read(&mut stream).await
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text =
        format!("{method} {path} HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text + "\r\n" + body
}

pub(crate) async fn read(stream: &mut TcpStream) -> Response {
    read_until(stream, |_| false).await
}

async fn read_until(stream: &mut TcpStream, is_silent: impl Fn(&Response) -> bool) -> Response {
    let mut response = Response::default();
    let mut input = Vec::new();
    let mut heard = Instant::now();
    let how = loop {
        match parse(&input, &mut response) {
            Parsed::Whole => return response,
            Parsed::Open => {}
        }
        let mut buffer = vec![0; 64 << 10];
        let pause = Duration::from_millis(10);
        match tokio::time::timeout(pause, stream.read(&mut buffer)).await {
            Err(_) if heard.elapsed() > LONG || is_silent(&response) => break How::Silent,
            Err(_) => continue,
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionReset => break How::Reset,
            Ok(Err(error)) => panic!("{error}"),
            Ok(Ok(0)) => break How::Short,
            Ok(Ok(size)) => {
                heard = Instant::now();
                input.extend_from_slice(&buffer[..size]);
            }
        }
    };
    response.close = how;
    response
}

enum Parsed {
    Whole,
    Open,
}

fn parse(input: &[u8], response: &mut Response) -> Parsed {
    let mut rest = input;
    let interim = response.interim;
    *response = Response { interim, ..Response::default() };
    loop {
        let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Parsed::Open;
        };
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 4..];
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        if (100..200).contains(&status) {
            response.interim = status;
            continue;
        }
        response.status = status;
        let headers = lines.filter_map(|line| line.split_once(": "));
        response.headers = headers.map(|(name, value)| (name.into(), value.into())).collect();
        break;
    }
    if let Ok(length) = response.header("content-length").parse::<usize>() {
        response.body = rest[..rest.len().min(length)].to_vec();
        return if rest.len() >= length { Parsed::Whole } else { Parsed::Open };
    }
    loop {
        let Some(end) = rest.windows(2).position(|window| window == b"\r\n") else {
            return Parsed::Open;
        };
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        rest = &rest[end + 2..];
        if size == 0 {
            return Parsed::Whole;
        }
        response.body.extend_from_slice(&rest[..rest.len().min(size)]);
        if rest.len() < size + 2 {
            return Parsed::Open;
        }
        response.chunks.push(size);
        rest = &rest[size + 2..];
    }
}
