//! Compares the gateway with other proxies in one run, as ratios.
//!
//! `endstop-bench run` starts a mock provider and every installed proxy, each with one worker
//! thread. It sends the same requests to all of them, in rounds of random order, and prints the
//! cost of each relative to a plain hyper passthrough in the same round. `scripts/bench-gateway`
//! installs the other proxies first.

mod client;
mod clock;
mod contender;
mod measure;
mod mock;
mod process;
mod proxy;
mod report;
mod run;
mod statistics;

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use clap::{Parser, Subcommand};

use process::Scheduler;

#[derive(Parser)]
#[command(version, about = "Compare the gateway with other proxies in one run")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start all proxies, measure them and print the results.
    Run(run::Options),
    /// Run a mock provider whose responses depend on the model name, until standard input ends.
    Mock {
        /// Port for requests.
        #[arg(long)]
        port: u16,
        /// Port that reports when clients disconnect.
        #[arg(long)]
        control: u16,
    },
    /// Run a plain hyper proxy that forwards each frame, until standard input ends.
    Passthrough {
        /// Port to listen on.
        #[arg(long)]
        port: u16,
        /// Port of the upstream server.
        #[arg(long)]
        upstream: u16,
        /// Use tokio's current-thread scheduler instead of the default one with one worker.
        #[arg(long)]
        current_thread: bool,
    },
    /// Copy bytes between two sockets, until standard input ends.
    Copy {
        /// Port to listen on.
        #[arg(long)]
        port: u16,
        /// Port of the upstream server.
        #[arg(long)]
        upstream: u16,
    },
}

fn main() -> Result<()> {
    process::raise_open_files();
    match Arguments::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Mock { port, control } => mock::run(loopback(port), loopback(control)),
        Command::Passthrough { port, upstream, current_thread } => {
            let scheduler = if current_thread { Scheduler::Current } else { Scheduler::Multi };
            proxy::passthrough(scheduler, loopback(port), loopback(upstream))
        }
        Command::Copy { port, upstream } => proxy::copy(loopback(port), loopback(upstream)),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
