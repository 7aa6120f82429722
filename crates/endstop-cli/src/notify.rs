//! Messages to the service manager, by the protocol of `sd_notify`: ready, reloading, stopping.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The service manager that started this process, if it asked for messages.
pub(crate) struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// Finds the manager by the variable `NOTIFY_SOCKET`.
    pub(crate) fn from_env() -> Result<Self> {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Self(None));
        };
        let open = || -> io::Result<_> {
            let socket = UnixDatagram::unbound()?;
            // A manager that does not read must not stop the gateway.
            socket.set_nonblocking(true)?;
            Ok((socket, address(name.as_encoded_bytes())?))
        };
        let opened = open().with_context(|| {
            format!("cannot use NOTIFY_SOCKET={}", crate::printable(&name.to_string_lossy()))
        })?;
        Ok(Self(Some(opened)))
    }

    /// Says that the gateway serves, at the start and after each reload.
    pub(crate) fn ready(&self, status: &str) {
        self.send("READY=1", status);
    }

    /// Says that a reload begins.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"), "reloading");
    }

    /// Says that the gateway drains, and asks to be left that time for it.
    pub(crate) fn stopping(&self, status: &str, within: Duration) {
        let micros = within.as_micros();
        self.send(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={micros}"), status);
    }

    fn send(&self, state: &str, status: &str) {
        let Some((socket, address)) = &self.0 else { return };
        let status = crate::printable(status).replace('\n', " ");
        // The manager has a timeout of its own, and logs it.
        let _ = socket.send_to_addr(format!("{state}\nSTATUS={status}\n").as_bytes(), address);
    }
}

/// Returns the address of a socket: a path, or `@` and a name without a file.
fn address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::unix::ffi::OsStrExt as _;
    match name {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => {
            <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
        }
        [b'/', ..] => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "expected an absolute path, or `@` and a name",
        )),
    }
}
