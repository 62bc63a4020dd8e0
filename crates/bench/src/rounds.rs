//! Measuring in turn: what is compared meets the same busy moments.

use std::time::Duration;

use crate::options::Plan;
use crate::processes::Part;
use crate::wrk::Wrk;

/// What is sent to a part.
pub trait Sends {
    /// Sends for so long, over so many connections.
    fn send(&self, part: &Part, connections: u32, time: Duration) -> Wrk;
}

/// One of the parts that are compared, and the service that it asks.
pub struct Contender<'a> {
    pub part: &'a Part,
    pub service: Option<&'a Part>,
}

/// What was seen of a contender, round by round.
#[derive(Clone, Debug, Default)]
pub struct Series {
    pub rates: Vec<f64>,
    pub medians_ms: Vec<f64>,
    /// Processor time for one request, in microseconds.
    pub cpu_us: Vec<f64>,
    /// Its processor time by that of the service behind it.
    pub cpu_of_service: Vec<f64>,
}

/// Loads each contender in each round. The order turns, so that no place in it is an advantage.
pub fn in_turn<const N: usize>(
    plan: &Plan,
    what: &impl Sends,
    connections: u32,
    contenders: [Contender<'_>; N],
) -> [Series; N] {
    let mut seen = std::array::from_fn(|_| Series::default());
    for round in 0..plan.rounds {
        for turn in 0..N {
            let at = (round + turn) % N;
            let Contender { part, service } = &contenders[at];
            let before = (part.cpu(), service.map(Part::cpu));
            let one = what.send(part, connections, plan.time);
            let used = part.cpu() - before.0;
            let series: &mut Series = &mut seen[at];
            series.rates.push(one.rate);
            series.medians_ms.push(one.median_ms);
            series.cpu_us.push(used * 1e6 / one.requests as f64);
            if let (Some(service), Some(before)) = (service, before.1) {
                series.cpu_of_service.push(used / (service.cpu() - before).max(0.01));
            }
        }
    }
    seen
}
