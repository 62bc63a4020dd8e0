//! `ichido reconcile`: compares the source, what was sent, and what the receiver counted.

use ichido_delivery::store::Layout;

use crate::args::ReconcileArgs;
use crate::output;
use crate::settings::Settings;
use ichido_core::{Clock, SystemClock};
use ichido_export::{
    Difference, Export, Findings, Others, Receiver, Reconciled, RequestedDays, State, reconcile,
    reconcile_jsonl,
};
use ichido_serve::Failure;

pub(super) async fn run(args: &ReconcileArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.common.flags())?;
    let dify = settings.export()?;
    let of_delivery = settings.delivery()?;
    let receiver = Receiver::new(&of_delivery)?;
    let (state, layout) = (State::new(&of_delivery.data_dir), Layout::new(&of_delivery.data_dir));
    let requested =
        RequestedDays { from: args.days.from.clone(), to: args.days.to.clone(), ..RequestedDays::default() };
    let now = SystemClock::default().now();
    let days = requested.days(&dify.calendar, now)?;
    let findings = match args.jsonl.is_empty() {
        true => {
            let mut export = Export::new(dify, &of_delivery.data_dir)?;
            reconcile(&mut export, days, &receiver, &layout).await?
        }
        false => {
            let others = Others { state: &state, receiver: &receiver, layout: &layout };
            reconcile_jsonl(&args.jsonl, &dify, days, others).await?
        }
    };
    match args.common.json {
        true => output::json(&findings)?,
        false => print(&findings),
    }
    let mut reconciled = Reconciled::read(&state)?.unwrap_or_default();
    reconciled.add(&findings, &output::time(now));
    reconciled.write(&state)?;
    match findings.differences.len() {
        0 => Ok(()),
        found => Err(Failure::internal(output::count(found as u64, "difference found", "differences found"))),
    }
}

fn print(findings: &Findings) {
    let mut table = output::table(&["period", "", "records", "calls", "tokens", "cost", "differences"]);
    for compared in &findings.periods {
        for (name, side) in
            [("source", &compared.source), ("sent", &compared.sent), ("counted", &compared.counted)]
        {
            let is_first = name == "source";
            let is_unknown = name == "counted" && !findings.receiver_answers;
            let number = |number: u64| if is_unknown { "?".to_owned() } else { number.to_string() };
            let cost: Vec<String> =
                side.cost.iter().map(|(currency, cost)| format!("{cost} {currency}")).collect();
            table.add_row([
                if is_first { compared.period.clone() } else { String::new() },
                name.to_owned(),
                number(side.records),
                number(side.requests),
                number(side.tokens),
                cost.join(", "),
                if is_first { compared.differences.to_string() } else { String::new() },
            ]);
        }
    }
    table.print();
    for difference in &findings.differences {
        let Difference { id, what, source, sent, counted, .. } = difference;
        let sides = [("source", source), ("sent", sent), ("counted", counted)];
        let totals: Vec<String> = sides
            .into_iter()
            .filter_map(|(name, sums)| {
                let sums = sums.as_ref()?;
                let tokens = sums.input_tokens + sums.output_tokens;
                Some(format!(
                    "{name} {} calls, {tokens} tokens, {} {}",
                    sums.requests, sums.cost, sums.currency
                ))
            })
            .collect();
        outln!("{id}: {} ({})", what.describe(), totals.join("; "));
    }
    if !findings.receiver_answers {
        outln!(
            "the receiver does not report what it counted; only the source and what was sent were compared"
        );
    }
}
