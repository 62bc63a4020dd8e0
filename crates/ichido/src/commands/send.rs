//! `ichido send`: what waits first, then the input, batch by batch.

use ichido_delivery::sender::{Error, Pick, Sender};
use serde::Serialize;

use crate::args::SendArgs;
use crate::delivery::{self, Fed, feed};
use crate::exit::{Failure, one_line};
use crate::{output, shutdown};

/// How often a run says in the log how far it is.
const TELL_EVERY: u64 = 100;

pub(crate) async fn run(args: &SendArgs) -> Result<(), Failure> {
    let settings = delivery::settings()?;
    if args.dry_run {
        return dry_run(args, settings.batch_size).await;
    }
    let stop = shutdown::on_signals()?;
    let mut fed = feed(&args.files, settings.batch_size)?;
    let mut sender = delivery::sender(&settings, stop.clone())?;
    let mut trouble = match sender.resend(&Pick::due()).await {
        Ok(_) | Err(Error::Stopped) => None,
        Err(error) => Some(Failure::internal(one_line(&error))),
    };
    let (mut told, mut is_whole) = (0, false);
    loop {
        let next = tokio::select! {
            next = fed.recv() => next,
            () = stop.cancelled() => break,
        };
        let Some(next) = next else {
            is_whole = true;
            break;
        };
        match take(&mut sender, next).await {
            Ok(records) => {
                let before = told / TELL_EVERY;
                told += records;
                if told / TELL_EVERY > before {
                    tracing::info!(records = told, "progress");
                }
            }
            Err(Refused::Trouble(message)) => trouble = Some(Failure::internal(message)),
            Err(Refused::Closed(failure)) => {
                trouble = failure.or(trouble);
                break;
            }
        }
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

/// Why something was not taken.
enum Refused {
    /// This alone; the rest goes on.
    Trouble(String),
    /// Nothing more is taken.
    Closed(Option<Failure>),
}

/// Takes the next piece of input; says how many records it had.
async fn take(sender: &mut Sender, fed: Fed) -> Result<u64, Refused> {
    let (taken, records) = match fed {
        Fed::Batch(batch) => {
            let records = batch.records().len() as u64;
            (sender.send(batch).await, records)
        }
        Fed::Broken { text, reason } => (sender.refuse_input(&text, &reason), 1),
        Fed::Trouble(message) => return Err(Refused::Trouble(message)),
    };
    match taken {
        Ok(()) => Ok(records),
        Err(Error::Stopped) => Err(Refused::Closed(None)),
        Err(error) => Err(Refused::Closed(Some(Failure::internal(format!(
            "{}; the rest of the input was not taken",
            one_line(&error)
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
                    println!("{}  {} records", batch.key(), batch.records().len());
                }
            }
            Fed::Broken { reason, .. } => {
                seen.broken += 1;
                if !args.json {
                    println!("no record: {reason}");
                }
            }
            Fed::Trouble(message) => trouble = Some(Failure::internal(message)),
        }
    }
    match args.json {
        true => output::json(&seen)?,
        false => {
            println!("{} records in {} batches; {} are no records", seen.records, seen.batches, seen.broken)
        }
    }
    trouble.map_or(Ok(()), Err)
}
