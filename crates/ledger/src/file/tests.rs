//! The promises of a file ledger.

mod backup;
mod concurrency;
mod damage;
mod erasing;
mod full_disk;
mod holding;
mod reopening;
mod rules;
mod sweeping;

use std::path::Path;
use std::sync::Arc;

use ichido_core::{
    Claim, ClaimRequest, Fingerprint, Grant, Holder, InDoubtPolicy, Key, ManualClock, Metadata, Nonce,
    Outcome, Settle, Settled, Timestamp, Token,
};

use super::{File, FileSettings};
use crate::Backend;

const START: Timestamp = Timestamp(1_700_000_000_000);
const LEASE_MS: u64 = 30_000;
const RETENTION_MS: u64 = 86_400_000;
const DAY_MS: u64 = 86_400_000;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

fn open(dir: &Path, clock: &Arc<ManualClock>) -> File {
    File::open(dir, FileSettings::default(), clock.clone()).unwrap()
}

fn key(text: &str) -> Key {
    Key::unscoped(text).unwrap()
}

fn request(text: &str, nonce: u8) -> ClaimRequest {
    ClaimRequest {
        key: key(text),
        fingerprint: Fingerprint::of([text]),
        caller: None,
        nonce: Nonce::from_bytes([nonce; 16]),
        token: Token::from_bytes([nonce; 16]),
        lease_ms: LEASE_MS,
        retention_ms: RETENTION_MS,
        holder: Holder::Process,
        metadata: Metadata::default(),
        in_doubt: InDoubtPolicy::Reject,
    }
}

async fn grant(ledger: &File, text: &str, nonce: u8) -> Grant {
    let claim = ledger.claim(&request(text, nonce)).await.unwrap();
    let Claim::Granted(grant) = claim else { panic!("{text} was not granted: {claim:?}") };
    grant
}

async fn complete(ledger: &File, text: &str, nonce: u8, outcome: &str) {
    let grant = grant(ledger, text, nonce).await;
    let action = Settle::Complete(Outcome::kept(outcome.to_owned()));
    assert_eq!(ledger.settle(&key(text), grant.token, &action).await.unwrap(), Settled::Applied);
}
