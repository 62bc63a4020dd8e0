//! `cargo xtask bench`: benchmarks that want a server with its feet on a real disk.
//!
//! A claim is only worth comparing if it survives a power cut, so the Redis to compare with syncs every write, on the
//! disk that holds the build and not on a file system in memory.

use std::env;

use anyhow::Result;

use crate::args::Bench;
use crate::install::Missing;
use crate::phase::Phase;
use crate::servers::Fleet;
use crate::workspace::{self, cargo};

const REDIS_URL: &str = "ICHIDO_BENCH_REDIS_URL";

/// Runs one benchmark with `extra` arguments for cargo.
pub(crate) fn run(bench: Bench, extra: &[String]) -> Result<u8> {
    let mut command = match bench {
        Bench::Ledger => cargo(&["bench", "--bench", "ledger", "-p", "ichido-ledger", "--all-features"]),
    };
    command.args(extra);
    if env::var_os(REDIS_URL).is_some_and(|url| !url.is_empty()) {
        return workspace::run(&mut command);
    }

    let mut missing = Missing::default();
    missing.program("redis-server", "redis-server");
    missing.must_be_installable()?;
    missing.install()?;
    let fleet = Fleet::start_durable_redis(REDIS_URL)?;
    let phase = Phase::begin("benchmark has run");
    let code = workspace::run(command.envs(fleet.environment().iter().map(|(name, value)| (name, value))))?;
    phase.end();
    fleet.stop();
    Ok(code)
}
