//! The measurements.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ichido_bench::command::{ProcessStats, ichido, run, until_first};
use ichido_bench::median::{median, ratio};
use ichido_bench::options::{Options, ROLE};
use ichido_bench::processes::{scratch, sync_ms};
use ichido_bench::receiver::Receiver;
use ichido_bench::records::{fill, lines};
use ichido_bench::table::Table;

/// The default of `SEND_CONCURRENCY`.
const CONCURRENCY: &str = "4";
/// How far away the receiver of [`far`] is.
const FAR: Duration = Duration::from_millis(50);
const FILES: u64 = 1_000;
const MANY_FILES: u64 = 100_000;
/// The most memory that a command may need.
const MEMORY_MB: f64 = 50.0;

fn seconds(took: &[ProcessStats]) -> f64 {
    median(took.iter().map(|took| took.seconds).collect())
}

/// Adds the elapsed time with its target, and the processor time, which does not depend on other load.
fn timed(table: &mut Table, what: &str, took: &[ProcessStats], target: f64) {
    table.at_most(what, seconds(took), " s", target);
    let cpu = median(took.iter().map(|took| took.cpu).collect());
    table.note(format!("{what}: processor time"), format!("{cpu:.2} s"));
}

fn peak(took: &[ProcessStats]) -> f64 {
    took.iter().map(|took| took.peak_mb).fold(0.0, f64::max)
}

/// Reads and checks a thousand files of a hundred records each, 55 MB.
pub(crate) fn scan(options: &Options, table: &mut Table) {
    let (dir, receiver) = (scratch(), Receiver::start());
    fill(dir.path(), FILES, 100);
    let look = |arguments: &[&str]| -> Vec<ProcessStats> {
        (0..options.rounds).map(|_| run(ichido(arguments, dir.path(), &receiver))).collect()
    };
    let fsck = look(&["spool", "fsck"]);
    timed(table, "1,000 files, 55 MB: spool fsck", &fsck, 0.25);
    table.at_most("1,000 files, 55 MB: peak memory", peak(&fsck), " MB", MEMORY_MB);
    let list = look(&["spool", "list", "--limit", "1000"]);
    timed(table, "1,000 files, 55 MB: spool list, all of them", &list, 0.25);
    table.at_most("1,000 files, 55 MB: peak memory", peak(&list), " MB", MEMORY_MB);
}

/// Sends a thousand files.
pub(crate) fn resend(options: &Options, table: &mut Table) {
    let receiver = Receiver::start();
    let (mut took, mut bytes) = (Vec::new(), 0);
    for _ in 0..options.rounds {
        let dir = scratch();
        fill(dir.path(), FILES, 100);
        receiver.clear();
        took.push(run(ichido(&["spool", "resend"], dir.path(), &receiver)));
        let seen = receiver.seen();
        assert_eq!(seen.0, FILES);
        bytes = seen.1;
    }
    let what = format!("1,000 files, {} MB", bytes / 1_000_000);
    timed(table, &format!("{what}: spool resend"), &took, 1.0);
    table.at_most(format!("{what}: peak memory"), peak(&took), " MB", MEMORY_MB);
}

/// Lists a hundred thousand files, and measures the time to the first request.
pub(crate) fn many(options: &Options, table: &mut Table) {
    let (dir, receiver) = (scratch(), Receiver::start());
    fill(dir.path(), MANY_FILES, 1);
    let look = |arguments: &[&str]| -> Vec<ProcessStats> {
        (0..options.rounds).map(|_| run(ichido(arguments, dir.path(), &receiver))).collect()
    };
    let list = look(&["spool", "list"]);
    timed(table, "100,000 files: spool list", &list, 1.0);
    table.at_most("100,000 files: peak memory", peak(&list), " MB", MEMORY_MB);
    let all = look(&["spool", "list", "--limit", "100000", "--json"]);
    timed(table, "100,000 files: spool list, all of them", &all, 1.0);
    table.note("100,000 files: peak memory", format!("{:.0} MB", peak(&all)));
    let first = |_| until_first(ichido(&["spool", "resend"], dir.path(), &receiver), &receiver);
    let first = median((0..options.rounds).map(first).collect());
    table.at_most("100,000 files: start to first request, resend", first, " s", 1.0);
}

