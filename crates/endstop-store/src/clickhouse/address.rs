//! Addresses: `clickhouse://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?cluster=NAME`, and `clickhouses://` for TLS.

use std::time::Duration;

/// The time that a batch may gather: each insert makes a part that the server has to merge.
const LINGER: Duration = Duration::from_secs(1);
/// The longest of those.
const LONGEST_LINGER: u64 = 300;
/// The parameters that an address may have.
const PARAMETERS: &str = "cluster, linger, sslrootcert, ttl";
/// The most days that rows can be kept by the server.
const MOST_DAYS: u32 = 36_500;

/// An address, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Servers: the next one is asked where one cannot be reached.
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) database: String,
    pub(super) is_tls: bool,
    /// File with root certificates.
    pub(super) roots: Option<String>,
    /// Name of the cluster in the servers' configuration.
    pub(super) cluster: Option<String>,
    /// Days after which the server itself deletes rows.
    pub(super) ttl_days: Option<u32>,
    pub(super) linger: Duration,
}

impl Address {
    /// Reads an address; says what is wrong with it.
    pub(super) fn read(url: &str) -> Result<Self, String> {
        let (is_tls, rest) =
            match (url.strip_prefix("clickhouse://"), url.strip_prefix("clickhouses://")) {
                (Some(rest), _) => (false, rest),
                (None, Some(rest)) => (true, rest),
                (None, None) => return Err("it names no host".to_owned()),
            };
        // A password may hold any character; the last `@` ends it.
        let (who, place) = rest.rsplit_once('@').unwrap_or(("default", rest));
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        let (place, parameters) = place.split_once('?').unwrap_or((place, ""));
        let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
        let port = if is_tls { 8443 } else { 8123 };
        let hosts: Result<Vec<_>, String> =
            hosts.split(',').map(|host| read_host(host, port)).collect();
        let database = if database.is_empty() { "default" } else { database };
        let mut address = Self {
            hosts: hosts?,
            user: decode(user, "user")?,
            password: decode(password, "password")?,
            database: decode(database, "database")?,
            is_tls,
            roots: None,
            cluster: None,
            ttl_days: None,
            linger: LINGER,
        };
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            address.set(parameter)?;
        }
        if address.database.contains(['\0', '/']) {
            return Err("the name of the database is not valid".to_owned());
        }
        Ok(address)
    }

    fn set(&mut self, parameter: &str) -> Result<(), String> {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match (name, value) {
            (_, "") => return Err(format!("the parameter `{name}` has no value")),
            ("cluster", name) => self.cluster = Some(decode(name, "cluster")?),
            ("sslrootcert", _) if !self.is_tls => {
                return Err("`sslrootcert` needs TLS: write `clickhouses://`".to_owned());
            }
            ("sslrootcert", file) => self.roots = Some(decode(file, "sslrootcert")?),
            ("linger", seconds) => {
                let read = seconds.strip_suffix('s').and_then(|number| number.parse().ok());
                let read = read.filter(|seconds| (1..=LONGEST_LINGER).contains(seconds));
                let seconds = read.ok_or_else(|| {
                    format!("invalid `linger` `{seconds}`: expected 1s to {LONGEST_LINGER}s")
                })?;
                self.linger = Duration::from_secs(seconds);
            }
            ("ttl", days) => {
                let read = days.strip_suffix('d').and_then(|number| number.parse().ok());
                let read = read.filter(|days| (1..=MOST_DAYS).contains(days));
                self.ttl_days = Some(read.ok_or_else(|| {
                    format!("invalid `ttl` `{days}`: expected days, such as `400d`")
                })?);
            }
            (other, _) => {
                return Err(format!("unknown parameter `{other}`: expected one of {PARAMETERS}"));
            }
        }
        Ok(())
    }
}

fn read_host(text: &str, port: u16) -> Result<(String, u16), String> {
    // The colons of an IPv6 address stand in brackets.
    let (host, number) = match text.rsplit_once(':') {
        Some((host, number)) if !number.ends_with(']') => (host, Some(number)),
        Some(_) | None => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    let port = match number {
        None => port,
        Some(number) => number.parse().map_err(|_| format!("invalid port `{number}`"))?,
    };
    Ok((host.to_owned(), port))
}

/// Decodes `%40` and the like.
fn decode(text: &str, what: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    bytes.extend(pieces.next().unwrap_or_default().bytes());
    for piece in pieces {
        let byte = piece.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or_else(|| format!("a `%` in the {what} must be written as `%25`"))?);
        bytes.extend(piece.bytes().skip(2));
    }
    String::from_utf8(bytes).map_err(|_| format!("the {what} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_defaults() {
        let address = Address::read("clickhouse://h").unwrap();
        assert_eq!(address.hosts, [("h".to_owned(), 8123)]);
        assert_eq!((address.user.as_str(), address.database.as_str()), ("default", "default"));
        let address =
            Address::read("clickhouses://u:p%40%2F@[::1]:1,b/d%20b?cluster=c&linger=5s&ttl=9d")
                .unwrap();
        assert_eq!(address.hosts, [("::1".to_owned(), 1), ("b".to_owned(), 8443)]);
        assert_eq!((address.password.as_str(), address.database.as_str()), ("p@/", "d b"));
        assert_eq!((address.cluster.as_deref(), address.ttl_days), (Some("c"), Some(9)));
        assert_eq!(address.linger, Duration::from_secs(5));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("clickhouse:h", "names no host"),
            ("clickhouse://", "names no host"),
            ("clickhouse://u:p@/d", "names no host"),
            ("clickhouse://h:port/d", "invalid port"),
            ("clickhouse://h/d?frobnicate=1", "unknown parameter `frobnicate`"),
            ("clickhouse://h/d?cluster=", "has no value"),
            ("clickhouse://h/d?linger=1h", "invalid `linger`"),
            ("clickhouse://h/d?ttl=0d", "invalid `ttl`"),
            ("clickhouse://h/d?sslrootcert=f", "needs TLS"),
            ("clickhouse://u:5%@h/d", "%25"),
        ];
        for (url, wanted) in cases {
            let why = Address::read(url).unwrap_err();
            assert!(why.contains(wanted), "{url}: {why}");
        }
    }
}
