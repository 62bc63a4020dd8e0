//! Records of batches: those in the spool and in failed are erased, those that a process is sending are only counted.
//!
//! What is left of a batch keeps its key. A receiver that already has the batch recognises it; under a new key it might
//! count the other records twice.

use std::io;

use super::{Mode, Subject, Tally};
use crate::batch::Batch;
use crate::disk;
use crate::store::{BatchDir, Error, Layout, ListedFile, Store, StoredBatch, read_in_flight};

/// Files that are read together.
const CHUNK: usize = 256;
/// What replaces an error message that contains the text.
const ERASED: &str = "(erased)";

/// Erases records of the spool or of failed. `open` opens the store when the first record is found.
pub fn batches(
    layout: &Layout,
    dir: BatchDir,
    subject: &Subject,
    mode: Mode,
    open: impl Fn() -> Result<Store, Error>,
) -> Result<Tally, Error> {
    let (mut tally, mut store, mut unreadable) = (Tally::default(), None, 0_u64);
    let mut after: Option<ListedFile> = None;
    loop {
        let files = layout.oldest(dir, after.as_ref(), CHUNK)?;
        let Some(last) = files.last() else { break };
        after = Some(last.clone());
        let counted = layout.read_each(dir, &files, |listed, read| match read {
            Ok(Ok(stored)) => Ok((listed.clone(), subject.count_in(&stored))),
            // Another process has taken it.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok((listed.clone(), 0))
            }
            Ok(Err(_)) | Err(_) => Err(()),
        });
        for counted in counted {
            match counted {
                Ok((_, 0)) => {}
                Ok((_, found)) if mode == Mode::Find => tally.add(found, found),
                Ok((listed, found)) => {
                    let store = match &store {
                        Some(store) => store,
                        None => store.insert(open()?),
                    };
                    let is_erased = erase(store, dir, &listed, subject)?;
                    tally.add(found, if is_erased { found } else { 0 });
                }
                Err(()) => unreadable += 1,
            }
        }
        if files.len() < CHUNK {
            break;
        }
    }
    if tally.kept() > 0 {
        tally.notes.push("a process has just taken a batch: erase again when it was sent".to_owned());
    }
    if unreadable > 0 {
        tally
            .notes
            .push(format!("{unreadable} damaged files were not searched (`ichido spool fsck` lists them)"));
    }
    Ok(tally)
}

/// Erases the records of one file. `false`: another process has taken it.
fn erase(store: &Store, dir: BatchDir, listed: &ListedFile, subject: &Subject) -> Result<bool, Error> {
    let Some(mut owned) = store.take(dir, listed)? else { return Ok(false) };
    let Ok(mut stored) = store.read(&owned)? else {
        // It was readable a moment ago. Whoever damaged it, an operator has to look at it.
        return store.fail(&mut owned, &listed.name.key, listed.at()).map(|_| false);
    };
    let is_whole = matches!(subject, Subject::Key(key) if key == stored.batch.key());
    let records = stored.batch.records().iter();
    let left: Vec<_> =
        records.filter(|record| !is_whole && !subject.is_erased_from(&stored, record)).cloned().collect();
    if left.is_empty() {
        store.remove(&owned)?;
        return Ok(true);
    }
    stored.batch = Batch::stored(stored.batch.key().to_owned(), left);
    scrub(&mut stored, subject);
    match dir {
        BatchDir::Spool => store.spool(&mut owned, &stored)?,
        BatchDir::Failed => {
            store.update(&mut owned, &stored)?;
            store.fail(&mut owned, stored.batch.key(), listed.at())?
        }
    };
    Ok(true)
}

/// Receivers quote records in their messages.
fn scrub(stored: &mut StoredBatch, subject: &Subject) {
    let erase = |text: &mut String| {
        if text.contains(subject.text()) {
            ERASED.clone_into(text);
        }
    };
    stored.last_error.iter_mut().for_each(erase);
    stored.attempts.iter_mut().for_each(|attempt| erase(&mut attempt.error));
    let escaped = subject.escaped();
    stored.unknown.retain(|(name, value)| !name.contains(subject.text()) && !value.get().contains(&escaped));
}

/// Counts the records that processes are sending.
pub fn in_flight(layout: &Layout, subject: &Subject) -> io::Result<Tally> {
    let (mut tally, inflight) = (Tally::default(), layout.inflight());
    for process in disk::file_names(&inflight)? {
        let dir = inflight.join(process);
        if !dir.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        for file in disk::file_names(&dir)? {
            match read_in_flight(&dir, &file) {
                None => {}
                Some(Ok(batches)) => {
                    tally.found += batches.iter().map(|stored| subject.count_in(stored) as u64).sum::<u64>();
                }
                Some(Err(why)) => tally.notes.push(why),
            }
        }
    }
    if tally.found > 0 {
        tally.notes.push("a process is sending these records: erase again when they were sent".to_owned());
    }
    Ok(tally)
}
