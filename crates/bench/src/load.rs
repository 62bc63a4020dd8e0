//! What is sent to the gateway.

use std::time::Duration;

use crate::parts::Part;
use crate::wrk::{Wrk, fresh_name, wrk};

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// POST with a key that was never sent before.
    New,
    /// POST with one key, the same in all runs.
    Same,
    /// POST with one of the keys that an earlier run sent.
    Known(Run),
    /// POST without a key.
    Plain,
    /// GET.
    Get,
}

/// The keys of a run: its name, and how many it sent.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    name: String,
    pub(crate) requests: u64,
}

/// What a run saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Requests per second.
    pub(crate) rate: f64,
    pub(crate) median_ms: f64,
    pub(crate) run: Run,
}

/// Sends for so long, over so many connections.
pub(crate) fn load(part: &Part, what: &Load, connections: u32, time: Duration) -> Seen {
    let name = match what {
        Load::Known(run) => run.name.clone(),
        Load::Same => "same".to_owned(),
        Load::New | Load::Plain | Load::Get => fresh_name(),
    };
    let (word, known) = match what {
        Load::New => ("new", 0),
        Load::Same => ("same", 0),
        Load::Known(run) => ("known", run.requests),
        Load::Plain => ("plain", 0),
        Load::Get => ("get", 0),
    };
    let words = [word, &name, &known.to_string()];
    let url = format!("http://{}/orders", part.address);
    let Wrk { requests, rate, median_ms } = wrk(include_str!("load.lua"), &words, &url, connections, time);
    Seen { rate, median_ms, run: Run { name, requests } }
}
