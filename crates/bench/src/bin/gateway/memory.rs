//! The memory of the gateway after many requests.

use ichido_bench::load::{Load, Run};
use ichido_bench::options::Options;
use ichido_bench::processes::{Process, Settings, scratch};
use ichido_bench::rounds::{Contender, in_turn};
use ichido_bench::table::Table;
use ichido_bench::wrk::fresh_name;

use crate::measurements::{file, note};

/// The number of requests that the limit applies to.
const FIVE_MILLION: u64 = 5_000_000;

/// Measures memory after many requests, and replays from disk after a restart.
pub(crate) fn memory(options: &Options, table: &mut Table) {
    let dir = scratch();
    let service = Process::service();
    let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
    table.note("memory before the first request", format!("{:.0} MB", gateway.resident_mb()));
    let (mut sent, mut samples, mut longest) = (0, Vec::new(), None);
    while sent < options.many {
        let name = fresh_name();
        let requests = Load::New.send_named(&name, &gateway, 256, options.time * 10).requests;
        sent += requests;
        samples.push((sent, gateway.resident_mb()));
        longest = Some(Run { name, requests });
    }
    note_memory(&samples, table);
    drop(gateway);
    let gateway = Process::gateway(&service, &file(&dir), &Settings::default());
    let known = Load::Known(longest.unwrap());
    let contenders = [Contender { process: &gateway, service: None }];
    let one = options.once();
    let [seen] = in_turn(&one, &known, 64, contenders);
    note(table, "replay of random keys after a restart, 64", "gateway", &seen);
}

/// After fewer requests than the limit applies to, memory is projected from its growth in the second half, when caches
/// of a fixed size are full.
fn note_memory(samples: &[(u64, f64)], table: &mut Table) {
    let (sent, mb) = samples[samples.len() - 1];
    let what = format!("memory after {sent} keyed requests");
    if sent >= FIVE_MILLION {
        return table.at_most(what, mb, " MB", 220.0);
    }
    table.note(what, format!("{mb:.0} MB"));
    let (half_sent, half_mb) = samples.iter().copied().find(|(so_far, _)| *so_far >= sent / 2).unwrap();
    let per_request = if sent > half_sent { (mb - half_mb) / (sent - half_sent) as f64 } else { 0.0 };
    let projected = mb + per_request * (FIVE_MILLION - sent) as f64;
    table.at_most(
        format!("memory after {FIVE_MILLION}, projected from {half_sent} on"),
        projected,
        " MB",
        220.0,
    );
}
