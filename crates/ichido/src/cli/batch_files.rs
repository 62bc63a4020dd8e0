//! What lies in the spool or in failed, for people and scripts. Only looks: safe beside any number of senders.

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
#[serde(rename_all = "camelCase")]
struct Entry {
    /// What the name says, to the second, and what the file says, if it can be read.
    #[serde(skip)]
    at: (String, Option<Timestamp>),
    batch_idempotency_key: String,
    file: String,
    first_attempt: String,
    retry_count: u32,
    records: usize,
    not_before: Option<String>,
    last_error: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    file: String,
    batch_idempotency_key: &'a str,
    first_attempt: String,
    retry_count: u32,
    not_before: Option<String>,
    last_error: Option<&'a str>,
    attempts: &'a [ichido_delivery::store::Attempt],
    records: Vec<&'a RawValue>,
}

/// Files that are read at once, by all threads together.
const AT_ONCE: usize = 10_000;

pub(super) fn list(layout: &Layout, place: BatchDir, args: &ListArgs, json: bool) -> Result<(), Failure> {
    let most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let is_all_meant = args.prefix.is_none() && args.error.is_none();
    let step = if is_all_meant { most.clamp(1, AT_ONCE) } else { AT_ONCE };
    let (mut batches, mut total) = (Vec::new(), None);
    let mut after: Option<ListedFile> = None;
    while batches.len() < most {
        let (files, some) =
            layout.survey(place, after.as_ref(), AT_ONCE.max(most)).map_err(Failure::usage_from)?;
        total.get_or_insert(files);
        let Some(last) = some.last().cloned() else { break };
        for some in some.chunks(step) {
            // Whatever was taken meanwhile by a process that sends it is not listed.
            let seen =
                layout.read_each(place, some, |listed, read| read.ok().map(|read| entry(listed, read)));
            let meant = seen.into_iter().flatten().filter(|entry| is_meant(entry, args));
            batches.extend(meant.take(most - batches.len()));
            if batches.len() == most {
                break;
            }
        }
        // Fewer than were asked for: there are no more.
        if some.len() < AT_ONCE.max(most) {
            break;
        }
        after = Some(last);
    }
    // Names tell the second only. In failed they tell the move, of which the file says no more.
    if place == BatchDir::Spool {
        batches.sort_by(|one: &Entry, other| one.at.cmp(&other.at));
    }
    let listing = Listing { total: total.unwrap_or_default(), batches };
    if json {
        return output::json(&listing);
    }
    let mut table =
        output::table(&["batch", "first attempt", "passes", "records", "not before", "last error"]);
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
    outln!("{table}");
    outln!("{} of {}", listing.batches.len(), listing.total);
    Ok(())
}

fn is_meant(entry: &Entry, args: &ListArgs) -> bool {
    let error = entry.last_error.as_deref().unwrap_or_default();
    args.prefix.as_ref().is_none_or(|prefix| entry.batch_idempotency_key.starts_with(prefix))
        && args.error.as_ref().is_none_or(|text| error.contains(text))
}

fn entry(listed: &ListedFile, read: Result<StoredBatch, ichido_delivery::store::Corrupt>) -> Entry {
    match read {
        Ok(stored) => Entry {
            at: (listed.name.at.clone(), Some(stored.first_attempt)),
            batch_idempotency_key: stored.batch.key().to_owned(),
            file: listed.file.clone(),
            first_attempt: iso(stored.first_attempt),
            retry_count: stored.retry_count,
            records: stored.batch.records().len(),
            not_before: stored.not_before.map(iso),
            last_error: stored.last_error,
        },
        Err(corrupt) => Entry {
            at: (listed.name.at.clone(), None),
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

pub(super) fn show(layout: &Layout, place: BatchDir, key: &str) -> Result<(), Failure> {
    let (listed, stored) = find(layout, place, key)?;
    output::visible_json(&Shown {
        file: layout.dir(place).join(&listed.file).display().to_string(),
        batch_idempotency_key: stored.batch.key(),
        first_attempt: iso(stored.first_attempt),
        retry_count: stored.retry_count,
        not_before: stored.not_before.map(iso),
        last_error: stored.last_error.as_deref(),
        attempts: &stored.attempts,
        records: stored.batch.records().iter().map(ichido_delivery::Record::raw).collect(),
    })
}

/// The one batch whose key begins so.
pub(super) fn find(
    layout: &Layout,
    place: BatchDir,
    key: &str,
) -> Result<(ListedFile, StoredBatch), Failure> {
    let found: Vec<ListedFile> = layout
        .oldest(place, None, usize::MAX)
        .map_err(Failure::usage_from)?
        .into_iter()
        .filter(|listed| key.starts_with(&listed.name.key) || listed.name.key.starts_with(key))
        .collect();
    let mut meant = Vec::new();
    for listed in found {
        match layout.read(place, &listed) {
            Ok(Ok(stored)) if stored.batch.key().starts_with(key) => meant.push((listed, stored)),
            Ok(Err(corrupt)) => {
                return Err(Failure::usage(format!(
                    "{}: {corrupt}",
                    layout.dir(place).join(&listed.file).display()
                )));
            }
            Ok(Ok(_)) | Err(_) => {}
        }
    }
    match meant.len() {
        0 => Err(Failure::usage(format!("there is no batch {key:?} in {}", layout.dir(place).display()))),
        1 => Ok(meant.remove(0)),
        several => Err(Failure::usage(format!("{several} batches have a key that begins with {key:?}"))),
    }
}
