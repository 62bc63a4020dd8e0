//! What is sent to the gateway.

use std::time::Duration;

use crate::processes::Part;
use crate::rounds::Sends;
use crate::wrk::{Wrk, fresh_name, wrk};

/// What is sent.
#[derive(Clone, Debug)]
pub enum Load {
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
pub struct Run {
    pub name: String,
    pub requests: u64,
}

impl Load {
    /// The same as [`Sends::send`], with keys of this name.
    pub fn send_named(&self, name: &str, part: &Part, connections: u32, time: Duration) -> Wrk {
        let (word, known) = match self {
            Self::New => ("new", 0),
            Self::Same => ("same", 0),
            Self::Known(run) => ("known", run.requests),
            Self::Plain => ("plain", 0),
            Self::Get => ("get", 0),
        };
        let words = [word, name, &known.to_string()];
        let url = format!("http://{}/orders", part.address);
        wrk(include_str!("load.lua"), &words, &url, connections, time)
    }
}

impl Sends for Load {
    fn send(&self, part: &Part, connections: u32, time: Duration) -> Wrk {
        let name = match self {
            Self::Known(run) => run.name.clone(),
            Self::Same => "same".to_owned(),
            Self::New | Self::Plain | Self::Get => fresh_name(),
        };
        self.send_named(&name, part, connections, time)
    }
}
