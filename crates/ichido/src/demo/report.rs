//! What a scenario reports: a table for people, JSON for scripts, and every promise that it found broken.

use serde::Serialize;

use crate::output;

pub(super) trait ScenarioReport: Serialize {
    /// The name of the scenario in the JSON output.
    const NAME: &'static str;

    /// Prints the figures of the scenario.
    fn print(&self);

    /// The promises that were broken, one sentence each.
    fn broken(&self) -> &[String];

    /// The scenario's row in the summary.
    fn comparison(&self) -> Comparison;
}

/// What happened, and what would have happened without ichido. Every figure is one that the scenario counted.
pub(super) struct Comparison {
    pub(super) scenario: String,
    pub(super) with_ichido: String,
    pub(super) without_ichido: String,
}

/// Prints a table with a figure in each row.
pub(super) fn print_counts<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) {
    let mut table = output::table(&["", "count"]);
    for (what, count) in counts {
        table.add_row([what.to_owned(), count.to_string()]);
    }
    table.print();
}
