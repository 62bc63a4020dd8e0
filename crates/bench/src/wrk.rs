//! Generates load with wrk.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The result of a run of wrk.
#[derive(Clone, Debug)]
pub struct Wrk {
    pub requests: u64,
    /// Requests per second.
    pub rate: f64,
    pub median_ms: f64,
    pub p99_ms: f64,
}

/// A name for keys that is unique to a run.
pub fn fresh_name() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

/// Runs a script for this long, over this many connections. Every response must be a success.
pub fn wrk(script: &str, arguments: &[&str], url: &str, connections: u32, time: Duration) -> Wrk {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [script, include_str!("summary.lua")].concat()).unwrap();
    let output = Command::new("wrk")
        .args(["--threads", "1", "--connections", &connections.to_string()])
        .args(["--duration", &format!("{}s", time.as_secs()), "--timeout", "10s", "--script"])
        .arg(file.path())
        .args([url, "--"])
        .args(arguments)
        .output()
        .expect("wrk");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("SEEN ")).unwrap_or_else(|| panic!("{text}"));
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
    let [requests, took_us, errors, median_us, p99_us] = numbers[..] else { panic!("{line}") };
    assert_eq!(errors, 0, "{arguments:?}: some requests failed: {text}");
    Wrk {
        requests,
        rate: requests as f64 / (took_us as f64 / 1e6),
        median_ms: median_us as f64 / 1000.0,
        p99_ms: p99_us as f64 / 1000.0,
    }
}
