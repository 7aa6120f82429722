//! The gateway beside other proxies, in one run, as ratios.
//!
//! `endstop-bench run` starts a mock provider and every proxy that is to be had, each with one worker
//! thread, sends all of them the same requests in rounds of random order, and prints what each spent
//! beside what a plain hyper passthrough spent in the same round. `scripts/bench-gateway` installs the
//! others first.

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
#[command(version, about = "The gateway beside other proxies, in one run.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start everything, measure, print.
    Run(run::Options),
    /// A provider that answers as the model's name says; ends when its input ends.
    Mock {
        /// Where it answers requests.
        #[arg(long)]
        port: u16,
        /// Where it tells when a client left.
        #[arg(long)]
        control: u16,
    },
    /// A plain hyper proxy: one frame in, one frame out; ends when its input ends.
    Passthrough {
        /// Where it listens.
        #[arg(long)]
        port: u16,
        /// The port of what it stands before.
        #[arg(long)]
        upstream: u16,
        /// With tokio's scheduler for one thread instead of one worker of the usual one.
        #[arg(long)]
        current_thread: bool,
    },
    /// A copy of bytes between two sockets; ends when its input ends.
    Copy {
        /// Where it listens.
        #[arg(long)]
        port: u16,
        /// The port of what it stands before.
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
