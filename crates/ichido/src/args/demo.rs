//! Arguments of `ichido demo` and of the hidden commands that it starts.

use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) const DEMO_EXAMPLES: &str = "\
Examples:
  ichido demo                         takes a few seconds
  ichido demo --serve                 then explore the console; its address is printed
  ichido demo --keep /tmp/demo        keeps every ledger, log and spool

The demo needs no settings and no servers. It uses free local ports and cleans up after itself.
Exit codes: 0 every promise held; 1 a promise was broken.";

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Number of operations, orders and events in the scenarios.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) keys: u32,
    /// Number of workers that race for the operations.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) workers: u32,
    /// Keep all files in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Keep the console, gateway, meter and sender running at the end, until Ctrl-C.
    #[arg(long)]
    pub(crate) serve: bool,
    /// Print the reports as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoWorkerArgs {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) keys: u32,
    #[arg(long)]
    pub(crate) workers: u32,
    /// After this many grants, never finish an operation, so that a kill always interrupts some.
    #[arg(long)]
    pub(crate) hang_after: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoOrdersArgs {
    #[arg(long)]
    pub(crate) effects: PathBuf,
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    /// Lose the response to every n-th order; 0 loses none.
    #[arg(long)]
    pub(crate) lose_every: u64,
}
