//! Root certificates: those of the system, or of a file.

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// Reads `sslrootcert`: a file, or the system's without one.
pub(crate) fn roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        None | Some("system") => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(file) => {
            let read = |error| format!("cannot read sslrootcert `{file}`: {error}");
            for certificate in CertificateDer::pem_file_iter(file).map_err(read)? {
                let certificate = certificate.map_err(read)?;
                roots.add(certificate).map_err(|error| format!("sslrootcert: {error}"))?;
            }
        }
    }
    if roots.is_empty() {
        return Err("no root certificate was found; set sslrootcert".to_owned());
    }
    Ok(roots)
}
