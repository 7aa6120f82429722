//! The corpus of hostile upstream answers, on the plain and the TLS listener, over HTTP/1.1 and HTTP/2.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use endstop_gateway::config::{Mode, Tls};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::ledger::{EVER, Field, config};

#[derive(Clone, Debug, Deserialize)]
struct Corpus {
    answer: Vec<Answer>,
}

#[derive(Clone, Debug, Deserialize)]
struct Answer {
    name: String,
    raw: Vec<Part>,
    #[serde(default)]
    streamed: bool,
    #[serde(default)]
    then: Then,
    guard: String,
    observe: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Part {
    Text(String),
    Repeated { text: String, times: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    #[default]
    Close,
    Reset,
}

impl Answer {
    fn bytes(&self) -> Vec<u8> {
        let text = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Repeated { text, times } => text.repeat(*times),
        };
        self.raw.iter().map(text).collect::<String>().into_bytes()
    }
}

fn corpus() -> Vec<Answer> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/answers.toml");
    let text = std::fs::read_to_string(file).unwrap();
    toml::from_str::<Corpus>(&text).unwrap().answer
}

/// An upstream that sends the answer whose number a request names.
async fn upstream(answers: Vec<Answer>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers: Arc<Vec<(Vec<u8>, Then)>> =
        Arc::new(answers.iter().map(|answer| (answer.bytes(), answer.then)).collect());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, answers.clone()));
        }
    });
    address
}

async fn answer(mut stream: TcpStream, answers: Arc<Vec<(Vec<u8>, Then)>>) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    // The bodies of all requests end with this.
    while !request.ends_with(b"\"end\"}") {
        match stream.read(&mut buffer).await {
            Ok(size) if size > 0 => request.extend_from_slice(&buffer[..size]),
            Ok(_) | Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&request).to_lowercase();
    let case = head.split("x-case: ").nth(1).unwrap().split("\r\n").next().unwrap();
    let (bytes, then) = &answers[case.parse::<usize>().unwrap()];
    let _ = stream.write_all(bytes).await;
    if *then == Then::Reset {
        // What was sent before must arrive before the reset.
        tokio::time::sleep(Duration::from_millis(100)).await;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        return;
    }
    let _ = stream.shutdown().await;
    // Closing with unread bytes would be a reset.
    let _ = tokio::time::timeout(EVER, stream.read(&mut buffer)).await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Http {
    One,
    Two,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    Plain,
    Tls,
}

/// What a client saw: the status, the id, and whether the end was clean.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    status: u16,
    id: String,
    clean: bool,
}

async fn ask<I>(io: I, http: Http, request: hyper::Request<Full<Bytes>>) -> Seen
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(io);
    let asked = async {
        match http {
            Http::One => {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(io).await.unwrap();
                let connection = tokio::spawn(connection);
                let seen = see(sender.send_request(request).await.unwrap()).await;
                connection.abort();
                seen
            }
            Http::Two => {
                let executor = TokioExecutor::new();
                let (mut sender, connection) =
                    hyper::client::conn::http2::handshake(executor, io).await.unwrap();
                let connection = tokio::spawn(connection);
                let seen = see(sender.send_request(request).await.unwrap()).await;
                connection.abort();
                seen
            }
        }
    };
    tokio::time::timeout(EVER, asked).await.unwrap()
}

async fn see(response: hyper::Response<Incoming>) -> Seen {
    let status = response.status().as_u16();
    let id = response.headers().get("x-endstop-id").unwrap().to_str().unwrap().to_owned();
    let mut body = response.into_body();
    loop {
        match body.frame().await {
            None => return Seen { status, id, clean: true },
            Some(Ok(_)) => {}
            Some(Err(_)) => return Seen { status, id, clean: false },
        }
    }
}

/// Trusts every certificate.
#[derive(Debug)]
struct Anyone(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &[rustls_pki_types::CertificateDer<'_>],
        _: &rustls_pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls_pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls_pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

async fn tls(address: SocketAddr, http: Http) -> tokio_rustls::client::TlsStream<TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut client = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    client.alpn_protocols = vec![match http {
        Http::One => b"http/1.1".to_vec(),
        Http::Two => b"h2".to_vec(),
    }];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap()
}

/// Asks for every answer, and compares what the client saw and what was recorded with the corpus.
async fn run(field: &Arc<Field>, listener: Listener, http: Http) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, case) in corpus().iter().enumerate() {
        for (mode, want) in [(Mode::Guard, &case.guard), (Mode::Observe, &case.observe)] {
            let body = format!(r#"{{"model":"m","stream":{},"x":"end"}}"#, case.streamed);
            let request = hyper::Request::post(format!(
                "http://{}/openai/v1/chat/completions",
                field.address
            ))
            .header("host", field.address.to_string())
            .header("content-type", "application/json")
            .header("authorization", "Bearer sk-canary")
            .header("x-case", number.to_string())
            .header("x-endstop-mode", mode.word())
            .body(Full::from(body))
            .unwrap();
            field.admit(1);
            let seen = match listener {
                Listener::Tls => ask(tls(field.address, http).await, http, request).await,
                Listener::Plain => {
                    let stream = TcpStream::connect(field.address).await.unwrap();
                    ask(stream, http, request).await
                }
            };
            let record = field.record(&seen.id).await;
            let (reason, closed) = (record.ending.reason.name(), record.ending.closed.word());
            let got = format!("{} {reason} {closed}", seen.status);
            // Nothing that is withheld or broken ends well for the client.
            let loud = seen.status >= 400 || !seen.clean || record.ending.reason.is_success();
            let is_told = loud || mode == Mode::Observe || case.streamed;
            if !got.starts_with(want.as_str())
                || !is_told
                || record.kept.client_status != Some(seen.status)
            {
                wrong.push(format!(
                    "{} ({}, {http:?}): {got}, clean {}, recorded {:?}; expected {want}",
                    case.name,
                    mode.word(),
                    seen.clean,
                    record.kept.client_status,
                ));
            }
        }
    }
    wrong
}

#[tokio::test]
async fn every_answer_on_the_plain_listener() {
    let address = upstream(corpus()).await;
    let upstreams = config(&format!("http://{address}")).upstreams;
    let field = Field::with(|config| config.upstreams = upstreams).await;
    for http in [Http::One, Http::Two] {
        let wrong = run(&field, Listener::Plain, http).await;
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
    field.finish().await;
}

#[tokio::test]
async fn every_answer_on_the_tls_listener() {
    let dir = tempfile::tempdir().unwrap();
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, certified.cert.pem()).unwrap();
    std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    let address = upstream(corpus()).await;
    let upstreams = config(&format!("http://{address}")).upstreams;
    let field = Field::with(|config| {
        config.upstreams = upstreams;
        config.tls = Some(Tls { cert, key });
    })
    .await;
    for http in [Http::One, Http::Two] {
        let wrong = run(&field, Listener::Tls, http).await;
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
    field.finish().await;
}
