//! `ichido send`: what waits first, then the input, batch by batch.

mod input;
mod progress;

use std::time::Duration;

use ichido_delivery::sender::{Error, Selection, Sender};
use ichido_delivery::store::ListedFile;
use indicatif::MultiProgress;
use serde::Serialize;

use self::input::{Fed, feed};
use self::progress::Progress;
use crate::args::SendArgs;
use crate::delivery::{self, Values};
use crate::output;
use ichido_core::error_chain;
use ichido_serve::Failure;
use ichido_serve::shutdown;

/// How long what waits goes before what is new. A deep spool must not keep new records from being taken.
const HEAD_START: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &SendArgs, screen: &MultiProgress) -> Result<(), Failure> {
    let values = Values::load(&args.delivery)?;
    let settings = values.settings()?;
    if args.dry_run {
        return dry_run(args, settings.batch_size).await;
    }
    let stop = shutdown::on_signals()?;
    let mut fed = feed(&args.files, settings.batch_size)?;
    let mut sender = delivery::sender(&values, &settings, stop.clone())?;
    let (waiting, mut trouble) =
        resend(&mut sender, Selection { time_limit: Some(HEAD_START), ..Selection::due() }).await;
    let mut progress = Progress::begin(screen, &args.files);
    let mut is_whole = false;
    loop {
        let next = tokio::select! {
            next = fed.recv() => next,
            () = stop.cancelled() => break,
        };
        let Some(next) = next else {
            is_whole = true;
            break;
        };
        match take(&mut sender, next, &mut progress).await {
            Ok(()) => {}
            Err(Refused::Trouble(message)) => trouble = Some(Failure::internal(message)),
            Err(Refused::Closed(failure)) => {
                trouble = failure.or(trouble);
                break;
            }
        }
    }
    progress.end();
    if let Some(after) = waiting.filter(|_| is_whole) {
        let (_, failure) = resend(&mut sender, Selection { after: Some(after), ..Selection::due() }).await;
        trouble = trouble.or(failure);
    }
    let counters = delivery::finish(&mut sender).await;
    delivery::report(&counters, args.json)?;
    if !is_whole && trouble.is_none() {
        trouble = Some(Failure::internal(
            "stopped before the end of the input: send it again, nothing counts twice",
        ));
    }
    delivery::verdict(&sender, &counters, trouble)
}

/// A pass over what waits: where it was interrupted, and what went wrong.
async fn resend(sender: &mut Sender, selection: Selection) -> (Option<ListedFile>, Option<Failure>) {
    match sender.resend(&selection).await {
        Ok(passed) => (passed.interrupted, None),
        Err(Error::Stopped) => (None, None),
        Err(error) => (None, Some(Failure::internal(error_chain(&error)))),
    }
}

/// Why something was not taken.
enum Refused {
    /// This alone; the rest goes on.
    Trouble(String),
    /// Nothing more is taken.
    Closed(Option<Failure>),
}

/// Takes the next piece of input.
async fn take(sender: &mut Sender, fed: Fed, progress: &mut Progress) -> Result<(), Refused> {
    let taken = match fed {
        Fed::Batch(batch) => {
            let records = batch.records();
            let (count, bytes) =
                (records.len(), records.iter().map(|record| record.json().len() + 1).sum::<usize>());
            let sent = sender.send(batch).await;
            progress.add(count as u64, bytes as u64);
            sent
        }
        Fed::Broken { text, reason } => {
            progress.add_broken(text.len() as u64 + 1);
            sender.reject_input(&text, &reason)
        }
        Fed::Trouble(message) => return Err(Refused::Trouble(message)),
    };
    match taken {
        Ok(()) => Ok(()),
        Err(Error::Stopped) => Err(Refused::Closed(None)),
        // The next one may have better luck.
        Err(error @ Error::Lost(_)) => Err(Refused::Trouble(error_chain(&error))),
        Err(error) => Err(Refused::Closed(Some(Failure::internal(format!(
            "{}; the rest of the input was not taken",
            error_chain(&error)
        ))))),
    }
}

#[derive(Debug, Default, Serialize)]
struct DryRun {
    records: u64,
    batches: u64,
    broken: u64,
}

async fn dry_run(args: &SendArgs, batch_size: usize) -> Result<(), Failure> {
    let mut fed = feed(&args.files, batch_size)?;
    let mut seen = DryRun::default();
    let mut trouble = None;
    while let Some(next) = fed.recv().await {
        match next {
            Fed::Batch(batch) => {
                seen.batches += 1;
                seen.records += batch.records().len() as u64;
                if !args.json {
                    let records = output::count(batch.records().len() as u64, "record", "records");
                    outln!("{}  {records}", batch.key());
                }
            }
            Fed::Broken { reason, .. } => {
                seen.broken += 1;
                if !args.json {
                    outln!("no record: {reason}");
                }
            }
            Fed::Trouble(message) => trouble = Some(Failure::internal(message)),
        }
    }
    match args.json {
        true => output::json(&seen)?,
        false => {
            let records = output::count(seen.records, "record", "records");
            let batches = output::count(seen.batches, "batch", "batches");
            outln!(
                "{records} in {batches}; {}",
                output::count(seen.broken, "is no record", "are no records")
            );
        }
    }
    trouble.map_or(Ok(()), Err)
}
