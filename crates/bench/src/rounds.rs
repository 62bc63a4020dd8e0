//! Measures contenders in turn, so that all see the same busy moments.

use std::time::Duration;

use crate::options::Options;
use crate::processes::Process;
use crate::wrk::Wrk;

/// A workload for a process.
pub trait Workload {
    /// Generates load for this long, over this many connections.
    fn send(&self, process: &Process, connections: u32, time: Duration) -> Wrk;
}

/// A process that is compared with others, and its upstream.
pub struct Contender<'a> {
    pub process: &'a Process,
    pub service: Option<&'a Process>,
}

/// The measurements of a contender, one per round.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Of all rounds together.
    pub requests: u64,
    pub rates: Vec<f64>,
    pub medians_ms: Vec<f64>,
    pub p99s_ms: Vec<f64>,
    /// Processor time per request, in microseconds.
    pub cpu_us: Vec<f64>,
    /// Its processor time divided by that of its upstream.
    pub cpu_of_service: Vec<f64>,
}

/// Loads each contender in each round. The order rotates, so that no position is an advantage.
pub fn in_turn<const N: usize>(
    options: &Options,
    workload: &impl Workload,
    connections: u32,
    contenders: [Contender<'_>; N],
) -> [Series; N] {
    let mut measured = in_turn_all(options, workload, connections, &contenders).into_iter();
    std::array::from_fn(|_| measured.next().unwrap_or_default())
}

/// The same for a number of contenders that is not known beforehand.
pub fn in_turn_all(
    options: &Options,
    workload: &impl Workload,
    connections: u32,
    contenders: &[Contender<'_>],
) -> Vec<Series> {
    let mut series_of = vec![Series::default(); contenders.len()];
    for round in 0..options.rounds {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            let Contender { process, service } = &contenders[index];
            let before = (process.cpu(), service.map(Process::cpu));
            let result = workload.send(process, connections, options.time);
            let used = process.cpu() - before.0;
            let series = &mut series_of[index];
            series.requests += result.requests;
            series.rates.push(result.rate);
            series.medians_ms.push(result.median_ms);
            series.p99s_ms.push(result.p99_ms);
            series.cpu_us.push(used * 1e6 / result.requests as f64);
            if let (Some(service), Some(before)) = (service, before.1) {
                series.cpu_of_service.push(used / (service.cpu() - before).max(0.01));
            }
        }
    }
    series_of
}
