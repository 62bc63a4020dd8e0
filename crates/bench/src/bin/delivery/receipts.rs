//! What receipts cost, and how fast a record is found in them.

use std::path::Path;

use ichido_bench::command::{ichido, run, run_with_code};
use ichido_bench::median::median;
use ichido_bench::options::Options;
use ichido_bench::processes::scratch;
use ichido_bench::receiver::Receiver;
use ichido_bench::records::{lines, record};
use ichido_bench::table::Table;
use ichido_core::{Clock, SystemClock, Timestamp};
use ichido_delivery::receipt::{Attempt, Disposition, Entry};
use ichido_delivery::store::{self, Store};
use ichido_delivery::time::iso;
use ichido_delivery::{Batch, Record};
use tokio::time::Instant;

const BATCH: u64 = 100;
const DAYS: u64 = 90;
const DAY_MS: u64 = 86_400_000;
/// The share of the time of `send` that receipts may take.
const SHARE: f64 = 5.0;

/// Measures the time that `send` takes, and in the same round the time that writing and syncing the receipts of the same
/// batches takes alone: `send` writes them in turn, between requests, so this is what they add to it. The digests of batches
/// are computed by the thread that reads the input, and are reported for themselves.
pub(crate) fn share(options: &Options, table: &mut Table) {
    let (dir, receiver) = (scratch(), Receiver::start());
    let records = options.many / 5;
    let input = lines(dir.path(), records, 1_000);
    let (mut shares, mut writing, mut hashing) = (Vec::new(), Vec::new(), Vec::new());
    let per_batch = |seconds: f64| 1e6 * seconds / records.div_ceil(BATCH) as f64;
    for _ in 0..options.rounds.div_ceil(3) {
        receiver.clear();
        let sent = run(ichido(&["send", input.to_str().unwrap()], dir.path(), &receiver)).seconds;
        assert_eq!(receiver.seen().0, records.div_ceil(BATCH));
        let (hashed, written) = write(dir.path(), records);
        shares.push(100.0 * written / sent);
        writing.push(per_batch(written));
        hashing.push(per_batch(hashed));
    }
    table.note("100 records of 1 kB: digest, on the reading thread", format!("{:.0} µs", median(hashing)));
    table.note(
        "100 records of 1 kB: receipt, with its share of the syncs",
        format!("{:.0} µs", median(writing)),
    );
    table.at_most(
        format!("{records} records: receipts, share of the time of send"),
        median(shares),
        " %",
        SHARE,
    );
}

/// Writes the receipts of batches like those of [`lines`]. Returns how long the digests and the receipts took, in seconds.
fn write(dir: &Path, records: u64) -> (f64, f64) {
    let clock = SystemClock::default();
    let data = dir.join("receipts-only");
    let store = Store::open(&data, store::Options::default(), clock.now()).unwrap();
    let (mut hashing, mut writing) = (0.0, 0.0);
    for first in (0..records).step_by(100) {
        let records = (first..first + BATCH).map(|number| Record::parse(&record(number, 1_000)).unwrap());
        let batch = Batch::new(records.collect());
        let started = Instant::now();
        batch.digest();
        hashing += started.elapsed().as_secs_f64();
        let started = Instant::now();
        write_one(&store, &batch, clock.now());
        writing += started.elapsed().as_secs_f64();
    }
    let started = Instant::now();
    store.receipts().sync().unwrap();
    (hashing, writing + started.elapsed().as_secs_f64())
}

fn write_one(store: &Store, batch: &Batch, now: Timestamp) {
    let attempt = Attempt { at: iso(now), status: Some(200), error: None, latency_ms: 12 };
    let entry = Entry { attempts: &[attempt], ..Entry::new(batch, Disposition::Delivered, now) };
    store.receipts().write(&entry, now).unwrap();
}

/// Traces records in the receipts of 90 days: a new one, an old one, and one that does not exist. The files are in the page
/// cache.
pub(crate) fn trace(options: &Options, table: &mut Table) {
    let (dir, receiver) = (scratch(), Receiver::start());
    let records = options.many * 2;
    fill(dir.path(), records);
    let bytes: u64 = std::fs::read_dir(dir.path().join("receipts"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    let what = format!("{records} records of {DAYS} days, {} MB of receipts", bytes / 1_000_000);
    for (name, id, code) in [
        ("a new record", id(records - 1), 0),
        ("an old record", id(17), 0),
        ("an unknown id", "nobody".to_owned(), 1),
    ] {
        let one = |_| run_with_code(ichido(&["trace", &id, "--json"], dir.path(), &receiver), code);
        let took: Vec<_> = (0..options.rounds).map(one).collect();
        let seconds = median(took.iter().map(|took| took.seconds).collect());
        table.at_most(format!("{what}: trace {name}"), seconds, " s", 1.0);
        let peak = took.iter().map(|took| took.peak_mb).fold(0.0, f64::max);
        table.note(format!("{what}: trace {name}, peak memory"), format!("{peak:.0} MB"));
    }
}

fn id(number: u64) -> String {
    format!("dify-2025-11-openai-gpt-4o-mini-{number:012}")
}

/// Writes the receipts of 90 days, as a sender with a batch of 100 records now and then would.
fn fill(data: &Path, records: u64) {
    let now = SystemClock::default().now();
    let store = Store::open(data, store::Options::default(), now).unwrap();
    let begin = now.0 - (DAYS - 1) * DAY_MS;
    let record = |number: u64| Record::parse(&format!("{{\"source_event_id\":\"{}\"}}", id(number))).unwrap();
    for first in (0..records).step_by(100) {
        let batch = Batch::new((first..first + BATCH).map(record).collect());
        let offset = (DAYS - 1) * DAY_MS / 1_000 * first / records * 1_000;
        write_one(&store, &batch, Timestamp(begin + offset));
    }
    store.receipts().sync().unwrap();
}
