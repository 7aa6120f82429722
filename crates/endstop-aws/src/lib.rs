//! Signs requests to Amazon Bedrock with AWS Signature Version 4.

#![forbid(unsafe_code)]

use std::fmt;
use std::time::SystemTime;

use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use zeroize::Zeroizing;

/// Environment variable with the id of an access key.
pub const ID_VARIABLE: &str = "AWS_ACCESS_KEY_ID";

const KEY_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";

/// An access key of AWS. It is wiped when dropped, and is not shown in debug output.
#[derive(Clone)]
pub struct Credentials {
    id: Zeroizing<String>,
    key: Zeroizing<String>,
    session: Option<Zeroizing<String>>,
}

impl Credentials {
    /// Creates credentials.
    pub fn new(id: impl Into<String>, key: impl Into<String>, session: Option<String>) -> Self {
        let session = session.map(Zeroizing::new);
        Self { id: Zeroizing::new(id.into()), key: Zeroizing::new(key.into()), session }
    }

    /// Returns the credentials in AWS's own environment variables, if they are set.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|text| !text.is_empty())).ok()
    }

    /// Returns the credentials in AWS's own variables, which `variable` looks up.
    ///
    /// # Errors
    /// The name of the variable that is missing.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, &'static str> {
        let id = variable(ID_VARIABLE).ok_or(ID_VARIABLE)?;
        let key = variable(KEY_VARIABLE).ok_or(KEY_VARIABLE)?;
        Ok(Self::new(id, key, variable("AWS_SESSION_TOKEN")))
    }

    /// Returns the session token, which is sent with each request. The key itself never is.
    #[must_use]
    pub fn session_token(&self) -> Option<&str> {
        self.session.as_ref().map(|token| token.as_str())
    }

    /// Returns the headers that sign a request for this region.
    ///
    /// `headers` are those that are surely sent as they are here; the host is added.
    ///
    /// # Errors
    /// The message of the signer.
    pub fn sign<'a>(
        &self,
        method: &'a str,
        uri: &'a str,
        headers: impl Iterator<Item = (&'a str, &'a str)>,
        body: &'a [u8],
        region: &str,
    ) -> Result<Vec<(String, String)>, String> {
        let session = self.session.as_ref().map(|session| session.to_string());
        let identity = aws_credential_types::Credentials::new(
            self.id.as_str(),
            self.key.as_str(),
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
        let signable = SignableRequest::new(method, uri, headers, SignableBody::Bytes(body))
            .map_err(|error| error.to_string())?;
        let (instructions, _) =
            sign(signable, &parameters).map_err(|error| error.to_string())?.into_parts();
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Ok(instructions.headers().map(owned).collect())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Credentials")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_for_its_region_and_body() {
        let credentials =
            Credentials::new("AKIDEXAMPLE", "canary-secret", Some("session".to_owned()));
        let signature = |body: &[u8], region: &str| {
            let uri = "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse";
            let headers = std::iter::once(("content-type", "application/json"));
            let signed = credentials.sign("POST", uri, headers, body, region).unwrap();
            let value = |name: &str| {
                signed.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            };
            assert_eq!(value("x-amz-security-token").as_deref(), Some("session"));
            value("authorization").unwrap()
        };
        let one = signature(b"{}", "eu-west-1");
        assert!(one.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{one}");
        assert!(one.contains("/eu-west-1/bedrock/aws4_request"), "{one}");
        assert!(!one.contains("canary"), "{one}");
        assert_ne!(one, signature(b"{ }", "eu-west-1"));
        assert!(!format!("{credentials:?}").contains("canary"));
    }
}
