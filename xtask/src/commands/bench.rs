//! `cargo xtask bench`: benchmarks, with the servers that they need.
//!
//! A fair comparison requires claims that survive a power failure. So the Redis that the ledger is compared with syncs
//! every write, to the disk that holds the target directory and not to an in-memory file system, and so does every
//! PostgreSQL, and the Redis of the peers. Otherwise the gateway uses Redis as its ledger, and that one does not sync.

use std::env;

use anyhow::Result;

use crate::args::Bench;
use crate::install::Missing;
use crate::phase::Phase;
use crate::process::{Signal, TiedCommand};
use crate::servers::Servers;
use crate::workspace::{self, cargo};
use crate::{node, peers};

const REDIS_URL: &str = "ICHIDO_BENCH_REDIS_URL";
/// The PostgreSQL of a ledger, of the meter, and of Dify's messages.
const POSTGRES_URL: &str = "ICHIDO_BENCH_POSTGRES_URL";
/// The DynamoDB of a peer.
const DYNAMODB_URL: &str = "ICHIDO_BENCH_DYNAMODB_URL";
/// The directory of the plots.
const PLOTS: &str = "ICHIDO_BENCH_PLOTS";
/// The directory of the stores that are measured.
const DIR: &str = "ICHIDO_BENCH_DIR";
/// The Node that runs the implementation that usage is compared with.
const NODE: &str = "ICHIDO_BENCH_NODE";

/// Runs one benchmark with `extra` arguments for it.
pub(crate) fn run(bench: Bench, extra: &[String]) -> Result<u8> {
    let is_set = |variable| env::var_os(variable).is_some_and(|url| !url.is_empty());
    let uses_redis = matches!(bench, Bench::Ledger | Bench::Gateway | Bench::Growth | Bench::Peers);
    let needs_redis = uses_redis && !is_set(REDIS_URL);
    let uses_postgres = matches!(bench, Bench::Ledger | Bench::Gateway | Bench::Growth | Bench::Usage);
    let needs_postgres = uses_postgres && !is_set(POSTGRES_URL);
    let mut missing = Missing::default();
    if bench == Bench::Similar {
        // It needs nothing but itself.
        let run = ["run", "--release", "--package", "ichido-bench", "--bin", "similar-bench", "--"];
        return workspace::run(cargo(&run).args(extra));
    }
    if bench != Bench::Ledger {
        missing.program("wrk", "wrk");
    }
    if matches!(bench, Bench::Gateway | Bench::Peers) {
        missing.program("nginx", "nginx");
    }
    if bench == Bench::Peers {
        missing.program("npm", "npm");
        missing.program("python3", "python3");
    }
    if needs_redis {
        missing.program("redis-server", "redis-server");
    }
    if bench == Bench::Usage {
        node::needs(&mut missing);
    }
    if needs_postgres {
        Servers::needs_postgres(&mut missing);
    }
    missing.require_installable()?;
    missing.install()?;
    if bench == Bench::Usage {
        node::fetch()?;
    }
    let mut command = match bench {
        Bench::Ledger => cargo(&["bench", "--workspace", "--all-features", "--bench", "ledger", "--"]),
        Bench::Gateway
        | Bench::Peers
        | Bench::Growth
        | Bench::Claims
        | Bench::Delivery
        | Bench::Usage
        | Bench::Console
        | Bench::Similar => {
            let name = match bench {
                Bench::Peers => "peers-bench",
                Bench::Growth => "growth-bench",
                Bench::Claims => "claims-bench",
                Bench::Delivery => "delivery-bench",
                Bench::Ledger | Bench::Gateway => "gateway-bench",
                Bench::Usage => "usage-bench",
                Bench::Console => "console-bench",
                Bench::Similar => "similar-bench",
            };
            // Building a bench target of the workspace as well enables the features that tests are built with, so that
            // nothing is compiled twice.
            let build = ["build", "--release", "--workspace", "--all-features", "--bench", "ledger"];
            let code = workspace::run(cargo(&build).args(["--bin", "ichido", "--bin", name]))?;
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
    if bench == Bench::Ledger && !is_set(DIR) {
        // Gigabytes that an interrupted run leaves behind do not belong in the source tree.
        command.env(DIR, workspace::target());
    }
    if bench == Bench::Usage {
        command.env(NODE, node::program());
    }
    if bench == Bench::Peers {
        command.envs(peers::fetch());
    }
    if bench == Bench::Growth && !is_set(PLOTS) {
        command.env(PLOTS, workspace::root().join("docs/images"));
    }
    if !needs_redis && !needs_postgres {
        return workspace::run(&mut command);
    }
    let mut servers = Servers::on_disk()?;
    if needs_redis {
        if matches!(bench, Bench::Ledger | Bench::Peers) {
            servers.add_durable_redis(REDIS_URL)?;
        } else {
            servers.add_plain_redis(REDIS_URL)?;
        }
    }
    if needs_postgres {
        servers.add_postgres(POSTGRES_URL)?;
    }
    if bench == Bench::Peers {
        servers.add_dynamodb(DYNAMODB_URL)?;
    }
    let phase = Phase::begin("benchmark finished");
    let code = workspace::run(command.envs(servers.environment().iter().map(|(name, value)| (name, value))))?;
    phase.end();
    servers.stop();
    Ok(code)
}
