//! Instruction counts, which do not depend on the load of the machine.

use std::process::Command;

/// Runs this program under callgrind with these arguments and returns the instructions that it took.
pub(crate) fn instructions(arguments: &[&str]) -> f64 {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        // Beside the program; callgrind changes the mode of what it writes to.
        .arg(format!("--callgrind-out-file={}.callgrind", program.display()))
        .arg(&program)
        .args(arguments)
        .output()
        .expect("valgrind is not installed: apt-get install valgrind");
    let text = String::from_utf8_lossy(&output.stderr);
    let line =
        text.lines().find(|line| line.contains("Collected")).unwrap_or_else(|| panic!("{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}
