//! The measurements.

use std::process::{Command, Stdio};
use std::time::Duration;

use ichido_bench::load::Load;
use ichido_bench::median::{median, ratio};
use ichido_bench::options::Options;
use ichido_bench::processes::{Process, Settings, get, scratch, time_to_ready};
use ichido_bench::rounds::Workload;
use ichido_bench::table::Table;
use tokio::time::Instant;

use crate::fixtures::{self, ENVIRONMENT};
use crate::viewers::Viewers;

const CLAIMS: usize = 1_000_000;
const FILES: u64 = 100_000;
const PAGES: [(&str, &str); 9] = [
    ("overview with what needs attention", "/"),
    ("claims", "/claims"),
    ("claims in doubt", "/claims?state=in-doubt"),
    ("claims done", "/claims?state=done"),
    ("claims by prefix", "/claims?prefix=order-0012345"),
    ("claims in doubt by prefix", "/claims?state=in-doubt&prefix=order-00123"),
    ("one claim", "/claims/one?key=order-0000100"),
    ("spool", "/delivery"),
    ("failed", "/delivery?dir=failed"),
];
/// How often each page is requested.
const TIMES: usize = 40;

/// Requests each page with a million claims and a hundred thousand files, and reports the slowest response.
pub(crate) fn pages(_: &Options, table: &mut Table) {
    let dir = scratch();
    fixtures::settings(dir.path());
    fixtures::ledger(dir.path(), CLAIMS);
    fixtures::spool(dir.path(), FILES);
    let daemon = Process::daemon(dir.path(), &ENVIRONMENT);
    wait_for_attention(&daemon);
    for (name, path) in PAGES {
        measure(&daemon, name, path, table);
    }
    table.note("memory of the daemon", format!("{:.0} MB", daemon.resident_mb()));
    drop(daemon);
    let again = time_to_ready(dir.path(), &ENVIRONMENT).as_secs_f64() * 1000.0;
    table.at_most("start to ready with all this data", again, " ms", 100.0);
}

/// Waits until the claims in doubt are counted: from then on the overview starts with them.
fn wait_for_attention(daemon: &Process) {
    let expected = format!("Claims in doubt: {},000.", CLAIMS / 100 / 1_000);
    let started = Instant::now();
    while !get(daemon.address, "/").unwrap().text.contains(&expected) {
        assert!(started.elapsed() < Duration::from_secs(60), "the overview does not show {expected}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn measure(daemon: &Process, name: &str, path: &str, table: &mut Table) {
    let took = (0..TIMES).map(|_| {
        let page = get(daemon.address, path).unwrap();
        assert_eq!(page.status, 200, "{path}");
        page.took.as_secs_f64() * 1000.0
    });
    let took: Vec<f64> = took.collect();
    let slowest = took.iter().copied().fold(0.0, f64::max);
    table.note(format!("{name}: median"), format!("{:.1} ms", median(took)));
    table.at_most(format!("{name}: slowest of {TIMES}"), slowest, " ms", 50.0);
}

/// Requests the pages of a history of 30 days and ten million decisions.
pub(crate) fn history(_: &Options, table: &mut Table) {
    let dir = scratch();
    fixtures::settings(dir.path());
    let bytes = fixtures::history(dir.path());
    table.note("size of the history", format!("{} MB", bytes / 1_000_000));
    let daemon = Process::daemon(dir.path(), &ENVIRONMENT);
    // Meanwhile the daemon looks for anomalies for the first time.
    let first = get(daemon.address, "/history").unwrap();
    assert_eq!(first.status, 200);
    let first = first.took.as_secs_f64() * 1000.0;
    table.at_most("history, 7 days: first page after a start", first, " ms", 50.0);
    for (name, path) in [
        ("history, 7 days", "/history"),
        ("history, 30 days", "/history?days=30"),
        ("timeline of a key", "/history/timeline?find=key-100000"),
        ("timeline by request id", "/history/timeline?find=request-100000"),
        ("timeline of a key (API)", "/v1/history/timeline?find=key-100000"),
    ] {
        measure(&daemon, name, path, table);
    }
    table.note("memory of the daemon", format!("{:.0} MB", daemon.resident_mb()));
}

/// Measures the time from process start to a 200 from /readyz.
pub(crate) fn ready(options: &Options, table: &mut Table) {
    let dir = scratch();
    fixtures::settings(dir.path());
    let first = time_to_ready(dir.path(), &ENVIRONMENT).as_secs_f64() * 1000.0;
    table.at_most("start to ready, new directory", first, " ms", 100.0);
    let took = (0..options.rounds * 3).map(|_| time_to_ready(dir.path(), &ENVIRONMENT));
    let took = median(took.map(|took| took.as_secs_f64() * 1000.0).collect());
    table.at_most("start to ready", took, " ms", 100.0);
}

/// Compares a gateway whose console is open with one whose console is not.
pub(crate) fn watched(options: &Options, table: &mut Table) {
    let (dir, alone_dir) = (scratch(), scratch());
    let service = Process::service();
    let file = |dir: &tempfile::TempDir| format!("file:{}", dir.path().join("ledger").display());
    let gateways = [&dir, &alone_dir].map(|dir| Process::gateway(&service, &file(dir), &Settings::default()));
    // Long enough for several updates of the live figures.
    let time = options.time.max(Duration::from_secs(3));
    let (mut watched, mut alone) = (Vec::new(), Vec::new());
    let mut seen = 0;
    for round in 0..options.rounds {
        for turn in 0..2 {
            // The watched gateway alternates from round to round.
            let gateway = &gateways[round % 2];
            if (round + turn) % 2 == 0 {
                let viewers = Viewers::watch(gateway.admin.unwrap());
                watched.push(Load::New.send(gateway, 64, time).rate);
                seen += viewers.end();
            } else {
                alone.push(Load::New.send(gateway, 64, time).rate);
            }
        }
    }
    assert!(seen > 0, "no viewer received anything");
    table.note("pages and updates received meanwhile", seen.to_string());
    table.note("gateway, console closed, 64", format!("{:.0}/s", median(alone.clone())));
    table.at_least("gateway, 8 live pages / console closed", ratio(&watched, &alone), "", 0.95);
}

/// Runs the whole demo, as a newcomer starts it.
pub(crate) fn demo(_: &Options, table: &mut Table) {
    let program = std::env::current_exe().unwrap().with_file_name("ichido");
    let started = Instant::now();
    let ended =
        Command::new(program).arg("demo").env_clear().stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(ended.unwrap().success(), "the demo failed");
    table.at_most("demo", started.elapsed().as_secs_f64(), " s", 60.0);
}
