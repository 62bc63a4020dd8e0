//! Load by wrk, and what it saw.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::parts::Part;

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

static RUNS: AtomicU64 = AtomicU64::new(0);

/// Sends for so long, over so many connections. Every answer must be a good one.
pub(crate) fn load(part: &Part, what: &Load, connections: u32, time: Duration) -> Seen {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), include_str!("load.lua")).unwrap();
    let (name, batch) = match what {
        Load::New { batch } => {
            (format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed)), *batch)
        }
        Load::Same => ("same".to_owned(), 0),
    };
    let output = Command::new("wrk")
        .args(["--threads", "1", "--connections", &connections.to_string()])
        .args(["--duration", &format!("{}s", time.as_secs()), "--timeout", "10s", "--script"])
        .arg(script.path())
        .arg(format!("http://{}/v1/events/check", part.address))
        .args(["--", &name, &batch.to_string()])
        .output()
        .expect("wrk");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("SEEN ")).unwrap_or_else(|| panic!("{text}"));
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    let [requests, took_us, errors, median_us] = numbers[..] else { panic!("{line}") };
    assert_eq!(errors, 0, "{what:?} was not always answered well: {text}");
    Seen {
        rate: requests as f64 / (took_us as f64 / 1e6),
        median_ms: median_us as f64 / 1000.0,
        run: Run { requests },
    }
}
