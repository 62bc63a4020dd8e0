//! Runs the `ichido` command and measures it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use crate::processes::processor_time;
use crate::receiver::Receiver;

/// What a process consumed, from start to exit.
#[derive(Clone, Copy, Debug)]
pub struct ProcessStats {
    pub seconds: f64,
    /// Processor time in seconds: the more stable figure on a busy machine.
    pub cpu: f64,
    /// The peak memory.
    pub peak_mb: f64,
}

/// `ichido` with these arguments, a data directory and a receiver.
pub fn ichido(arguments: &[&str], data: &Path, receiver: &Receiver) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap().with_file_name("ichido"));
    command
        .args(arguments)
        .env_clear()
        .env("DATA_DIR", data)
        .env("EXTERNAL_API_ENDPOINT", receiver.url())
        .env("EXTERNAL_API_TOKEN", "bench-token")
        .env("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "true");
    command
}

/// Runs a command until it exits, which must be with success.
pub fn run(command: Command) -> ProcessStats {
    run_with_code(command, 0)
}

/// Runs a command until it exits, which must be with this code.
pub fn run_with_code(mut command: Command, code: i32) -> ProcessStats {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    until_exit(command, code)
}

/// Runs a command with its own input and output.
pub fn watch(command: Command) -> ProcessStats {
    until_exit(command, 0)
}

fn until_exit(mut command: Command, code: i32) -> ProcessStats {
    let started = Instant::now();
    let mut child = command.spawn().unwrap();
    let (mut peak_mb, mut cpu) = (0.0, 0.0);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(status.code(), Some(code), "{command:?}");
            return ProcessStats { seconds: started.elapsed().as_secs_f64(), cpu, peak_mb };
        }
        // Both only grow, so the last sample is at most a moment too early.
        peak_mb = peak(&child).unwrap_or(peak_mb);
        cpu = processor_time(child.id()).unwrap_or(cpu);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the time from the start of a command to its first request, and stops the command.
pub fn until_first(mut command: Command, receiver: &Receiver) -> f64 {
    receiver.clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Instant::now();
    let mut child = command.spawn().unwrap();
    let first = loop {
        if let Some(first) = receiver.first() {
            break first;
        }
        assert!(child.try_wait().unwrap().is_none(), "{command:?} sent nothing");
        std::thread::sleep(Duration::from_millis(1));
    };
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    child.wait().unwrap();
    (first - started).as_secs_f64()
}

/// `VmHWM`
fn peak(child: &Child) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.trim().trim_end_matches(" kB").parse::<f64>().ok()? / 1024.0)
}
