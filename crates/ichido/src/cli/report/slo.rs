//! `ichido report slo`: the six success criteria of delivery.

use ichido_admin::slo::{Days, Interventions, Report, report};
use ichido_core::{Clock, SystemClock};
use ichido_delivery::slo::{Comparison, Criterion, Name, Unit, Verdict};
use ichido_delivery::store::Layout;
use ichido_serve::Failure;

use crate::output;
use crate::settings::Settings;

pub(super) fn run(settings: &Settings, days: Days, json: bool) -> Result<(), Failure> {
    let layout = Layout::new(&settings.existing_data_dir()?);
    let report = report(&layout, &settings.audit()?, days, SystemClock::default().now());
    match json {
        true => output::json(&report)?,
        false => print(&report),
    }
    match report.missed() {
        0 => Ok(()),
        missed => Err(Failure::internal(format!(
            "{} missed",
            output::count(missed as u64, "criterion was", "criteria were")
        ))),
    }
}

fn print(report: &Report) {
    let Report { from, to, criteria, manual_interventions, notes } = report;
    outln!("from {from} to {to}");
    let mut table = output::table(&["criterion", "result", "measured", "target", "counts"]);
    for criterion in criteria {
        let Criterion { name, value, target, unit, comparison, verdict, counts, .. } = criterion;
        let sign = match comparison {
            Comparison::AtLeast => "≥",
            Comparison::Below => "<",
        };
        table.add_row([
            title(*name).to_owned(),
            verdict_name(*verdict).to_owned(),
            value.map_or_else(|| "-".to_owned(), |value| shown(value, *unit)),
            format!("{sign} {}", shown(*target, *unit)),
            counts.iter().map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(" "),
        ]);
    }
    let Interventions { target, count, verdict, by_action } = manual_interventions;
    table.add_row([
        "manual interventions".to_owned(),
        verdict_name(*verdict).to_owned(),
        count.map_or_else(|| "-".to_owned(), |count| count.to_string()),
        format!("≤ {target}"),
        by_action.iter().map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(" "),
    ]);
    table.print();
    for criterion in criteria.iter().filter(|criterion| criterion.verdict == Verdict::Missed) {
        outln!("{}: batches that count against it", title(criterion.name));
        for batch in &criterion.batches {
            outln!("  {}  {}  {}", batch.at, batch.batch, batch.what);
        }
        if criterion.more_batches > 0 {
            outln!("  and {} more", criterion.more_batches);
        }
    }
    notes.iter().for_each(|note| outln!("note: {note}"));
}

fn title(name: Name) -> &'static str {
    match name {
        Name::SendSuccess => "deliveries that succeed",
        Name::RetrySuccess => "retries that succeed",
        Name::ResendSuccess => "resends that succeed",
        Name::SendLatencyP95 => "delivery time, p95",
        Name::SpoolAgeP95 => "time in the spool, p95",
        Name::FailedShare => "share moved to failed",
    }
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::NoData => "no data",
    }
}

fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => format!("{:.2} %", value * 100.0),
        Unit::Seconds if value >= 3_600.0 => format!("{:.1} h", value / 3_600.0),
        Unit::Seconds => format!("{value:.2} s"),
    }
}
