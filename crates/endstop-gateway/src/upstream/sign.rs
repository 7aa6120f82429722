//! Signs requests to Bedrock with the gateway's own credentials.
//!
//! A caller's signature covers the host that it was made for, so it cannot be passed on: it is
//! replaced.

use std::time::SystemTime;

use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use hyper::Request;

use crate::config::Secret;

/// An access key of AWS.
#[derive(Clone, Debug)]
pub struct Credentials {
    id: Secret,
    key: Secret,
    session: Option<Secret>,
}

impl Credentials {
    /// The credentials in AWS's own environment variables, if they are set.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        Some(Self {
            id: variable("AWS_ACCESS_KEY_ID").map(Secret::new)?,
            key: variable("AWS_SECRET_ACCESS_KEY").map(Secret::new)?,
            session: variable("AWS_SESSION_TOKEN").map(Secret::new),
        })
    }

    /// Signs a request for this region.
    ///
    /// # Errors
    /// The message of the signer.
    pub fn sign<B>(
        &self,
        request: &mut Request<B>,
        body: &[u8],
        region: &str,
    ) -> Result<(), String> {
        let session = self.session.as_ref().map(|session| session.expose().to_owned());
        let identity = aws_credential_types::Credentials::new(
            self.id.expose(),
            self.key.expose(),
            session,
            None,
            "endstop",
        )
        .into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(region)
            .name("bedrock")
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let uri = request.uri().to_string();
        // Only what is surely sent as it stands here; the host is added by the signer.
        let signed = ["content-type", "accept"];
        let headers = request
            .headers()
            .iter()
            .filter(|(name, _)| signed.contains(&name.as_str()))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let method = request.method().as_str();
        let signable = SignableRequest::new(method, uri, headers, SignableBody::Bytes(body))
            .map_err(|error| error.to_string())?;
        let (instructions, _) =
            sign(signable, &parameters).map_err(|error| error.to_string())?.into_parts();
        instructions.apply_to_request_http1x(request);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_for_its_region_and_body() {
        let credentials = Credentials {
            id: Secret::new("AKIDEXAMPLE".to_owned()),
            key: Secret::new("canary-secret".to_owned()),
            session: Some(Secret::new("session".to_owned())),
        };
        let signature = |body: &[u8], region: &str| {
            let uri = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse";
            let mut request = Request::post(uri).body(()).unwrap();
            credentials.sign(&mut request, body, region).unwrap();
            assert_eq!(request.headers()["x-amz-security-token"], "session");
            request.headers()["authorization"].to_str().unwrap().to_owned()
        };
        let one = signature(b"{}", "eu-west-1");
        assert!(one.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{one}");
        assert!(one.contains("/eu-west-1/bedrock/aws4_request"), "{one}");
        assert!(!one.contains("canary"), "{one}");
        assert_ne!(one, signature(b"{ }", "eu-west-1"));
        assert!(!format!("{credentials:?}").contains("canary"));
    }
}
