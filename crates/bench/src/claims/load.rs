//! What is sent to the claim API.

use std::time::Duration;

use crate::parts::Part;
use crate::wrk::{Wrk, fresh_name, wrk};

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// Events that were never sent before, so many in a call.
    New { batch: u32 },
    /// One event, the same in all runs.
    Same,
}

/// How much was sent.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) requests: u64,
}

/// What a run saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Calls per second.
    pub(crate) rate: f64,
    pub(crate) median_ms: f64,
    pub(crate) run: Run,
}

/// Sends for so long, over so many connections.
pub(crate) fn load(part: &Part, what: &Load, connections: u32, time: Duration) -> Seen {
    let (name, batch) = match what {
        Load::New { batch } => (fresh_name(), *batch),
        Load::Same => ("same".to_owned(), 0),
    };
    let words = [&*name, &batch.to_string()];
    let url = format!("http://{}/v1/events/check", part.address);
    let Wrk { requests, rate, median_ms } = wrk(include_str!("load.lua"), &words, &url, connections, time);
    Seen { rate, median_ms, run: Run { requests } }
}
