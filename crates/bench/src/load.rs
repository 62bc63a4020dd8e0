//! Load by wrk, and what it saw.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::parts::Part;

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

static RUNS: AtomicU64 = AtomicU64::new(0);

/// Sends for so long, over so many connections. Every answer must be a good one.
pub(crate) fn load(part: &Part, what: &Load, connections: u32, time: Duration) -> Seen {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), include_str!("load.lua")).unwrap();
    let name = match what {
        Load::Known(run) => run.name.clone(),
        Load::Same => "same".to_owned(),
        Load::New | Load::Plain | Load::Get => {
            format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
        }
    };
    let (word, known) = match what {
        Load::New => ("new", 0),
        Load::Same => ("same", 0),
        Load::Known(run) => ("known", run.requests),
        Load::Plain => ("plain", 0),
        Load::Get => ("get", 0),
    };
    let output = Command::new("wrk")
        .args(["--threads", "1", "--connections", &connections.to_string()])
        .args(["--duration", &format!("{}s", time.as_secs()), "--timeout", "10s", "--script"])
        .arg(script.path())
        .arg(format!("http://{}/orders", part.address))
        .args(["--", word, &name, &known.to_string()])
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
        run: Run { name, requests },
    }
}
