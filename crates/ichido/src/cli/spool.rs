//! `ichido spool`: batches that are not delivered yet.

use ichido_delivery::sender::{Error, Selection};
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
    let resent = sender.resend(selection).await;
    let counters = delivery::finish(&mut sender).await;
    delivery::report(&counters, json)?;
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
