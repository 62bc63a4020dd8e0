//! Load on the gateway.

use std::time::Duration;

use crate::processes::Process;
use crate::rounds::Workload;
use crate::wrk::{Wrk, fresh_name, wrk};

/// What is sent.
#[derive(Clone, Debug)]
pub enum Load {
    /// POST with a new key each time.
    New,
    /// POST with one key, the same in all runs.
    Same,
    /// POST with one of the keys of an earlier run.
    Known(Run),
    /// POST without a key.
    Plain,
    /// GET.
    Get,
    /// POST with a new key each time, from this many tenants.
    Tenants(u64),
}

/// The keys of a run: its name, and how many were sent.
#[derive(Clone, Debug)]
pub struct Run {
    pub name: String,
    pub requests: u64,
}

impl Load {
    /// Like [`Workload::send`], with keys of this name.
    pub fn send_named(&self, name: &str, process: &Process, connections: u32, time: Duration) -> Wrk {
        self.send_to("/orders", name, process, connections, time)
    }

    /// The same, to another path.
    pub fn send_to(
        &self,
        path: &str,
        name: &str,
        process: &Process,
        connections: u32,
        time: Duration,
    ) -> Wrk {
        let (kind, number) = match self {
            Self::New => ("new", 0),
            Self::Same => ("same", 0),
            Self::Known(run) => ("known", run.requests),
            Self::Plain => ("plain", 0),
            Self::Get => ("get", 0),
            Self::Tenants(tenants) => ("tenants", *tenants),
        };
        let arguments = [kind, name, &number.to_string()];
        let url = format!("http://{}{path}", process.address);
        wrk(include_str!("load.lua"), &arguments, &url, connections, time)
    }
}

impl Workload for Load {
    fn send(&self, process: &Process, connections: u32, time: Duration) -> Wrk {
        let name = match self {
            Self::Known(run) => run.name.clone(),
            Self::Same => "same".to_owned(),
            Self::New | Self::Plain | Self::Get | Self::Tenants(_) => fresh_name(),
        };
        self.send_named(&name, process, connections, time)
    }
}
