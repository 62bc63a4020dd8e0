//! Executes a workload.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ichido_core::mark;
use ichido_core::{
    Caller, Claim, ClaimRequest, Fingerprint, Key, MarkKey, Metadata, Nonce, Outcome, Resolution,
    SeededEntropy, Seen, Token,
};

use super::jitter::WithJitter;
use super::operation::History;
use super::recorder::Recorder;
use super::workload::{Action, HolderAction, NewClaim, OperatorAction, Step, Workload};
use crate::{Backend, Ledger, Result, Settings};

/// Executes a workload; clients are assigned to instances in turn. Errors are part of the history.
pub async fn run(workload: &Workload, instances: &[Arc<dyn Backend>], settings: &Settings) -> History {
    let recorder = Arc::new(Recorder::default());
    let run = super::super::unique();
    let shared = Arc::new(Shared {
        claim_keys: (0..workload.claim_keys)
            .map(|n| Key::unscoped(format!("claim-{n}-{run}")).expect("short"))
            .collect(),
        mark_keys: (0..workload.mark_keys)
            .map(|n| MarkKey::new(format!("mark-{n}-{run}")).expect("short"))
            .collect(),
        grants: Mutex::default(),
    });
    let mut clients = tokio::task::JoinSet::new();
    for (number, steps) in workload.clients.iter().cloned().enumerate() {
        let seed = workload.seed.wrapping_mul(1_000).wrapping_add(number as u64);
        let with_jitter = Arc::new(WithJitter::new(instances[number % instances.len()].clone(), seed));
        let settings = Settings { entropy: Arc::new(SeededEntropy::new(seed)), ..settings.clone() };
        let ledger = Ledger::new(recorder.wrap(number, with_jitter), settings);
        let client = Client {
            number,
            ledger,
            shared: shared.clone(),
            claims: HashMap::new(),
            marks: HashMap::new(),
            own: None,
        };
        clients.spawn(client.carry_out(steps));
    }
    clients.join_all().await;
    recorder.history()
}

struct Shared {
    claim_keys: Vec<Key>,
    mark_keys: Vec<MarkKey>,
    /// Every grant of the history. Tokens are shared, so that stale ones are used as well.
    grants: Mutex<Vec<(Key, Token)>>,
}

impl Shared {
    fn last_grant(&self, key: &Key) -> Option<Token> {
        let grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.iter().rev().find(|(granted, _)| granted == key).map(|(_, token)| *token)
    }
}

struct Client {
    number: usize,
    ledger: Ledger,
    shared: Arc<Shared>,
    /// The last request of this client for each key.
    claims: HashMap<usize, ClaimRequest>,
    marks: HashMap<usize, Nonce>,
    /// The last grant.
    own: Option<(Key, Token)>,
}

impl Client {
    async fn carry_out(mut self, steps: Vec<Step>) {
        for (number, step) in steps.into_iter().enumerate() {
            tokio::time::sleep(Duration::from_millis(step.pause_ms)).await;
            let name = format!("client {} step {number}", self.number);
            let patience = step.give_up_ms.map_or(Duration::MAX, Duration::from_millis);
            // Errors and dropped calls are part of the history; the client continues.
            let _ = tokio::time::timeout(patience, self.action(step.action, &name)).await;
        }
    }

    async fn action(&mut self, action: Action, name: &str) -> Result<()> {
        match action {
            Action::Claim(claim) => {
                let request = self.request(claim);
                self.claims.insert(claim.key, request.clone());
                self.claim(&request).await
            }
            Action::ClaimAgain { key, other_token } => {
                let Some(mut request) = self.claims.get(&key).cloned() else { return Ok(()) };
                if other_token {
                    request.token = self.ledger.request(request.key.clone()).token;
                }
                self.claim(&request).await
            }
            Action::Settle { of_anyone, action } => self.settle(of_anyone, action, name).await,
            Action::Resolve { key, action } => {
                let key = &self.shared.claim_keys[key];
                let action = match action {
                    OperatorAction::Done => Resolution::Done(Outcome::kept(format!("operator, {name}"))),
                    OperatorAction::Absent => Resolution::Absent,
                    OperatorAction::Release => Resolution::Release,
                    OperatorAction::AbsentAsSeen => match self.shared.last_grant(key) {
                        Some(token) => Resolution::AbsentAsSeen(Seen { token, renewals: 0 }),
                        None => return Ok(()),
                    },
                    OperatorAction::Forget => match self.shared.last_grant(key) {
                        Some(token) => Resolution::Forget(token),
                        None => return Ok(()),
                    },
                    OperatorAction::Erase => match self.shared.last_grant(key) {
                        Some(token) => Resolution::Erase(token),
                        None => return Ok(()),
                    },
                };
                self.ledger.resolve(key, &action).await.map(drop)
            }
            Action::Get { key } => self.ledger.get(&self.shared.claim_keys[key]).await.map(drop),
            Action::Mark { keys, again, retention_ms } => self.mark(&keys, again, retention_ms, name).await,
        }
    }

    fn request(&self, claim: NewClaim) -> ClaimRequest {
        let NewClaim { key, other_fingerprint, other_caller, lease_ms, retention_ms, in_doubt } = claim;
        let fingerprint = if other_fingerprint { Fingerprint::of(["other"]) } else { Fingerprint::NONE };
        let request = self.ledger.request(self.shared.claim_keys[key].clone());
        let caller = Some(Caller::from_bytes([u8::from(other_caller); 32]));
        ClaimRequest { fingerprint, caller, lease_ms, retention_ms, in_doubt, ..request }
    }

    async fn claim(&mut self, request: &ClaimRequest) -> Result<()> {
        if let Claim::Granted(grant) = self.ledger.claim(request).await?.claim {
            let granted = (request.key.clone(), grant.token);
            self.own = Some(granted.clone());
            self.shared.grants.lock().unwrap_or_else(PoisonError::into_inner).push(granted);
        }
        Ok(())
    }

    async fn settle(&self, of_anyone: Option<u64>, action: HolderAction, name: &str) -> Result<()> {
        let chosen = match of_anyone {
            None => self.own.clone(),
            Some(rng) => {
                let grants = self.shared.grants.lock().unwrap_or_else(PoisonError::into_inner);
                let count = u64::try_from(grants.len()).unwrap_or(u64::MAX).max(1);
                grants.get(usize::try_from(rng % count).unwrap_or(0)).cloned()
            }
        };
        let Some((key, token)) = chosen else { return Ok(()) };
        let settled = match action {
            HolderAction::Renew { lease_ms } => self.ledger.renew(&key, token, lease_ms).await,
            HolderAction::Complete => self.ledger.complete(&key, token, Outcome::kept(name.to_owned())).await,
            HolderAction::Release => self.ledger.release(&key, token).await,
            HolderAction::Doubt => self.ledger.declare_in_doubt(&key, token, name).await,
        };
        settled.map(drop)
    }

    async fn mark(&mut self, keys: &[usize], again: bool, retention_ms: u64, name: &str) -> Result<()> {
        let mut requests = Vec::with_capacity(keys.len());
        for key in keys {
            let request = self.ledger.mark_request(self.shared.mark_keys[*key].clone());
            let nonce = self.marks.get(key).copied().filter(|_| again).unwrap_or(request.nonce);
            self.marks.insert(*key, nonce);
            let metadata = Metadata::new([("by".to_owned(), name.to_owned())]).expect("short");
            requests.push(mark::Request { nonce, retention_ms, metadata, ..request });
        }
        self.ledger.mark(&requests).await.map(drop)
    }
}
