//! Signs requests to Bedrock with the gateway's own credentials.
//!
//! A caller's signature covers the host that it was made for, so it cannot be passed on: it is
//! replaced.

use endstop_aws::Credentials;
use hyper::Request;
use hyper::header::{HeaderName, HeaderValue};

/// Signs a request for this region.
///
/// # Errors
/// The message of the signer.
pub(crate) fn sign<B>(
    credentials: &Credentials,
    request: &mut Request<B>,
    body: &[u8],
    region: &str,
) -> Result<(), String> {
    let uri = request.uri().to_string();
    // Only what is surely sent as it stands here; the host is added by the signer.
    let sent = ["content-type", "accept"];
    let headers = request
        .headers()
        .iter()
        .filter(|(name, _)| sent.contains(&name.as_str()))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let method = request.method().as_str();
    let signed = credentials.sign(method, &uri, headers, body, region)?;
    for (name, value) in signed {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        let mut value = HeaderValue::from_str(&value).map_err(|error| error.to_string())?;
        value.set_sensitive(true);
        request.headers_mut().insert(name, value);
    }
    Ok(())
}
