//! The TLS listener: a certificate, and clients that trust it.

use std::net::SocketAddr;
use std::sync::Arc;

use endstop_gateway::config::Tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A connection, plain or TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A certificate for 127.0.0.1 in files, which are gone after the test.
pub(crate) struct Certificate {
    dir: tempfile::TempDir,
    trusted: rustls_pki_types::CertificateDer<'static>,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(dir.path().join("key.pem"), key.serialize_pem()).unwrap();
        Self { dir, trusted: certificate.der().clone() }
    }

    /// The gateway's side of it.
    pub(crate) fn tls(&self) -> Tls {
        Tls { cert: self.dir.path().join("cert.pem"), key: self.dir.path().join("key.pem") }
    }

    /// A client that speaks this protocol.
    pub(crate) fn connector(&self, protocol: &str) -> TlsConnector {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.trusted.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

/// Connects over TLS.
pub(crate) async fn connect(
    connector: &TlsConnector,
    to: SocketAddr,
) -> tokio_rustls::client::TlsStream<TcpStream> {
    let stream = TcpStream::connect(to).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
    connector.connect(name, stream).await.unwrap()
}
