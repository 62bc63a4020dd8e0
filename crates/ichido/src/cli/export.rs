//! `ichido export`: delivers usage from its source to the receiver.

mod report;

use std::collections::HashSet;

use ichido_delivery::counters::Counters;
use ichido_usage::Record;
use serde::Serialize;

use crate::args::{ExportArgs, ExportDifyArgs, ExportJsonlArgs, ExportSource};
use crate::settings::Settings;
use crate::{delivery, output};
use ichido_export::{
    Collected, Export, Outgoing, RejectedRow, Report, RequestedDays, SentRecords, State, check_delivery,
    jsonl, plan,
};
use ichido_serve::shutdown;
use ichido_serve::{ExitClass, Failure};

pub(super) async fn run(args: &ExportArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.flags())?;
    match &args.source {
        ExportSource::Dify(dify) => run_dify(settings, dify, args.common.json).await,
        ExportSource::Jsonl(jsonl) => run_jsonl(settings, jsonl, args.common.json).await,
    }
}

async fn run_dify(settings: Settings, args: &ExportDifyArgs, json: bool) -> Result<(), Failure> {
    let dify = settings.export()?;
    if args.include_open && !dify.profile.upserts() {
        return Err(Failure::usage(
            "--include-open cannot be used with the profile first_wins: the receiver would keep the total of an unfinished day",
        ));
    }
    let requested = RequestedDays {
        from: args.days.from.clone(),
        to: args.days.to.clone(),
        yesterday: args.yesterday,
        month: args.month.clone(),
    };
    let mut export = Export::new(dify, &settings.raw_delivery()?.data_dir())?;
    export.include_open = args.include_open;
    let days = export.days(&requested)?;
    if args.sums.dry_run {
        let mut preview = Preview::default();
        let profile = export.settings.profile;
        let report =
            export.preview(days, |_, collected, sent| preview.add(collected, &sent, profile)).await?;
        return preview.print(report.left_out, json);
    }
    let of_delivery = settings.delivery()?;
    check_delivery(&of_delivery, &export.settings).map_err(|invalid| settings.failure(&invalid))?;
    let stop = shutdown::on_signals()?;
    let mut sender = delivery::sender(&settings, &of_delivery, stop.clone())?;
    let mut report = Report::default();
    let ended = export.run_into(&mut report, days, &mut sender, of_delivery.batch_size, &stop).await;
    let counters = delivery::finish(&mut sender).await;
    finish(&sender, &report, &counters, ended, json)
}

/// Prints the result and returns how the command ends.
fn finish(
    sender: &ichido_delivery::sender::Sender,
    report: &Report,
    counters: &Counters,
    ended: Result<(), Failure>,
    json: bool,
) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Whole<'a> {
        #[serde(flatten)]
        export: &'a Report,
        delivery: &'a Counters,
    }
    report.log();
    match json {
        true => output::json(&Whole { export: report, delivery: counters })?,
        false => {
            report::print(report);
            delivery::report(counters, false)?;
        }
    }
    delivery::verdict(sender, counters, ended.err())?;
    match report.withheld() {
        0 => Ok(()),
        withheld => Err(Failure::new(
            ExitClass::Undelivered,
            format!(
                "{withheld} new totals are withheld until older ones have arrived: run the export again later"
            ),
        )),
    }
}

/// What an export would send.
#[derive(Default, Serialize)]
struct Preview {
    records: Vec<PreviewedRecord>,
    refused: Vec<RejectedRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
}

#[derive(Serialize)]
struct PreviewedRecord {
    what: &'static str,
    #[serde(flatten)]
    record: Record,
}

impl Preview {
    fn add(&mut self, collected: Collected, sent: &SentRecords, profile: ichido_usage::Profile) {
        let all = collected.records.clone();
        let plan = plan(collected.records, sent, profile, &HashSet::new());
        let [new, replaced]: [HashSet<&str>; 2] =
            [&plan.new, &plan.replaced].map(|records| records.iter().map(Outgoing::id).collect());
        let changed: HashSet<&String> = plan.changes.iter().map(|change| &change.id).collect();
        for record in all {
            let id = &record.metadata.source_event_id;
            let what = match () {
                () if new.contains(id.as_str()) => "new",
                () if replaced.contains(id.as_str()) => "replaced",
                () if changed.contains(id) => "kept",
                () => "unchanged",
            };
            self.records.push(PreviewedRecord { what, record });
        }
        self.refused.extend(collected.refused);
    }

    fn print(mut self, left_out: Option<String>, json: bool) -> Result<(), Failure> {
        self.left_out = left_out;
        if json {
            return output::json(&self);
        }
        let mut table = output::table(&[
            "day", "provider", "model", "app", "user", "calls", "input", "output", "cost", "", "what",
        ]);
        for PreviewedRecord { what, record } in &self.records {
            let metadata = &record.metadata;
            let app = if metadata.source_app_name.is_empty() {
                &metadata.source_app_id
            } else {
                &metadata.source_app_name
            };
            table.add_row([
                record.usage_date.to_string(),
                record.provider.clone(),
                record.model.clone(),
                app.clone(),
                metadata.source_user_id.clone().unwrap_or_default(),
                record.request_count.to_string(),
                record.input_tokens.to_string(),
                record.output_tokens.to_string(),
                record.cost_actual.to_string(),
                record.currency.clone(),
                (*what).to_owned(),
            ]);
        }
        table.print();
        let records = output::count(self.records.len() as u64, "record", "records");
        let refused = output::count(self.refused.len() as u64, "row", "rows");
        outln!("{records}; {refused} cannot be exported");
        for refused in &self.refused {
            outln!("cannot be exported: {}", refused.reason);
        }
        if let Some(left_out) = &self.left_out {
            outln!("{left_out}");
        }
        Ok(())
    }
}

/// Exports usage events from files. The total of a day is what the file contains, so it must contain whole days.
async fn run_jsonl(settings: Settings, args: &ExportJsonlArgs, json: bool) -> Result<(), Failure> {
    let dify = settings.export()?;
    let data_dir = settings.raw_delivery()?.data_dir();
    if args.sums.dry_run {
        let mut preview = Preview::default();
        for (stretch, collected) in jsonl::read(&args.files, &dify)? {
            preview.add(collected, &State::new(&data_dir).sent(&stretch.name())?, dify.profile);
        }
        return preview.print(None, json);
    }
    let of_delivery = settings.delivery()?;
    check_delivery(&of_delivery, &dify).map_err(|invalid| settings.failure(&invalid))?;
    let stop = shutdown::on_signals()?;
    let mut sender = delivery::sender(&settings, &of_delivery, stop)?;
    let mut report = Report::default();
    let ended = jsonl::run(&mut report, &args.files, &dify, &mut sender, &of_delivery).await;
    let counters = delivery::finish(&mut sender).await;
    finish(&sender, &report, &counters, ended, json)
}
