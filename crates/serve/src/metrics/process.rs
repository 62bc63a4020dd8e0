//! What the kernel knows about this process, under the names that Prometheus uses for every process.

use std::fs;

use metrics::{counter, gauge};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Resource, getrlimit};

/// Reads the figures. One that cannot be read keeps its last value.
pub(super) fn collect() {
    let ticks_per_second = clock_ticks_per_second();
    if let Some((used, started)) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(ticks) {
        counter!("process_cpu_seconds_total").absolute(used / ticks_per_second);
        if let Some(booted) = fs::read_to_string("/proc/stat").ok().as_deref().and_then(boot_time) {
            gauge!("process_start_time_seconds").set((booted + started / ticks_per_second) as f64);
        }
    }
    if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident_bytes) {
        gauge!("process_resident_memory_bytes").set(bytes as f64);
    }
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        // One of them reads the directory.
        gauge!("process_open_fds").set(descriptors.count().saturating_sub(1) as f64);
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        gauge!("process_max_fds").set(limit as f64);
    }
}

/// Processor time, and when the process started after the machine, in clock ticks. The name before them may contain anything.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some((field(14)? + field(15)?, field(22)?))
}

fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn resident_bytes(status: &str) -> Option<u64> {
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kilobytes.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_whatever_the_process_is_called() {
        let stat = "42 (a ) b (c) R 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 123456 1 2 3";
        assert_eq!(ticks(stat), Some((300, 123_456)));
        assert_eq!(ticks("42 (cut"), None);
        assert_eq!(boot_time("cpu  1 2 3\nbtime 1700000000\n"), Some(1_700_000_000));
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2_097_152));
    }
}
