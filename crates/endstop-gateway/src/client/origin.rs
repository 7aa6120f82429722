//! Where a request comes from, by its headers: a web page must not spend the gateway's own key or
//! read what operators see.
//!
//! A browser sends any page's request to this machine, with the page in `Origin`. If the page's own
//! name resolves to this machine (DNS rebinding), `Origin` says nothing, but `Host` is that name.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::Request;
use hyper::header::{self, HeaderName, HeaderValue};

/// Header with which browsers say how far a page is from the server.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Reason why a request may not come from where it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// Its `Host` does not name this machine.
    Host,
    /// A web page of another site sent it.
    Page,
}

/// Checks that a request names this machine, or one of `hosts`, and was not sent by a foreign page.
pub(crate) fn check<B>(request: &Request<B>, hosts: &[String]) -> Result<(), Foreign> {
    let mut named = false;
    for host in named_hosts(request) {
        named = true;
        if !host.is_some_and(|host| is_known(host, hosts)) {
            return Err(Foreign::Host);
        }
    }
    if named { check_page(request, hosts) } else { Err(Foreign::Host) }
}

/// Checks that a request was not sent by a foreign page.
pub(crate) fn check_page<B>(request: &Request<B>, hosts: &[String]) -> Result<(), Foreign> {
    let headers = request.headers();
    let cross_site = headers.get(FETCH_SITE).is_some_and(|site| site == "cross-site");
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
        origin.is_some_and(|origin| {
            is_known(origin, hosts) || named_hosts(request).all(|host| host == Some(origin))
        })
    };
    let foreign = !headers.get_all(header::ORIGIN).iter().all(is_own);
    if cross_site || foreign { Err(Foreign::Page) } else { Ok(()) }
}

/// Returns the hosts that a request names, with their ports: in its target, which counts, and in its
/// headers. Those that are not text are none.
fn named_hosts<B>(request: &Request<B>) -> impl Iterator<Item = Option<&str>> {
    let in_target = request.uri().authority().map(|authority| Some(authority.as_str()));
    let in_headers = request.headers().get_all(header::HOST).iter();
    in_target.into_iter().chain(in_headers.map(|host| host.to_str().ok()))
}

/// Reports whether a host is this machine, as it calls itself, or one that the operator named.
fn is_known(host: &str, hosts: &[String]) -> bool {
    let Some(name) = without_port(host) else { return false };
    is_loopback(name)
        || hosts.iter().any(|known| [name, host].iter().any(|n| known.eq_ignore_ascii_case(n)))
}

fn is_loopback(name: &str) -> bool {
    let v6 = || name.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok();
    let v4 = || name.parse::<Ipv4Addr>().ok().or_else(|| v6()?.to_ipv4_mapped());
    name.eq_ignore_ascii_case("localhost")
        || v4().is_some_and(|ip| ip.is_loopback())
        || v6().is_some_and(|ip| ip.is_loopback())
}

/// Returns the name in a host; none if what follows it is not a port.
fn without_port(host: &str) -> Option<&str> {
    let name = match host.find(']') {
        Some(end) => host.get(..=end)?,
        None => host.split(':').next()?,
    };
    let port = host.get(name.len()..)?;
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.is_empty() || port.starts_with(':');
    (is_port && digits.bytes().all(|c| c.is_ascii_digit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::get("/openai/v1/models");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn hosts_that_are_this_machine() {
        let hosts = ["gateway.example".to_owned(), "other.example:4100".to_owned()];
        for host in [
            "localhost",
            "LOCALHOST:4100",
            "127.0.0.1",
            "127.8.8.8:1",
            "[::1]",
            "[::1]:4100",
            "[::ffff:127.0.0.1]:4100",
            "gateway.example",
            "Gateway.Example:443",
            "other.example:4100",
        ] {
            assert_eq!(check(&request(&[("host", host)]), &hosts), Ok(()), "{host}");
        }
        for host in [
            "",
            ":4100",
            "evil.example",
            "evil.example:4100",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "localhost@evil.example",
            "evil.example#localhost",
            "evil.example:localhost",
            "127.0.0.1:4100.evil.example",
            "0.0.0.0",
            "10.0.0.1",
            "[::2]",
            "[::1]evil.example",
            "::1",
            "2130706433",
            "other.example",
        ] {
            let found = check(&request(&[("host", host)]), &hosts);
            assert_eq!(found, Err(Foreign::Host), "{host}");
        }
        assert_eq!(check(&request(&[]), &hosts), Err(Foreign::Host));
        // Both count where both are there.
        for (target, host) in [("evil.example", "localhost"), ("localhost", "evil.example")] {
            let request = Request::get(format!("http://{target}/")).header("host", host);
            let found = check(&request.body(()).unwrap(), &hosts);
            assert_eq!(found, Err(Foreign::Host), "{target} {host}");
        }
    }

    #[test]
    fn pages_that_are_foreign() {
        let host = ("host", "127.0.0.1:4101");
        for origin in ["http://127.0.0.1:4101", "http://localhost:3000", "https://[::1]"] {
            assert_eq!(check(&request(&[host, ("origin", origin)]), &[]), Ok(()), "{origin}");
        }
        for origin in ["null", "", "file://", "https://evil.example", "http://localhost.evil"] {
            let found = check(&request(&[host, ("origin", origin)]), &[]);
            assert_eq!(found, Err(Foreign::Page), "{origin}");
        }
        for (site, want) in [
            ("cross-site", Err(Foreign::Page)),
            ("same-origin", Ok(())),
            ("same-site", Ok(())),
            ("none", Ok(())),
        ] {
            assert_eq!(check(&request(&[host, ("sec-fetch-site", site)]), &[]), want, "{site}");
        }
    }

    #[test]
    fn a_page_of_the_listener_itself() {
        let own = request(&[("host", "admin.example"), ("origin", "https://admin.example")]);
        assert_eq!(check_page(&own, &[]), Ok(()));
        let other = request(&[("host", "admin.example"), ("origin", "https://evil.example")]);
        assert_eq!(check_page(&other, &[]), Err(Foreign::Page));
    }
}
