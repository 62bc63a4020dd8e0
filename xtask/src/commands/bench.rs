//! `cargo xtask bench`: benchmarks that want a server beside them.
//!
//! A claim is only worth comparing if it survives a power cut, so the Redis that the ledger is compared with syncs every
//! write, on the disk that holds the build and not on a file system in memory. The gateway's Redis is its ledger, and is
//! as fast as Redis is.

use std::env;

use anyhow::Result;

use crate::args::Bench;
use crate::install::Missing;
use crate::node;
use crate::phase::Phase;
use crate::process::{Signal, TiedCommand};
use crate::servers::Servers;
use crate::workspace::{self, cargo};

const REDIS_URL: &str = "ICHIDO_BENCH_REDIS_URL";
/// Where the meter counts, beside a file, and where Dify's messages are read.
const POSTGRES_URL: &str = "ICHIDO_BENCH_POSTGRES_URL";
/// The Node that runs what usage is compared with.
const NODE: &str = "ICHIDO_BENCH_NODE";

/// Runs one benchmark with `extra` arguments for it.
pub(crate) fn run(bench: Bench, extra: &[String]) -> Result<u8> {
    let is_given = |variable| env::var_os(variable).is_some_and(|url| !url.is_empty());
    let wants_redis = matches!(bench, Bench::Ledger | Bench::Gateway) && !is_given(REDIS_URL);
    let wants_postgres = bench == Bench::Usage && !is_given(POSTGRES_URL);
    let mut missing = Missing::default();
    if bench != Bench::Ledger {
        missing.program("wrk", "wrk");
    }
    if bench == Bench::Gateway {
        missing.program("nginx", "nginx");
    }
    if wants_redis {
        missing.program("redis-server", "redis-server");
    }
    if bench == Bench::Usage {
        node::needs(&mut missing);
    }
    if wants_postgres {
        Servers::needs_postgres(&mut missing);
    }
    missing.require_installable()?;
    missing.install()?;
    if bench == Bench::Usage {
        node::fetch()?;
    }
    let mut command = match bench {
        Bench::Ledger => cargo(&["bench", "--workspace", "--all-features", "--bench", "ledger", "--"]),
        Bench::Gateway | Bench::Claims | Bench::Delivery | Bench::Usage | Bench::Console => {
            let name = match bench {
                Bench::Claims => "claims-bench",
                Bench::Delivery => "delivery-bench",
                Bench::Ledger | Bench::Gateway => "gateway-bench",
                Bench::Usage => "usage-bench",
                Bench::Console => "console-bench",
            };
            // Asked for beside a benchmark of the workspace, they are built with what tests are built with, so that
            // nothing is compiled twice.
            let built = ["build", "--release", "--workspace", "--all-features", "--bench", "ledger"];
            let code = workspace::run(cargo(&built).args(["--bin", "ichido", "--bin", name]))?;
            if code != 0 {
                return Ok(code);
            }
            let target = workspace::target();
            let mut program = TiedCommand::new(target.join("release").join(name), Signal::Term).command;
            program.current_dir(target);
            program
        }
    };
    command.args(extra);
    if bench == Bench::Usage {
        command.env(NODE, node::program());
    }
    let servers = match bench {
        Bench::Usage if wants_postgres => Servers::start_durable_postgres(POSTGRES_URL)?,
        Bench::Ledger if wants_redis => Servers::start_durable_redis(REDIS_URL)?,
        Bench::Gateway if wants_redis => Servers::start_plain_redis(REDIS_URL)?,
        Bench::Ledger | Bench::Gateway | Bench::Claims | Bench::Delivery | Bench::Usage | Bench::Console => {
            return workspace::run(&mut command);
        }
    };
    let phase = Phase::begin("benchmark has run");
    let code = workspace::run(command.envs(servers.environment().iter().map(|(name, value)| (name, value))))?;
    phase.end();
    servers.stop();
    Ok(code)
}
