//! `ichido send`: sends the spool first, then the input, batch by batch.

mod input;
mod progress;

use std::time::Duration;

use ichido_delivery::Batch;
use ichido_delivery::sender::{Error, Selection, Sender};
use ichido_delivery::store::ListedFile;
use indicatif::MultiProgress;
use serde::Serialize;

use self::input::{Piece, read_input};
use self::progress::Progress;
use crate::args::SendArgs;
use crate::delivery;
use crate::output;
use crate::settings::Settings;
use ichido_core::error_chain;
use ichido_serve::Failure;
use ichido_serve::shutdown;

/// How long the spool is sent before the input is read. A deep spool must not keep new records from being accepted.
const SPOOL_FIRST_MAX: Duration = Duration::from_secs(5);

pub(super) async fn run(args: &SendArgs, screen: &MultiProgress) -> Result<(), Failure> {
    let process = Settings::load(args.delivery.config.as_deref(), &args.delivery.flags.flags())?;
    let settings = process.delivery()?;
    if args.dry_run {
        return dry_run(args, settings.batch_size).await;
    }
    let stop = shutdown::on_signals()?;
    let mut input = read_input(&args.files, settings.batch_size)?;
    let mut sender = delivery::sender(&process, &settings, stop.clone())?;
    let (interrupted_at, mut failure) =
        resend(&mut sender, Selection { time_limit: Some(SPOOL_FIRST_MAX), ..Selection::due() }).await;
    let mut progress = Progress::start(screen, &args.files);
    let mut is_complete = false;
    loop {
        let next = sender.work_until(async {
            tokio::select! {
                next = input.next() => Some(next),
                () = stop.cancelled() => None,
            }
        });
        let Some(next) = next.await else { break };
        let Some(next) = next else {
            is_complete = true;
            break;
        };
        match take(&mut sender, next, &mut progress).await {
            Ok(()) => {}
            Err(NotTaken::Continue(message)) => failure = Some(Failure::internal(message)),
            Err(NotTaken::Stop(last)) => {
                failure = last.or(failure);
                break;
            }
        }
    }
    progress.finish();
    if let Some(after) = interrupted_at.filter(|_| is_complete) {
        let (_, last) = resend(&mut sender, Selection { after: Some(after), ..Selection::due() }).await;
        failure = failure.or(last);
    }
    let counters = delivery::finish(&mut sender).await;
    delivery::report(&counters, args.json)?;
    if !is_complete && failure.is_none() {
        failure = Some(Failure::internal(
            "stopped before the end of the input: send it again; nothing is counted twice",
        ));
    }
    delivery::verdict(&sender, &counters, failure)
}

/// Sends the spool. Returns where the pass was interrupted, and what went wrong.
async fn resend(sender: &mut Sender, selection: Selection) -> (Option<ListedFile>, Option<Failure>) {
    match sender.resend(&selection).await {
        Ok(passed) => (passed.interrupted, None),
        Err(Error::Stopped) => (None, None),
        Err(error) => (None, Some(Failure::internal(error_chain(&error)))),
    }
}

/// Why a piece of input was not accepted.
enum NotTaken {
    /// Only this piece is affected.
    Continue(String),
    /// The rest cannot be accepted either.
    Stop(Option<Failure>),
}

/// Sends the next piece of input.
async fn take(sender: &mut Sender, piece: Piece, progress: &mut Progress) -> Result<(), NotTaken> {
    let taken = match piece {
        Piece::Batches(batches) => {
            let bytes = |batch: &Batch| batch.records().iter().map(|record| record.json().len() + 1).sum();
            let sizes: Vec<(usize, usize)> =
                batches.iter().map(|batch| (batch.records().len(), bytes(batch))).collect();
            let sent = sender.send(batches).await;
            sizes.iter().for_each(|(records, bytes)| progress.add(*records as u64, *bytes as u64));
            sent
        }
        Piece::Invalid { text, reason } => {
            progress.add_invalid(text.len() as u64 + 1);
            sender.reject_input(&text, &reason)
        }
        Piece::Unreadable(message) => return Err(NotTaken::Continue(message)),
    };
    match taken {
        Ok(()) => Ok(()),
        Err(Error::Stopped) => Err(NotTaken::Stop(None)),
        // The next batch may fit.
        Err(error @ Error::Lost(_)) => Err(NotTaken::Continue(error_chain(&error))),
        Err(error) => Err(NotTaken::Stop(Some(Failure::internal(format!(
            "{}; the rest of the input was not sent",
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
    let mut input = read_input(&args.files, batch_size)?;
    let mut seen = DryRun::default();
    let mut failure = None;
    while let Some(piece) = input.next().await {
        match piece {
            Piece::Batches(batches) => {
                for batch in batches {
                    seen.batches += 1;
                    seen.records += batch.records().len() as u64;
                    if !args.json {
                        let records = output::count(batch.records().len() as u64, "record", "records");
                        outln!("{}  {records}", batch.key());
                    }
                }
            }
            Piece::Invalid { reason, .. } => {
                seen.broken += 1;
                if !args.json {
                    outln!("not a record: {reason}");
                }
            }
            Piece::Unreadable(message) => failure = Some(Failure::internal(message)),
        }
    }
    match args.json {
        true => output::json(&seen)?,
        false => {
            let records = output::count(seen.records, "record", "records");
            let batches = output::count(seen.batches, "batch", "batches");
            outln!(
                "{records} in {batches}; {}",
                output::count(seen.broken, "line is not a record", "lines are not records")
            );
        }
    }
    failure.map_or(Ok(()), Err)
}
