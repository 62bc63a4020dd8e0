//! What receipts cost, and how fast a record is found in them.

use std::path::Path;
use std::process::Command;

use ichido_bench::command::{ProcessStats, ichido, run, run_with_code};
use ichido_bench::median::{median, ratio};
use ichido_bench::options::{Options, ROLE};
use ichido_bench::processes::scratch;
use ichido_bench::receiver::Receiver;
use ichido_bench::records::lines;
use ichido_bench::table::Table;
use ichido_core::{Clock, SystemClock, Timestamp};
use ichido_delivery::receipt::{Attempt, Disposition, Entry};
use ichido_delivery::store::{self, Store};
use ichido_delivery::time::iso;
use ichido_delivery::{Batch, Record};

const BATCH: u64 = 100;
const DAYS: u64 = 90;
const DAY_MS: u64 = 86_400_000;
/// The throughput of `send` that receipts must leave.
const THROUGHPUT: f64 = 0.95;

/// Sends the same records with receipts and without, in turn, with the sender of `ichido send`. The order alternates, so that
/// neither always follows the other's writes. The ratio is taken within each round.
pub(crate) fn cost(options: &Options, table: &mut Table) {
    let (dir, receiver) = (scratch(), Receiver::start());
    let records = options.many / 5;
    let input = lines(dir.path(), records, 1_000);
    let send = |receipts: &str| {
        receiver.clear();
        let data = scratch();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([ROLE, "sender", &receiver.url()]).arg(&input).arg(data.path()).arg(receipts);
        let took = run(command);
        assert_eq!(receiver.seen().0, records.div_ceil(BATCH));
        assert_eq!(data.path().join("receipts").exists(), receipts == "with");
        took
    };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..options.rounds {
        if round % 2 == 0 {
            without.push(send("without"));
            with.push(send("with"));
        } else {
            with.push(send("with"));
            without.push(send("without"));
        }
    }
    let seconds = |took: &[ProcessStats]| took.iter().map(|took| took.seconds).collect::<Vec<_>>();
    let cpu = |took: &[ProcessStats]| took.iter().map(|took| took.cpu).collect::<Vec<_>>();
    let rate = |took: &[ProcessStats]| format!("{:.0} records/s", records as f64 / median(seconds(took)));
    table.note(format!("{records} records: send without receipts"), rate(&without));
    table.note(format!("{records} records: send with receipts"), rate(&with));
    let of_cpu = ratio(&cpu(&with), &cpu(&without));
    table.note(format!("{records} records: processor time, with / without receipts"), format!("{of_cpu:.2}"));
    let throughput = ratio(&seconds(&without), &seconds(&with));
    table.at_least(
        format!("{records} records: throughput, with / without receipts"),
        throughput,
        "",
        THROUGHPUT,
    );
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
