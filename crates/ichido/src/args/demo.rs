//! The arguments of `ichido demo`, and of the processes that it starts.

use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) const DEMO_EXAMPLES: &str = "\
Examples:
  ichido demo                         some seconds; ends with 1 if a promise was broken
  ichido demo --serve                 then look around in the console; its address is printed
  ichido demo --keep /tmp/demo        leaves every ledger, log and spool there

It needs no settings and no servers, takes free ports on this machine, and leaves nothing behind.";

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// How many operations are raced for: at least 10.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) keys: u32,
    /// How many workers race for them.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) workers: u32,
    /// Keeps the ledger and the log of effects in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Stays up at the end, until Ctrl-C: the console, the gateway, the meter and the sender, with what the demo did.
    #[arg(long)]
    pub(crate) serve: bool,
    /// Prints the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) keys: u32,
    #[arg(long)]
    pub(crate) workers: u32,
    /// Leaves every operation unfinished after this many grants, so that a kill always finds some running.
    #[arg(long)]
    pub(crate) hang_after: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoOrdersArgs {
    #[arg(long)]
    pub(crate) effects: PathBuf,
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    /// Of so many orders, one loses its answer; 0 for none.
    #[arg(long)]
    pub(crate) loses: u64,
}
