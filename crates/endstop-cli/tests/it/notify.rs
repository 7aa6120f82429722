//! Messages of `endstop serve` to a service manager.

use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::Duration;

use crate::serve::Running;
use crate::{Folder, endstop_with, fails};

/// Socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(socket)
    }

    /// Returns the lines of the next message.
    fn next(&self) -> Vec<String> {
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

/// Returns the microseconds of the monotonic clock, as the kernel counts them.
fn monotonic() -> f64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    uptime.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e6
}

fn number(line: &str, name: &str) -> f64 {
    line.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')).unwrap().parse().unwrap()
}

fn runs_as_a_service(manager: &Manager, name: &str) {
    let folder = Folder::new(&format!("notify-{}", name.starts_with('@')));
    let toml = |drain: &str| {
        format!(
            "listen = '127.0.0.1:0'\nadmin = 'off'\nstore = 'off'\n[limits]\ndrain = '{drain}'\n"
        )
    };
    let file = folder.write("endstop.toml", toml("7s"));
    let mut running = Running::start_in(
        Command::new(env!("CARGO_BIN_EXE_endstop")).env("NOTIFY_SOCKET", name),
        &file,
    );
    let serving = format!("STATUS=serving {}", running.address);
    assert_eq!(manager.next(), ["READY=1", &serving]);

    folder.write("endstop.toml", toml("9s"));
    let before = monotonic();
    running.signal("HUP");
    let reloading = manager.next();
    assert_eq!((&*reloading[0], &*reloading[2]), ("RELOADING=1", "STATUS=reloading"));
    // The kernel's uptime is rounded down to hundredths of a second, and counts suspended time.
    assert!(number(&reloading[1], "MONOTONIC_USEC") > 0.0);
    assert!(number(&reloading[1], "MONOTONIC_USEC") < before + 3600e6, "{reloading:?}");
    let ready = manager.next();
    assert_eq!(ready[0], "READY=1");
    assert!(ready[1].ends_with("endstop.toml: changed limits"), "{ready:?}");

    // A mistake leaves the gateway in service: the reload is over, too.
    folder.write("endstop.toml", "mode = 'nonsense'");
    running.signal("HUP");
    assert_eq!(manager.next()[0], "RELOADING=1");
    let ready = manager.next();
    assert_eq!(ready[0], "READY=1");
    assert!(ready[1].contains("not reloaded") && ready[1].contains("nonsense"), "{ready:?}");

    running.signal("TERM");
    let stopping = manager.next();
    assert_eq!(stopping[0], "STOPPING=1");
    // The whole drain, and some time for the end.
    assert!(number(&stopping[1], "EXTEND_TIMEOUT_USEC") > 9e6, "{stopping:?}");
    assert!(stopping[2].starts_with("STATUS=draining: "), "{stopping:?}");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_manager_at_a_path_is_told() {
    let folder = Folder::new("notify-path");
    let path = folder.0.join("notify.sock");
    let manager = Manager::new(UnixDatagram::bind(&path).unwrap());
    runs_as_a_service(&manager, path.to_str().unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn a_manager_without_a_file_is_told() {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("endstop-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = Manager::new(UnixDatagram::bind_addr(&address).unwrap());
    runs_as_a_service(&manager, &format!("@{name}"));
}

#[test]
fn a_manager_that_is_gone_stops_nothing() {
    let folder = Folder::new("notify-gone");
    let file = folder.write("endstop.toml", "listen = '127.0.0.1:0'\nadmin = 'off'\nstore = 'off'");
    let mut command = Command::new(env!("CARGO_BIN_EXE_endstop"));
    let mut running = Running::start_in(command.env("NOTIFY_SOCKET", "/nowhere/notify"), &file);
    running.signal("HUP");
    running.until("configuration reloaded");
    running.signal("TERM");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_address_that_is_not_known_is_an_error() {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--store", "off"];
    let output = endstop_with(&arguments, b"", &[("NOTIFY_SOCKET", "vsock:2:1")]);
    fails(&output, 1, "cannot use NOTIFY_SOCKET=vsock:2:1: expected an absolute path");
}
