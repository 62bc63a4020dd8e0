//! Sends a large input through a pipe to a child process, which reports its peak memory.

use std::io::{BufWriter, Read, Write};
use std::process::{Command, Stdio};

use ichido_delivery::input::{Input, Item};

/// Set in the child process.
const CHILD: &str = "ICHIDO_TEST_READS_STDIN";
const TOTAL_BYTES: usize = 200 * 1024 * 1024;
/// The most resident memory of the child process.
const RESIDENT_KB_MAX: u64 = 40 * 1024;

/// The child process: reads standard input and reports what it found.
#[test]
#[allow(clippy::print_stdout, reason = "the parent reads it")]
fn child_reads_standard_input() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (mut records, mut invalid, mut bytes) = (0_u64, 0_u64, 0_usize);
    for item in Input::stdin().unwrap() {
        match item.unwrap() {
            Item::Record(record) => {
                records += 1;
                bytes += record.raw.get().len();
            }
            Item::Invalid(_) => invalid += 1,
        }
    }
    println!("\nread {records} {invalid} {bytes} {}", peak_kb());
}

/// The peak memory of this process.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

struct Report {
    records: u64,
    invalid: u64,
    bytes: u64,
    peak_kb: u64,
}

fn through_a_pipe(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Report {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "input::child_reads_standard_input", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = BufWriter::with_capacity(1 << 16, child.stdin.take().unwrap());
    write(&mut pipe).unwrap();
    pipe.flush().unwrap();
    drop(pipe);
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "{output}");
    let line =
        output.lines().find_map(|line| line.strip_prefix("read ")).expect("the child reports what it read");
    let figures: Vec<u64> = line.split(' ').map(|figure| figure.parse().unwrap()).collect();
    Report { records: figures[0], invalid: figures[1], bytes: figures[2], peak_kb: figures[3] }
}

/// Writes records of about 550 bytes between `start` and `end`.
fn many(out: &mut dyn Write, start: &str, between: &str, end: &str) -> std::io::Result<()> {
    let padding = "m".repeat(450);
    let (mut written, mut number) = (0, 0_u64);
    out.write_all(start.as_bytes())?;
    while written < TOTAL_BYTES {
        let before = if number == 0 { "" } else { between };
        let record = format!(
            "{before}{{\"date\":\"2025-01-18\",\"n\":{number},\"model\":\"{padding}\",\"x\":[1,{{}}]}}"
        );
        out.write_all(record.as_bytes())?;
        written += record.len();
        number += 1;
    }
    out.write_all(end.as_bytes())
}

#[test]
fn large_input_needs_little_memory_in_every_format() {
    for (start, between, end) in [("", "\n", "\n"), ("[", ",", "]"), ("{\"records\":[\n", ",\n", "\n]}\n")] {
        let report = through_a_pipe(|out| many(out, start, between, end));
        assert_eq!(report.invalid, 0);
        assert!(
            report.records > 390_000 && report.bytes > (TOTAL_BYTES - 1_000_000) as u64,
            "{start}: {}",
            report.records
        );
        assert!(report.peak_kb < RESIDENT_KB_MAX, "{start}: {} kB", report.peak_kb);
    }
}

#[test]
fn endless_line_needs_little_memory() {
    let report = through_a_pipe(|out| {
        out.write_all(b"{\"a\":1}\n{\"long\":\"")?;
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..200 {
            out.write_all(&piece)?;
        }
        out.write_all(b"\"}\n{\"z\":1}\n")
    });
    assert_eq!((report.records, report.invalid), (2, 1));
    assert!(report.peak_kb < RESIDENT_KB_MAX, "{} kB", report.peak_kb);
}
