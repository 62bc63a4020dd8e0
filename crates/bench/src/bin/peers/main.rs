//! Measures what protection against repeated requests costs: ours, and that of other systems, with the same handler.
//!
//! ```text
//! peers-bench [--quick]        `cargo xtask bench peers` builds it, and installs the peers
//! ```
//!
//! Each contender gets new keys over 64 connections, in turn, and runs the same handler: it parses an order and
//! responds with 200 bytes. wrk, the contender, its store and the handler share the machine. A figure is the median
//! over all rounds, and is printed with what that system promises, because the promises differ. A peer that is not
//! installed is reported as not measured. A missed target is reported, but is not an error.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an interactive program"
)]

mod contenders;

use std::time::Duration;

use ichido_bench::load::Load;
use ichido_bench::median::{median, ratio};
use ichido_bench::options::{self, Measurement, Options};
use ichido_bench::processes::{Process, Settings, scratch};
use ichido_bench::rounds::{Contender, Series, Workload, in_turn_all};
use ichido_bench::servers;
use ichido_bench::table::Table;
use ichido_bench::wrk::{Wrk, fresh_name};

use self::contenders::Peer;

const CONNECTIONS: u32 = 64;

const MEASUREMENTS: [(&str, Measurement); 1] = [("first", first)];

fn main() {
    options::run(&MEASUREMENTS, servers::run);
}

/// New keys, at the path that is a service and a handler for Restate.
struct Orders;

impl Workload for Orders {
    fn send(&self, process: &Process, connections: u32, time: Duration) -> Wrk {
        Load::New.send_to("/orders/create", &fresh_name(), process, connections, time)
    }
}

/// First-time keyed requests.
fn first(options: &Options, table: &mut Table) {
    let dir = scratch();
    let file = format!("file:{}", dir.path().join("ledger").display());
    let mut peers = Vec::new();
    let mut add = |table: &mut Table, name: &'static str, started: Result<Peer, String>| match started {
        Ok(peer) => peers.push((name, peer)),
        Err(why) => table.note(name, format!("not measured: {why}")),
    };
    add(
        table,
        NGINX,
        contenders::node_handler()
            .map(|node| Peer::before(Process::nginx(&node), node, "nothing: each retry runs again")),
    );
    add(table, GATEWAY_FILE, contenders::node_handler().map(|node| gateway(node, &file, "once; synced before the handler runs and before the response; a crash is reported as in doubt")));
    let on_redis = contenders::redis().and_then(|url| {
        Ok(gateway(
            contenders::node_handler()?,
            &url,
            "the same, as durable as Redis: here it syncs every write",
        ))
    });
    add(table, GATEWAY_REDIS, on_redis);
    add(table, RESTATE, contenders::restate());
    add(table, "node-idempotency on Redis, in the Node handler", contenders::node_idempotency());
    add(table, "Powertools on a local DynamoDB, in a Python handler", contenders::powertools());
    add(table, "the Python handler alone", contenders::python_handler());

    let contenders: Vec<_> =
        peers.iter().map(|(_, peer)| Contender { process: &peer.process, service: None }).collect();
    for contender in &contenders {
        // Programs with a just-in-time compiler get some time to use it.
        Orders.send(contender.process, CONNECTIONS, Duration::from_secs(2));
    }
    let measured = in_turn_all(options, &Orders, CONNECTIONS, &contenders);
    for ((name, peer), series) in peers.iter().zip(&measured) {
        table.note(*name, format!("{}; promises {}", describe(series), peer.promise));
    }
    let rates = |wanted: &str| {
        let index = peers.iter().position(|(name, _)| *name == wanted)?;
        Some(&measured[index].rates)
    };
    if let (Some(ours), Some(theirs)) = (rates(GATEWAY_FILE), rates(RESTATE)) {
        table.at_least("gateway / Restate ingress, durable, 64 connections", ratio(ours, theirs), "", 12.0);
    }
    if let (Some(ours), Some(ceiling)) = (rates(GATEWAY_FILE), rates(NGINX)) {
        table.note("gateway on file / nginx", format!("{:.2}", ratio(ours, ceiling)));
    }
}

const NGINX: &str = "nginx before the Node handler";
const GATEWAY_FILE: &str = "gateway on file: before the Node handler";
const GATEWAY_REDIS: &str = "gateway on Redis before the Node handler";
const RESTATE: &str = "Restate's ingress before the Node handler";

fn gateway(node: Process, ledger: &str, promise: &'static str) -> Peer {
    Peer::before(Process::gateway(&node, ledger, &Settings::default()), node, promise)
}

fn describe(series: &Series) -> String {
    let middle = |values: &Vec<f64>| median(values.clone());
    let (rate, p50, p99) = (middle(&series.rates), middle(&series.medians_ms), middle(&series.p99s_ms));
    format!("{rate:.0}/s, p50 {p50:.1} ms, p99 {p99:.1} ms")
}
