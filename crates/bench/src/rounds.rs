//! Measuring in turn: what is compared meets the same busy moments.

use crate::load::{Load, load};
pub(crate) use crate::middle::{median, ratio};
use crate::parts::Part;
use crate::plan::Plan;

/// One of the parts that are compared, and the service that it asks.
pub(crate) struct Contender<'a> {
    pub(crate) part: &'a Part,
    pub(crate) service: Option<&'a Part>,
}

/// What was seen of a contender, round by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) rates: Vec<f64>,
    pub(crate) medians_ms: Vec<f64>,
    /// Processor time for one request, in microseconds.
    pub(crate) cpu_us: Vec<f64>,
    /// Its processor time by that of the service behind it.
    pub(crate) cpu_of_service: Vec<f64>,
}

/// Loads each contender in each round. The order turns, so that no place in it is an advantage.
pub(crate) fn in_turn<const N: usize>(
    plan: &Plan,
    what: &Load,
    connections: u32,
    contenders: [Contender<'_>; N],
) -> [Series; N] {
    let mut seen = std::array::from_fn(|_| Series::default());
    for round in 0..plan.rounds {
        for turn in 0..N {
            let at = (round + turn) % N;
            let Contender { part, service } = &contenders[at];
            let before = (part.cpu(), service.map(Part::cpu));
            let one = load(part, what, connections, plan.time);
            let used = part.cpu() - before.0;
            let series: &mut Series = &mut seen[at];
            series.rates.push(one.rate);
            series.medians_ms.push(one.median_ms);
            series.cpu_us.push(used * 1e6 / one.run.requests as f64);
            if let (Some(service), Some(before)) = (service, before.1) {
                series.cpu_of_service.push(used / (service.cpu() - before).max(0.01));
            }
        }
    }
    seen
}
