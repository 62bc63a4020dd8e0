//! The measurements.

use std::process::Command;

use ichido_bench::median::{median, ratio};
use ichido_bench::options::{Options, ROLE};
use ichido_bench::table::Table;

const IDS: u32 = 2_000_000;
const NODE_IDS: u32 = 400_000;
const ROWS: u32 = 500_000;

/// What a role printed.
struct RoleOutput {
    seconds: f64,
    peak_mb: f64,
    computed: Vec<String>,
}

/// What a role printed, one entry per round.
#[derive(Default)]
struct Series {
    seconds: Vec<f64>,
    peaks_mb: Vec<f64>,
    computed: Vec<String>,
}

impl Series {
    fn add(&mut self, output: RoleOutput) {
        self.seconds.push(output.seconds);
        self.peaks_mb.push(output.peak_mb);
        self.computed = output.computed;
    }

    fn rates(&self, count: u32) -> Vec<f64> {
        self.seconds.iter().map(|seconds| f64::from(count) / seconds).collect()
    }

    fn seconds(&self) -> f64 {
        median(self.seconds.clone())
    }

    fn peak_mb(&self) -> f64 {
        median(self.peaks_mb.clone())
    }
}

/// Runs this program in another role.
fn ours(arguments: &[&str]) -> RoleOutput {
    run_role(Command::new(std::env::current_exe().unwrap()).arg(ROLE).args(arguments))
}

/// Runs the Node implementation, if Node is installed.
fn node(arguments: &[&str]) -> Option<RoleOutput> {
    let program = std::env::var_os("ICHIDO_BENCH_NODE").filter(|program| !program.is_empty())?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin/usage/reference.mjs");
    Some(run_role(Command::new(program).arg(script).args(arguments)))
}

fn run_role(command: &mut Command) -> RoleOutput {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.split_whitespace();
    let mut number = || words.next().unwrap().parse().unwrap();
    let (seconds, peak_mb) = (number(), number());
    RoleOutput { seconds, peak_mb, computed: words.map(str::to_owned).collect() }
}

/// Generates ids on one core.
pub(crate) fn ids(options: &Options, table: &mut Table) {
    let (mut sorted, mut v2, mut naive, mut theirs) =
        (Series::default(), Series::default(), Series::default(), Series::default());
    let count = IDS.to_string();
    for _ in 0..options.rounds {
        sorted.add(ours(&["ids", "sorted", &count]));
        v2.add(ours(&["ids", "v2", &count]));
        naive.add(ours(&["naive-ids", &count]));
        if let Some(output) = node(&["ids", &NODE_IDS.to_string()]) {
            theirs.add(output);
        }
    }
    assert_eq!(sorted.computed, naive.computed, "both implementations give the same ids");
    let rates = sorted.rates(IDS);
    table.at_least("ids: sorted, one core", median(rates.clone()), "/s", 2_000_000.0);
    table.note("ids: v2, one core", format!("{:.0}/s", median(v2.rates(IDS))));
    table.note("ids: naive implementation", format!("{:.0}/s", median(naive.rates(IDS))));
    if !theirs.seconds.is_empty() {
        assert_eq!(
            ours(&["ids", "sorted", &NODE_IDS.to_string()]).computed,
            theirs.computed,
            "the same ids as Node's"
        );
        let theirs = theirs.rates(NODE_IDS);
        table.note("ids: Node", format!("{:.0}/s", median(theirs.clone())));
        table.note("ids: sorted / Node", format!("{:.1}×", ratio(&rates, &theirs)));
    }
}

/// Aggregates half a million rows.
pub(crate) fn aggregate(options: &Options, table: &mut Table) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("usage.jsonl").display().to_string();
    let (rows, more) = (ROWS.to_string(), (ROWS * 10).to_string());
    ours(&["write-lines", &rows, &file]);
    let [mut few, mut many, mut tenfold, mut lines, mut theirs] = std::array::from_fn(|_| Series::default());
    for _ in 0..options.rounds {
        few.add(ours(&["aggregate", &rows, "few"]));
        if let Some(output) = node(&["aggregate", &rows]) {
            theirs.add(output);
        }
        many.add(ours(&["aggregate", &rows, "many"]));
        tenfold.add(ours(&["aggregate", &more, "few"]));
        lines.add(ours(&["lines", &file]));
    }
    assert_eq!(few.computed, lines.computed, "the file contains the same rows");
    table.at_most("500,000 rows", few.seconds(), " s", 0.2);
    table.at_most("500,000 rows: peak memory", few.peak_mb(), " MB", 60.0);
    table.note("500,000 rows: totals", few.computed[0].clone());
    table.note(
        "5,000,000 rows, as many totals",
        format!("{:.2} s, {:.1} MB", tenfold.seconds(), tenfold.peak_mb()),
    );
    table.note(
        format!("500,000 rows, {} totals", many.computed[0]),
        format!("{:.2} s, {:.1} MB", many.seconds(), many.peak_mb()),
    );
    table
        .note("500,000 rows from JSON Lines", format!("{:.2} s, {:.1} MB", lines.seconds(), lines.peak_mb()));
    if !theirs.seconds.is_empty() {
        assert_eq!(few.computed[..2], theirs.computed[..2], "the same totals and tokens as Node's");
        table.note("500,000 rows: Node", format!("{:.2} s, {:.1} MB", theirs.seconds(), theirs.peak_mb()));
        table.note("500,000 rows: Node / ours", format!("{:.1}×", ratio(&theirs.seconds, &few.seconds)));
        let (exact, floats) = (&few.computed[2], &theirs.computed[2]);
        table.note("500,000 rows: cost, exact and in floats", format!("{exact}, {floats}"));
    }
}