/// Sends records from JSON Lines, with a copy on disk before each request, compared with a sender that stores
/// nothing.
pub(crate) fn send(options: &Options, table: &mut Table) {
    let (dir, receiver) = (scratch(), Receiver::start());
    let records = options.many / 5;
    let input = lines(dir.path(), records, 1_000);
    let input = input.to_str().unwrap();
    let durable = |data: &Path| {
        receiver.clear();
        let took = run(ichido(&["send", input], data, &receiver));
        assert_eq!(receiver.seen().0, records.div_ceil(100));
        took
    };
    let bare = |concurrency: &str| {
        receiver.clear();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([ROLE, "bare", &receiver.url(), input, concurrency]);
        let took = run(command);
        assert_eq!(receiver.seen().0, records.div_ceil(100));
        took
    };
    let (mut ours, mut theirs, mut in_memory) = (Vec::new(), Vec::new(), Vec::new());
    let mut theirs_in_turn = Vec::new();
    let memory = tempfile::tempdir_in("/dev/shm").ok();
    // A full round takes long, so there are fewer.
    for _ in 0..options.rounds.div_ceil(3) {
        theirs.push(bare(CONCURRENCY));
        theirs_in_turn.push(bare("1"));
        ours.push(durable(dir.path()));
        in_memory.extend(memory.as_ref().map(|memory| durable(memory.path())));
    }
    let what = format!("{records} records, {} MB", records / 1_000);
    let rate = |took: &[ProcessStats]| format!("{:.0} records/s", records as f64 / seconds(took));
    table.note(format!("{what}: send"), rate(&ours));
    table.at_most(format!("{what}: peak memory"), peak(&ours), " MB", MEMORY_MB);
    table.note(format!("{what}: baseline without copies"), rate(&theirs));
    let times = |took: &[ProcessStats]| took.iter().map(|took| took.seconds).collect::<Vec<_>>();
    let cost = ratio(&times(&ours), &times(&theirs));
    table.at_most(format!("{what}: time, send / baseline"), cost, "", 1.8);
    let cost = ratio(&times(&ours), &times(&theirs_in_turn));
    table.note(format!("{what}: the same, baseline with one request at a time"), format!("{cost:.2}"));
    if !in_memory.is_empty() {
        let cost = ratio(&times(&in_memory), &times(&theirs));
        table.note(format!("{what}: the same, DATA_DIR in memory"), format!("{cost:.2}"));
    }
    table.note("write and fdatasync, median", format!("{:.2} ms", sync_ms(dir.path())));
}

/// Sends batches to a receiver that is far away, one at a time and 16 at a time.
pub(crate) fn far(options: &Options, table: &mut Table) {
    let receiver = Receiver::with_delay(FAR);
    // The run with 16 at a time sends 16 times as many, so both take about the same time.
    let batches = options.many / 50_000;
    let batches_per_second = |concurrency: &str, batches: u64| {
        let dir = scratch();
        let input = lines(dir.path(), batches * 100, 100);
        receiver.clear();
        let mut command = ichido(&["send", input.to_str().unwrap()], dir.path(), &receiver);
        command.env("SEND_CONCURRENCY", concurrency);
        let took = run(command);
        assert_eq!(receiver.seen().0, batches);
        batches as f64 / took.seconds
    };
    let (mut in_turn, mut overlapping) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds.div_ceil(3) {
        in_turn.push(batches_per_second("1", batches));
        overlapping.push(batches_per_second("16", batches * 16));
    }
    let gain = ratio(&overlapping, &in_turn);
    table.note("receiver 50 ms away, one request at a time", format!("{:.1} batches/s", median(in_turn)));
    table.note("receiver 50 ms away, 16 requests at a time", format!("{:.0} batches/s", median(overlapping)));
    table.at_least("receiver 50 ms away: 16 at a time / one at a time", gain, "", 10.0);
}
