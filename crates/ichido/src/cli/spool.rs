//! `ichido spool`: batches that are not delivered yet.

use ichido_admin::audit_log::{Action, Actor, Outcome};
use ichido_admin::operator::Refusal;
use ichido_delivery::counters::Counters;
use ichido_delivery::sender::{Error, PassSummary, Selection};
use ichido_delivery::store::{BatchDir, Layout, fsck};

use super::batch_files;
use crate::args::{SpoolArgs, SpoolVerb};
use crate::settings::Settings;
use crate::{delivery, output};
use ichido_core::error_chain;
use ichido_serve::Failure;
use ichido_serve::shutdown;

pub(super) async fn run(args: &SpoolArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.delivery.config.as_deref(), &args.delivery.flags.flags())?;
    let layout = || settings.existing_data_dir().map(|dir| Layout::new(&dir));
    match &args.verb {
        SpoolVerb::List(list) => batch_files::list(&layout()?, BatchDir::Spool, list, args.json),
        SpoolVerb::Show(batch) => batch_files::show(&layout()?, BatchDir::Spool, &batch.key),
        SpoolVerb::Resend { keys, force } => {
            let selection = Selection::new(BatchDir::Spool, keys.clone(), *force);
            resend(&settings, &selection, args.json).await
        }
        SpoolVerb::Fsck => check_files(&layout()?, args.json),
    }
}

/// Sends batches now. Also used by `ichido failed resend`.
pub(super) async fn resend(process: &Settings, selection: &Selection, json: bool) -> Result<(), Failure> {
    let settings = process.delivery()?;
    let stop = shutdown::on_signals()?;
    let mut sender = delivery::sender(process, &settings, stop)?;
    let place = selection.batch_dir.as_str().to_owned();
    let action = Action {
        place: Some(place.clone()),
        before: Some(place),
        batches: selection.keys.clone(),
        ..Action::named(if selection.keys.is_empty() { "resend all" } else { "resend a batch" })
    };
    let pending = process.audit()?.begin(Actor::command_line(), action);
    let pending = pending.map_err(|error| Refusal::not_begun(error).into_failure(""))?;
    let resent = sender.resend(selection).await;
    let counters = delivery::finish(&mut sender).await;
    let recorded = pending.finish(outcome(&resent, &counters));
    delivery::report(&counters, json)?;
    recorded.map_err(|error| Refusal::not_recorded(&error).into_failure(""))?;
    let failure = match resent {
        Ok(passed) if passed.attempted == 0 && !selection.keys.is_empty() => Some(Failure::usage(format!(
            "no batch in {} has this key and is due",
            selection.batch_dir.as_str()
        ))),
        Ok(_) | Err(Error::Stopped) => None,
        Err(error) => Some(Failure::internal(error_chain(&error))),
    };
    delivery::verdict(&sender, &counters, failure)
}

/// What became of a resend, in the terms of the console. Anything uncertain does not count as success.
fn outcome(resent: &Result<PassSummary, Error>, counters: &Counters) -> Outcome {
    let arrived = counters.send_success;
    let all_arrived = |passed: &PassSummary| {
        arrived >= passed.attempted && counters.failed_moved == 0 && counters.lost == 0
    };
    let (result, after) = match resent {
        Ok(passed) if passed.attempted == 0 => ("nothing-sent", None),
        Ok(passed) if all_arrived(passed) => ("arrived", Some("delivered".to_owned())),
        Ok(_) => ("not-arrived", None),
        Err(Error::Stopped) => ("stopped", None),
        Err(_) => ("failed", None),
    };
    Outcome { after, arrived: Some(arrived), ..Outcome::of(result) }
}

fn check_files(layout: &Layout, json: bool) -> Result<(), Failure> {
    let mut findings = Vec::new();
    let sound = fsck(layout, |finding| findings.push(finding)).map_err(Failure::usage_from)?;
    if json {
        output::json(&serde_json::json!({ "sound": sound, "findings": findings }))?;
    } else {
        for finding in &findings {
            outln!("{:<8} {}: {}", finding.kind, finding.path, finding.detail);
        }
        outln!("{}", output::count(sound, "file is intact", "files are intact"));
    }
    match findings.len() {
        0 => Ok(()),
        found => Err(Failure::internal(output::count(found as u64, "problem found", "problems found"))),
    }
}
