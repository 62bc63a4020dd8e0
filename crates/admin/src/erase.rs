//! Erases what is stored about a key, a user or a channel, wherever this machine and its ledger have it.
//!
//! Records that still protect something stay, without what callers wrote: a claim keeps the hash of its key. Each place is
//! searched on its own, so a place that cannot be searched hides no other one. The report says for each place what was
//! found, what was erased, and what stays and why. At the end, all files are searched for the text, so that the report does
//! not depend on what this module believes.

mod files;
mod ledger;

use std::path::PathBuf;

use ichido_core::{MarkKey, error_chain, to_hex};
pub use ichido_delivery::erase::{Mode, Subject};
use ichido_delivery::erase::{Tally, batches, in_flight, notices, receipts};
use ichido_delivery::store::{self, BatchDir, Options, Store};
use ichido_history::Selection;
use serde::Serialize;
use sha2::{Digest, Sha256};

pub use self::files::RemainingFile;
use crate::operator::Operator;
use crate::state::UsageSource;
use crate::trace::DeliverySource;

/// Where data is erased.
#[derive(Debug)]
pub struct Sources<'a, O> {
    /// The batches, receipts and notices, or why there are none.
    pub delivery: Result<DeliverySource, String>,
    /// The claims and events, or why they cannot be read.
    pub ledger: Result<LedgerSource<'a, O>, String>,
    /// The directories of histories.
    pub histories: Vec<PathBuf>,
    /// What the meter counted, or why that cannot be read.
    pub meter: Result<UsageSource, String>,
    /// Files and directories that are searched for the text at the end.
    pub files: Vec<PathBuf>,
}

/// A ledger, and when its server gives up bytes that were replaced.
#[derive(Debug)]
pub struct LedgerSource<'a, O> {
    /// The ledger.
    pub operator: &'a O,
    /// Whether it is a directory, which is compacted.
    pub is_file: bool,
    /// What else has bytes of a record that was erased.
    pub copies: &'static str,
}

/// What was found about a subject.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `key`, `user` or `channel`.
    pub subject: &'static str,
    /// The hash under which the audit log has the text.
    pub hash: String,
    /// Whether anything was changed. Otherwise `erased` says what would be.
    pub applied: bool,
    /// Whether anything was found.
    pub found: bool,
    /// By place.
    pub places: Vec<Place>,
    /// Files that still contain the text, if it was searched for.
    pub remaining_files: Vec<RemainingFile>,
}

/// What was found in one place.
#[derive(Debug, Serialize)]
pub struct Place {
    /// Its name.
    pub place: &'static str,
    /// How much is about the subject.
    pub found: u64,
    /// How much of it was erased.
    pub erased: u64,
    /// How much of it stays.
    pub kept: u64,
    /// What stays and why, and what could not be searched.
    pub notes: Vec<String>,
}

impl Report {
    /// How much was erased in all places.
    pub fn erased(&self) -> u64 {
        self.places.iter().map(|place| place.erased).sum()
    }
}

/// The hash that stands for a subject in the audit log. That of a key is the index of its event.
pub fn hash(subject: &Subject) -> String {
    match subject {
        Subject::Key(text) => MarkKey::stored(text.as_str()).map(|key| key.index().to_string()).ok(),
        Subject::User(_) | Subject::Channel(_) => None,
    }
    .unwrap_or_else(|| to_hex(&Sha256::digest(format!("{}:{}", subject.kind(), subject.text()))))
}

/// Finds what is stored about a subject, or erases it. `progress` is told how many records of the ledger were read.
pub async fn erase<O: Operator>(
    sources: &Sources<'_, O>,
    subject: &Subject,
    mode: Mode,
    reason: &str,
    progress: &(dyn Fn(u64) + Sync),
) -> Report {
    let mut search = Search { subject, mode, places: Vec::new() };
    let hashes = match &sources.ledger {
        Ok(source) => search.ledger(source, reason, progress).await,
        Err(why) => search.not_searched("ledger", why),
    };
    search.delivery(&sources.delivery).await;
    search.history(&sources.histories, hashes).await;
    search.meter(&sources.meter).await;
    let is_found = search.places.iter().any(|place| place.found > 0);
    // Before anything is erased, the places themselves say where the text is.
    let remaining_files = match mode {
        Mode::Find if is_found => Vec::new(),
        Mode::Find | Mode::Erase => search.files(&sources.files).await,
    };
    Report {
        subject: subject.kind(),
        hash: hash(subject),
        applied: mode == Mode::Erase,
        found: is_found || !remaining_files.is_empty(),
        places: search.places,
        remaining_files,
    }
}

struct Search<'a> {
    subject: &'a Subject,
    mode: Mode,
    places: Vec<Place>,
}

