//! CPU time, memory and limits of a process and its children, from the kernel.

use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::io::Read;
use std::path::Path;

use anyhow::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Builder;

/// Raises the limit on open files, because a gateway holds two sockets per stream. Children
/// inherit the limit.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    // If this fails, the run skips the largest numbers of idle streams.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Returns the number of files that this process may open.
pub(crate) fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Tokio scheduler of our own servers, with one thread.
#[derive(Clone, Copy)]
pub(crate) enum Scheduler {
    /// Work-stealing scheduler, as in most servers, with one worker.
    Multi,
    /// Current-thread scheduler, without the cost of synchronisation.
    Current,
}

/// Runs a server until standard input ends, that is, until the parent process is gone.
pub(crate) fn until_input_ends(
    scheduler: Scheduler,
    server: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<()> {
    std::thread::spawn(|| {
        let mut input = std::io::stdin();
        let mut some = [0; 64];
        while matches!(input.read(&mut some), Ok(count) if count > 0) {}
        std::process::exit(0);
    });
    let mut runtime = match scheduler {
        Scheduler::Multi => Builder::new_multi_thread(),
        Scheduler::Current => Builder::new_current_thread(),
    };
    let runtime = runtime.worker_threads(1).enable_all().build()?;
    // Spawned, so that the worker also accepts connections.
    runtime.block_on(runtime.spawn(server))?
}

/// CPU time used by a process and its children, by thread.
pub(crate) struct Cpu {
    /// CPU time in nanoseconds, by process and thread; exact for a sleeping thread.
    threads: HashMap<(u32, u32), u64>,
    /// User and system time in ticks of 10 ms, including ended threads and children.
    ticks: u64,
}

impl Cpu {
    pub(crate) fn of(root: u32) -> Self {
        let mut cpu = Self { threads: HashMap::new(), ticks: 0 };
        for process in tree(root) {
            let folder = format!("/proc/{process}/task");
            for thread in numbers(Path::new(&folder)) {
                let text = fs::read_to_string(format!("{folder}/{thread}/schedstat"));
                let time = text.ok().and_then(|text| text.split(' ').next()?.parse().ok());
                cpu.threads.insert((process, thread), time.unwrap_or(0));
            }
            // Fields 14 to 17: user and system time, then both for children that were waited for.
            cpu.ticks += (14..=17).map(|field| stat(process, field).unwrap_or(0)).sum::<u64>();
        }
        cpu
    }

    /// Returns the microseconds used since `then`.
    pub(crate) fn since(&self, then: &Self) -> f64 {
        if then.threads.keys().any(|thread| !self.threads.contains_key(thread)) {
            return self.ticks.saturating_sub(then.ticks) as f64 * 10_000.0;
        }
        let of = |(thread, time): (&(u32, u32), &u64)| {
            time.saturating_sub(then.threads.get(thread).copied().unwrap_or(0))
        };
        self.threads.iter().map(of).sum::<u64>() as f64 / 1000.0
    }
}

/// Returns the resident memory in bytes, including children.
pub(crate) fn resident(root: u32) -> u64 {
    let pages = |process: u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    };
    tree(root).into_iter().filter_map(pages).sum::<u64>() * rustix::param::page_size() as u64
}

/// Returns a process and all its descendants.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u64)> = numbers(Path::new("/proc"))
        .into_iter()
        .filter_map(|process| Some((process, stat(process, 4)?)))
        .collect();
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(&parent) = tree.get(at) {
        let children = parents.iter().filter(|(_, of)| *of == u64::from(parent));
        tree.extend(children.map(|(process, _)| *process));
        at += 1;
    }
    tree
}

/// Returns a field of `/proc/PID/stat`, counted from one as in its manual.
fn stat(process: u32, field: usize) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in brackets that may contain any character.
    let (_, rest) = text.rsplit_once(") ")?;
    rest.split(' ').nth(field.checked_sub(3)?)?.parse().ok()
}

fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the steal time and the total time, in ticks of all cores since boot.
pub(crate) fn stolen() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // The ninth and tenth fields repeat guest time that is already counted.
    (ticks.get(7).copied().unwrap_or(0), ticks.iter().take(8).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_its_own_tree_and_has_memory() {
        let own = std::process::id();
        assert!(tree(own).contains(&own));
        assert!(resident(own) > 0);
        assert_eq!(stat(own, 1), None);
    }

    #[test]
    fn threads_that_ended_fall_back_to_ticks() {
        let then = Cpu { threads: HashMap::from([((1, 1), 5000), ((1, 2), 0)]), ticks: 3 };
        let gone = Cpu { threads: HashMap::from([((1, 1), 9000)]), ticks: 5 };
        let more = Cpu {
            threads: HashMap::from([((1, 1), 9000), ((1, 2), 1000), ((1, 3), 2000)]),
            ticks: 5,
        };
        assert_eq!(gone.since(&then), 20_000.0);
        assert_eq!(more.since(&then), 7.0);
    }
}
