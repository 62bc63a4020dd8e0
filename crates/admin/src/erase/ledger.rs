//! Claims and marks: found page by page, erased one by one, each with its own entry in the audit log.

use std::collections::BTreeMap;

use ichido_core::{Index, Metadata, mark};
use ichido_delivery::erase::{Mode, Subject, Tally};
use ichido_ledger::{MarkQuery, MarkSummary, Query, StateName, Summary};

use super::{LedgerSource, Search};
use crate::operator::{ClaimSelector, ErasedEvent, Operator, PAGE_MAX, Refusal};

/// The most keys whose decisions are looked for in the history.
const HASHES_MAX: usize = 100_000;

const RUNNING: &str = "running: its holder will still write to it; erase again when it has ended";
const IN_DOUBT: &str = "in doubt: nobody knows yet whether its effect happened; resolve it (`ichido ledger triage`), then erase again";
const LOCAL: &str = "not in the ledger yet: erase again when the outage is over";
const GONE: &str = "changed while it was erased: erase again";
const PROTECTED: &str =
    "erased: the hash of the key stays until the record expires, so that a retry does not run again";
const KEY_KEPT: &str = "of them: the text of the key stays until then, because DynamoDB finds events by it";
const OWNER_KEPT: &str =
    "content marks keep the id of the event that owns them, so that its content is not handled again";

/// What is known so far.
#[derive(Default)]
struct Findings {
    tally: Tally,
    /// How many records are kept for which reason.
    kept: BTreeMap<&'static str, u64>,
    /// Why a record could not be erased.
    failures: BTreeMap<String, u64>,
    hashes: Vec<[u8; 32]>,
    key_kept: u64,
    owner_kept: u64,
    read: u64,
}

impl Findings {
    fn found(&mut self, index: &str) {
        self.tally.found += 1;
        if self.hashes.len() < HASHES_MAX {
            self.hashes.extend(index.parse::<Index>().map(|index| *index.as_bytes()));
        }
    }

    fn keep(&mut self, why: &'static str) {
        *self.kept.entry(why).or_default() += 1;
    }
}

