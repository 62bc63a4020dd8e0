//! Load on the claim API.

use std::time::Duration;

use ichido_bench::processes::Process;
use ichido_bench::rounds::Workload;
use ichido_bench::wrk::{Wrk, fresh_name, wrk};

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// New events, this many per call.
    New { batch: u32 },
    /// One event, the same in all runs.
    Same,
}

impl Workload for Load {
    fn send(&self, process: &Process, connections: u32, time: Duration) -> Wrk {
        let (name, batch) = match self {
            Self::New { batch } => (fresh_name(), *batch),
            Self::Same => ("same".to_owned(), 0),
        };
        let arguments = [&*name, &batch.to_string()];
        let url = format!("http://{}/v1/events/check", process.address);
        wrk(include_str!("load.lua"), &arguments, &url, connections, time)
    }
}
