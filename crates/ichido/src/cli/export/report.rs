//! Prints what an export did.

use ichido_export::{Action, Report};

use crate::output;

pub(super) fn print(report: &Report) {
    let mut table = output::table(&[
        "period",
        "rows",
        "records",
        "new",
        "replaced",
        "unchanged",
        "kept",
        "withheld",
        "gone",
        "refused",
    ]);
    for period in &report.periods {
        let counts = [
            period.records,
            period.new,
            period.replaced,
            period.unchanged,
            period.kept,
            period.withheld,
            period.gone,
            period.refused,
        ];
        let head = [period.first.clone(), period.rows.to_string()];
        table.add_row(head.into_iter().chain(counts.iter().map(usize::to_string)));
    }
    table.print();
    for change in &report.changes {
        let what = match change.what {
            Action::Sent => "sent again",
            Action::NotSent => "not sent: the receiver keeps the first total",
            Action::Withheld => "withheld: the older total has not arrived yet",
        };
        outln!(
            "{}: sent as {} {} for {} calls, now {} {} for {} calls ({what})",
            change.id,
            change.before.cost,
            change.before.currency,
            change.before.requests,
            change.now.cost,
            change.now.currency,
            change.now.requests
        );
    }
    if let Some(left_out) = &report.left_out {
        outln!("{left_out}");
    }
}