impl Search<'_> {
    /// Returns the hashes of the keys that were found.
    pub(super) async fn ledger<O: Operator>(
        &mut self,
        source: &LedgerSource<'_, O>,
        reason: &str,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Vec<[u8; 32]> {
        let mut findings = Findings::default();
        let searched = async {
            self.claims(source.operator, reason, &mut findings, progress).await?;
            self.marks(source.operator, reason, &mut findings, progress).await
        };
        if let Err(refusal) = searched.await {
            findings.tally.notes.push(format!("not searched completely: {}", refusal.into_failure("")));
        }
        self.summarize(source, &mut findings).await;
        self.searched("ledger", findings.tally);
        findings.hashes
    }

    async fn claims<O: Operator>(
        &self,
        operator: &O,
        reason: &str,
        findings: &mut Findings,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Refusal> {
        let prefix = match self.subject {
            Subject::Key(key) => Some(key.clone()),
            Subject::User(_) | Subject::Channel(_) => None,
        };
        let mut query = Query { state: None, prefix, limit: PAGE_MAX, cursor: None };
        loop {
            let page = operator.list(&query).await?;
            findings.read += page.claims.len() as u64;
            progress(findings.read);
            for claim in page.claims.iter().filter(|claim| is_claim_of(self.subject, claim)) {
                findings.found(&claim.index);
                self.erase_claim(operator, claim, reason, findings).await;
            }
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(()),
            }
        }
    }

    async fn erase_claim<O: Operator>(
        &self,
        operator: &O,
        claim: &Summary,
        reason: &str,
        findings: &mut Findings,
    ) {
        match claim.state {
            StateName::Running | StateName::InDoubt | StateName::Done if claim.local => findings.keep(LOCAL),
            StateName::Running => findings.keep(RUNNING),
            StateName::InDoubt => findings.keep(IN_DOUBT),
            StateName::Done if self.mode == Mode::Find => findings.tally.erased += 1,
            StateName::Done => {
                let Summary { key, tenant, route, .. } = claim.clone();
                let selector = ClaimSelector { key, tenant: Some(tenant), route: Some(route) };
                match operator.erase(&selector, reason).await {
                    Ok(_) => findings.tally.erased += 1,
                    // It has expired, or there is a newer one.
                    Err(Refusal::NoSuchClaim | Refusal::WrongState(_) | Refusal::Changed) => {
                        findings.keep(GONE)
                    }
                    Err(refusal) => {
                        *findings.failures.entry(refusal.into_failure("").to_string()).or_default() += 1;
                    }
                }
            }
        }
    }

    async fn marks<O: Operator>(
        &self,
        operator: &O,
        reason: &str,
        findings: &mut Findings,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), Refusal> {
        let prefixes = match self.subject {
            Subject::Key(key) if key.starts_with(mark::CONTENT) => vec![Some(mark::CONTENT.to_owned())],
            Subject::Key(key) => vec![Some(key.clone()), Some(mark::CONTENT.to_owned())],
            Subject::User(_) | Subject::Channel(_) => vec![None],
        };
        for prefix in prefixes {
            let mut query = MarkQuery { prefix, limit: PAGE_MAX, cursor: None };
            loop {
                let page = operator.list_events(&query).await?;
                findings.read += page.marks.len() as u64;
                progress(findings.read);
                for mark in page.marks.iter().filter(|mark| is_mark_of(self.subject, mark)) {
                    findings.found(&mark.index);
                    self.erase_mark(operator, mark, reason, findings).await;
                }
                match page.cursor {
                    Some(cursor) => query.cursor = Some(cursor),
                    None => break,
                }
            }
        }
        Ok(())
    }

    async fn erase_mark<O: Operator>(
        &self,
        operator: &O,
        mark: &MarkSummary,
        reason: &str,
        findings: &mut Findings,
    ) {
        if mark.local {
            return findings.keep(LOCAL);
        }
        let erased = match self.mode {
            Mode::Find => Ok(ErasedEvent { index: mark.index.clone(), key_kept: false }),
            Mode::Erase => operator.erase_event(&mark.key, reason).await,
        };
        match erased {
            Ok(ErasedEvent { key_kept, .. }) => {
                findings.tally.erased += 1;
                findings.key_kept += u64::from(key_kept);
                findings.owner_kept += u64::from(mark.key.starts_with(mark::CONTENT));
            }
            Err(Refusal::NoSuchEvent) => findings.keep(GONE),
            Err(refusal) => *findings.failures.entry(refusal.into_failure("").to_string()).or_default() += 1,
        }
    }

    /// Says what stays. A ledger in a directory is compacted, so that its files do not have the text any more.
    async fn summarize<O: Operator>(&self, source: &LedgerSource<'_, O>, findings: &mut Findings) {
        let Findings { tally, kept, failures, key_kept, owner_kept, .. } = findings;
        let notes = &mut tally.notes;
        notes.extend(kept.iter().map(|(why, count)| format!("{count} {why}")));
        notes.extend(failures.iter().map(|(why, count)| format!("{count} not erased: {why}")));
        if tally.erased > 0 {
            notes.push(format!("{} {PROTECTED}", tally.erased));
            if *key_kept > 0 {
                notes.push(format!("{key_kept} {KEY_KEPT}"));
            }
            if *owner_kept > 0 {
                notes.push(OWNER_KEPT.to_owned());
            }
            notes.push(source.copies.to_owned());
        }
        if tally.erased > 0
            && source.is_file
            && self.mode == Mode::Erase
            && let Err(refusal) = source.operator.compact().await
        {
            let why = refusal.into_failure("");
            notes
                .push(format!("files of the ledger still have the text: {why}; run `ichido ledger compact`"));
        }
    }
}

fn is_in(metadata: &Metadata, subject: &Subject) -> bool {
    subject.names().iter().any(|name| metadata.get(name) == Some(subject.text()))
}

fn is_claim_of(subject: &Subject, claim: &Summary) -> bool {
    match subject {
        Subject::Key(key) => claim.key == *key,
        // A tenant may be the subject of a token.
        Subject::User(user) => claim.tenant == *user || is_in(&claim.metadata, subject),
        Subject::Channel(_) => is_in(&claim.metadata, subject),
    }
}

fn is_mark_of(subject: &Subject, mark: &MarkSummary) -> bool {
    match subject {
        Subject::Key(key) => {
            let is_owned = mark.key.starts_with(mark::CONTENT) && mark.metadata.get(mark::OWNER) == Some(key);
            mark.key == *key || is_owned
        }
        Subject::User(_) | Subject::Channel(_) => is_in(&mark.metadata, subject),
    }
}