impl Search<'_> {
    fn searched(&mut self, place: &'static str, tally: Tally) {
        let kept = tally.kept();
        let Tally { found, erased, notes } = tally;
        self.places.push(Place { place, found, erased, kept, notes });
    }

    fn not_searched<T: Default>(&mut self, place: &'static str, why: &str) -> T {
        self.searched(place, Tally { notes: vec![format!("not searched: {why}")], ..Tally::default() });
        T::default()
    }

    async fn delivery(&mut self, source: &Result<DeliverySource, String>) {
        const PLACES: [&str; 5] = ["spool", "in-flight", "failed", "receipts", "notices"];
        let source = match source {
            Ok(source) => source.clone(),
            Err(why) => return PLACES.into_iter().for_each(|place| self.not_searched(place, why)),
        };
        let (subject, mode) = (self.subject.clone(), self.mode);
        let searched = tokio::task::spawn_blocking(move || search_delivery(&source, &subject, mode)).await;
        match searched {
            Ok(tallies) => {
                for (place, tally) in PLACES.into_iter().zip(tallies) {
                    match tally {
                        Ok(tally) => self.searched(place, tally),
                        Err(why) => self.not_searched(place, &why),
                    }
                }
            }
            Err(error) => {
                PLACES.into_iter().for_each(|place| self.not_searched(place, &error_chain(&error)));
            }
        }
    }

    async fn history(&mut self, dirs: &[PathBuf], hashes: Vec<[u8; 32]>) {
        if dirs.is_empty() {
            return self.not_searched("history", "history.dir is off");
        }
        let (key, source) = match self.subject {
            Subject::Key(text) => (Some(text.clone()), None),
            Subject::User(text) | Subject::Channel(text) => (None, Some(text.clone())),
        };
        let (dirs, is_erasing) = (dirs.to_vec(), self.mode == Mode::Erase);
        let selection = Selection { key, source, hashes };
        let erase = move || ichido_history::erase(&dirs, &selection, is_erasing);
        match tokio::task::spawn_blocking(erase).await {
            Ok(Ok(erased)) => {
                let found = erased.decisions + erased.counts;
                let mut notes = Vec::new();
                if erased.counts > 0 {
                    notes.push("counts by the hour stay, without the name of the source".to_owned());
                }
                let busy = erased.busy.iter().map(|file| {
                    format!(
                        "free pages of {} may still have the text: a process uses it, or the disk is full",
                        file.display()
                    )
                });
                notes.extend(busy);
                self.searched("history", Tally { found, erased: found, notes });
            }
            Ok(Err(error)) => self.not_searched("history", &error.to_string()),
            Err(error) => self.not_searched("history", &error_chain(&error)),
        }
    }

    async fn meter(&mut self, meter: &Result<UsageSource, String>) {
        let usage = match meter {
            Ok(usage) => usage,
            Err(why) => return self.not_searched("meter", why),
        };
        match count_usage(usage, self.subject, self.mode).await {
            Ok(tally) => self.searched("meter", tally),
            Err(error) => self.not_searched("meter", &error_chain(&error)),
        }
    }

    async fn files(&mut self, files: &[PathBuf]) -> Vec<RemainingFile> {
        let (files, text) = (files.to_vec(), self.subject.text().to_owned());
        match tokio::task::spawn_blocking(move || files::remaining(&files, &text)).await {
            Ok((remaining, problems)) => {
                if !problems.is_empty() {
                    self.searched("files", Tally { notes: problems, ..Tally::default() });
                }
                remaining
            }
            Err(error) => self.not_searched("files", &error_chain(&error)),
        }
    }
}

fn search_delivery(source: &DeliverySource, subject: &Subject, mode: Mode) -> [Result<Tally, String>; 5] {
    let (layout, root) = (&source.layout, source.layout.root());
    let open = || {
        let options = Options { receipt_retention: source.receipt_retention, ..Options::default() };
        Store::open(root, options, ichido_core::Clock::now(&ichido_core::SystemClock::default()))
    };
    let in_dir = |dir| -> Result<Tally, String> {
        let mut tally =
            batches(layout, dir, subject, mode, open).map_err(|error: store::Error| error_chain(&error))?;
        if tally.erased > 0 && dir == BatchDir::Spool {
            tally.notes.push("these records are not delivered".to_owned());
        }
        Ok(tally)
    };
    let failed = |error: std::io::Error| error_chain(&error);
    [
        in_dir(BatchDir::Spool),
        in_flight(layout, subject).map_err(failed),
        in_dir(BatchDir::Failed),
        receipts(root, subject, mode).map_err(failed),
        notices(root, subject, mode).map_err(failed),
    ]
}

/// An accountant needs the sums: only the id of a user is replaced.
async fn count_usage(
    usage: &UsageSource,
    subject: &Subject,
    mode: Mode,
) -> Result<Tally, ichido_meter::store::Error> {
    let mut tally = Tally::default();
    match subject {
        // PostgreSQL stores no such text.
        Subject::Key(text) | Subject::User(text) if text.contains('\0') => {}
        Subject::Key(id) => {
            for tenant in &usage.tenants {
                tally.found += u64::from(usage.store.find(tenant, id).await?.is_some());
            }
            if tally.found > 0 {
                let why = "the id of a counted record stays, so that the record is not counted again";
                tally.notes.push(why.to_owned());
            }
        }
        Subject::User(user) => {
            tally.found = usage.store.count_user(user).await?;
            tally.erased = match mode {
                Mode::Find => tally.found,
                Mode::Erase => usage.store.erase_user(user).await?,
            };
            if tally.found > 0 {
                tally.notes.push(
                    "the id of the user is replaced in every tenant, and the sums stay; a later export of the same usage \
                     would bring it back"
                        .to_owned(),
                );
            }
        }
        Subject::Channel(_) => tally.notes.push("usage records name no channels".to_owned()),
    }
    Ok(tally)
}
