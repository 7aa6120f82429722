//! `endstop demo` and `endstop serve --upstream sim`.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::{Folder, endstop_with, fails};

/// Demo that stops at the end of the test.
struct Running {
    child: Child,
    out: std::io::Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(temp: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_endstop"))
            .arg("demo")
            .env("TMPDIR", temp)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, out }
    }

    /// Reads up to this line.
    fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.contains(end) {
            let line = self.out.next();
            assert!(line.is_some(), "{end} is missing: {text}");
            text += &format!("{}\n", line.unwrap().unwrap());
        }
        text
    }

    fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(
            Command::new("sh")
                .args(["-c", &format!("kill -s INT {id}")])
                .status()
                .unwrap()
                .success()
        );
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A printed request and what is printed about its outcome.
struct Trial {
    command: String,
    expect: String,
}

fn trials(page: &str) -> Vec<Trial> {
    let joined = page.replace("\\\n", "");
    let mut lines = joined.lines().map(str::trim);
    let mut trials = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("curl ") {
            let expect = lines.next().unwrap().to_owned();
            assert!(expect.starts_with("Expect "), "{expect}");
            trials.push(Trial { command: line.to_owned(), expect });
        }
    }
    trials
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The event that a printed request must not show, if the page says that one is withheld.
const WITHHELD: &str = "content_block_stop";

impl Trial {
    fn run(&self) {
        let output = Command::new("sh").args(["-c", &self.command]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let code: i32 = match self.expect.split_once("exit code ") {
            None => 0,
            Some((_, rest)) => rest.split('.').next().unwrap().parse().unwrap(),
        };
        assert_eq!(output.status.code(), Some(code), "{}: {text}", self.command);
        assert!(!quoted(&self.expect).is_empty(), "{}", self.expect);
        for part in quoted(&self.expect) {
            assert!(text.contains(part), "{part}: {text}");
        }
        if self.withholds() {
            assert!(text.contains("content_block_start"), "{text}");
            assert!(!text.contains(WITHHELD), "{text}");
        }
    }

    fn withholds(&self) -> bool {
        self.expect.contains(" withholds the event that closes the call")
    }
}

#[test]
#[cfg_attr(not(endstop_servers), ignore = "needs curl: set ENDSTOP_SERVERS=1")]
fn the_printed_commands_behave_as_printed_and_ctrl_c_ends_it() {
    let folder = Folder::new("demo");
    let mut demo = Running::start(&folder.0);
    let page = demo.until("Endings");
    assert!(!page.contains('\x1b'), "no colour in a pipe");
    let trials = trials(&page);
    assert_eq!(trials.len(), 3, "{page}");
    let withholding: Vec<bool> = trials.iter().map(Trial::withholds).collect();
    assert_eq!(withholding, [false, true, false], "{page}");
    for (trial, [reason, action]) in
        trials.iter().zip([["cut", "failed"], ["cut", "failed"], ["output_limit", "passed"]])
    {
        trial.run();
        let line = demo.until(" ms  ");
        assert!(line.contains(&format!("Z  {reason} ")) && line.contains(action), "{line}");
    }
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1, "the store of the demo");
    demo.interrupt();
    demo.until("Stopped.");
    assert_eq!(demo.child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "it is removed");
}

/// The README shows the page as it is printed, but for ports and the temporary directory.
#[test]
fn the_readme_shows_the_page() {
    let folder = Folder::new("demo-readme");
    let mut demo = Running::start(&folder.0);
    let page = demo.until("Endings");
    demo.interrupt();
    let readme = include_str!("../../../../README.md");
    let (_, shown) = readme.split_once("Endstop demo\n").unwrap();
    let (shown, _) = shown.split_once("\nEndings\n").unwrap();
    let shown = format!("Endstop demo\n{shown}");
    let plain = |text: &str| -> Vec<String> {
        let address = |line: &str| {
            let line = line.split("  (port ").next().unwrap();
            let mut parts = line.split("127.0.0.1:");
            let mut plain = parts.next().unwrap().to_owned();
            for part in parts {
                plain += "ADDRESS";
                plain += part.trim_start_matches(|c: char| c.is_ascii_digit());
            }
            plain.split(" --store ").next().unwrap().trim_end().to_owned()
        };
        text.trim().lines().map(address).collect()
    };
    let printed = page.trim_end().strip_suffix("Endings").unwrap();
    assert_eq!(plain(&shown), plain(printed));
}

/// Holds the port, unless something else does.
fn eventually_taken() -> Option<TcpListener> {
    TcpListener::bind("127.0.0.1:4100").ok()
}

#[test]
fn a_taken_port_is_said_and_another_is_chosen() {
    let folder = Folder::new("demo-taken");
    // Taken by this test, or by something else: both count.
    let _taken = eventually_taken();
    let mut demo = Running::start(&folder.0);
    let page = demo.until("Endings");
    assert!(page.contains("(port 4100 is taken)"), "{page}");
    assert!(!page.contains("http://127.0.0.1:4100"), "{page}");
    trials(&page)[2].run();
    demo.interrupt();
    assert_eq!(demo.child.wait().unwrap().code(), Some(0));
}

/// No request to a built-in route leaves this machine.
#[test]
fn every_built_in_route_is_simulated() {
    let listed = crate::stdout(&crate::endstop(
        &["serve", "--upstream", "sim", "--check", "--store", "off"],
        b"",
    ));
    assert!(!listed.contains("https://"), "{listed}");
    for provider in endstop::provider::ALL {
        let path = format!("  /{} ", provider.route);
        let line = listed.lines().find(|line| {
            line.starts_with(&path) || line.contains(&format!("  /{}/", provider.route))
        });
        assert!(line.is_some_and(|line| line.contains("simulated")), "{path}: {listed}");
    }
}

#[test]
fn a_missing_temporary_directory_is_told() {
    let output = endstop_with(&["demo"], b"", &[("TMPDIR", "/no/such/dir")]);
    let says = "cannot create a temporary directory in /no/such/dir: it does not exist; set TMPDIR";
    fails(&output, 1, says);
}
