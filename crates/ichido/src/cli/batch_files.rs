//! Lists and shows batches in the spool or in failed. It only reads, so it is safe while other processes send.

use ichido_core::Timestamp;
use ichido_delivery::store::{BatchDir, Layout, ListedFile, StoredBatch};
use ichido_delivery::time::iso;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::args::ListArgs;
use crate::output;
use ichido_serve::Failure;

#[derive(Debug, Serialize)]
struct Listing {
    total: u64,
    batches: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    /// Sort key: the time in the file name, to the second, then the exact one, if the file can be read.
    #[serde(skip)]
    sort_key: (String, Option<Timestamp>),
    batch_idempotency_key: String,
    file: String,
    first_attempt: String,
    retry_count: u32,
    records: usize,
    not_before: Option<String>,
    last_error: Option<String>,
}

#[derive(Serialize)]
struct ShownBatch<'a> {
    file: String,
    batch_idempotency_key: &'a str,
    first_attempt: String,
    retry_count: u32,
    not_before: Option<String>,
    last_error: Option<&'a str>,
    attempts: &'a [ichido_delivery::store::Attempt],
    records: Vec<&'a RawValue>,
}

/// Files that are read together, by several threads.
const CHUNK_MAX: usize = 10_000;

pub(super) fn list(layout: &Layout, dir: BatchDir, args: &ListArgs, json: bool) -> Result<(), Failure> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let is_unfiltered = args.prefix.is_none() && args.error.is_none();
    let chunk = if is_unfiltered { limit.clamp(1, CHUNK_MAX) } else { CHUNK_MAX };
    let (mut batches, mut total) = (Vec::new(), None);
    let mut after: Option<ListedFile> = None;
    while batches.len() < limit {
        let (count, files) =
            layout.survey(dir, after.as_ref(), CHUNK_MAX.max(limit)).map_err(Failure::usage_from)?;
        total.get_or_insert(count);
        let Some(last) = files.last().cloned() else { break };
        for files in files.chunks(chunk) {
            // Batches that another process has taken meanwhile are not listed.
            let entries =
                layout.read_each(dir, files, |listed, read| read.ok().map(|read| entry(listed, read)));
            let selected = entries.into_iter().flatten().filter(|entry| is_selected(entry, args));
            batches.extend(selected.take(limit - batches.len()));
            if batches.len() == limit {
                break;
            }
        }
        // Fewer than requested: there are no more.
        if files.len() < CHUNK_MAX.max(limit) {
            break;
        }
        after = Some(last);
    }
    // File names have only seconds. In failed they are the time of the move, which the file does not contain.
    if dir == BatchDir::Spool {
        batches.sort_by(|one: &Entry, other| one.sort_key.cmp(&other.sort_key));
    }
    let listing = Listing { total: total.unwrap_or_default(), batches };
    if json {
        return output::json(&listing);
    }
    let mut table =
        output::table(&["batch", "first attempt", "retries", "records", "not before", "last error"]);
    for entry in &listing.batches {
        table.add_row([
            entry.batch_idempotency_key.chars().take(12).collect(),
            entry.first_attempt.clone(),
            entry.retry_count.to_string(),
            entry.records.to_string(),
            entry.not_before.clone().unwrap_or_default(),
            entry.last_error.clone().unwrap_or_default(),
        ]);
    }
    table.print_or(match listing.total {
        0 => "nothing here: every batch was delivered",
        _ => "no batch matches",
    });
    outln!("{} of {}", listing.batches.len(), listing.total);
    Ok(())
}

fn is_selected(entry: &Entry, args: &ListArgs) -> bool {
    let error = entry.last_error.as_deref().unwrap_or_default();
    args.prefix.as_ref().is_none_or(|prefix| entry.batch_idempotency_key.starts_with(prefix))
        && args.error.as_ref().is_none_or(|text| error.contains(text))
}

fn entry(listed: &ListedFile, read: Result<StoredBatch, ichido_delivery::store::Corrupt>) -> Entry {
    match read {
        Ok(stored) => Entry {
            sort_key: (listed.name.at.clone(), Some(stored.first_attempt)),
            batch_idempotency_key: stored.batch.key().to_owned(),
            file: listed.file.clone(),
            first_attempt: iso(stored.first_attempt),
            retry_count: stored.retry_count,
            records: stored.batch.records().len(),
            not_before: stored.not_before.map(iso),
            last_error: stored.last_error,
        },
        Err(corrupt) => Entry {
            sort_key: (listed.name.at.clone(), None),
            batch_idempotency_key: listed.name.key.clone(),
            file: listed.file.clone(),
            first_attempt: listed.name.at.clone(),
            retry_count: 0,
            records: 0,
            not_before: None,
            last_error: Some(corrupt.to_string()),
        },
    }
}

pub(super) fn show(layout: &Layout, dir: BatchDir, key: &str) -> Result<(), Failure> {
    let (listed, stored) = find(layout, dir, key)?;
    output::visible_json(&ShownBatch {
        file: layout.dir(dir).join(&listed.file).display().to_string(),
        batch_idempotency_key: stored.batch.key(),
        first_attempt: iso(stored.first_attempt),
        retry_count: stored.retry_count,
        not_before: stored.not_before.map(iso),
        last_error: stored.last_error.as_deref(),
        attempts: &stored.attempts,
        records: stored.batch.records().iter().map(ichido_delivery::Record::raw).collect(),
    })
}

/// The batch whose key starts with `key`. It is an error if there is none, or more than one.
pub(super) fn find(layout: &Layout, dir: BatchDir, key: &str) -> Result<(ListedFile, StoredBatch), Failure> {
    let candidates: Vec<ListedFile> = layout
        .oldest(dir, None, usize::MAX)
        .map_err(Failure::usage_from)?
        .into_iter()
        .filter(|listed| key.starts_with(&listed.name.key) || listed.name.key.starts_with(key))
        .collect();
    let mut found = Vec::new();
    for listed in candidates {
        match layout.read(dir, &listed) {
            Ok(Ok(stored)) if stored.batch.key().starts_with(key) => found.push((listed, stored)),
            Ok(Err(corrupt)) => {
                return Err(Failure::usage(format!(
                    "{}: {corrupt}",
                    layout.dir(dir).join(&listed.file).display()
                )));
            }
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    match found.len() {
        0 => Err(Failure::usage(format!("no batch {key:?} in {}", layout.dir(dir).display()))),
        1 => Ok(found.remove(0)),
        several => Err(Failure::usage(format!(
            "{several} batches have a key that starts with {key:?}; give more of it"
        ))),
    }
}
