//! Draws the requests of several callers and an operator on a few keys.

use bytes::Bytes;
use ichido_core::{
    Caller, ClaimRequest, Done, Doubt, DoubtReason, Fingerprint, Holder, InDoubtPolicy, Key, MarkKey,
    Metadata, Nonce, Outcome, Record, Resolution, Scope, Seen, Settle, State, Timestamp, Token, mark,
};

use super::model::{Held, Model};
use super::random::Random;
use super::requests::{Keys, Request};

/// Retries are drawn from this many of the latest requests.
const REMEMBERED: usize = 48;
/// The usual lease.
pub(super) const LEASE_MS: u64 = 30_000;
const RETENTIONS_MS: [u64; 4] = [20_000, 600_000, 86_400_000, 40 * 86_400_000];

/// Draws requests.
#[derive(Debug)]
pub(super) struct Workload {
    recent: Vec<Request>,
    /// Whether most outcomes are large.
    has_large_outcomes: bool,
}

impl Workload {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { recent: Vec::new(), has_large_outcomes: random.one_in(6) }
    }

    /// Keys for a run. Few keys collide often; many keys fill segments.
    pub(super) fn keys(random: &mut Random) -> Result<Keys, String> {
        let (claims, marks) = (1 + random.below(24), 1 + random.below(12));
        let scope = Scope::new("tenant", "route");
        let claims = (0..claims).map(|number| Key::new(scope.clone(), format!("claim-{number}")));
        let marks = (0..marks).map(|number| MarkKey::new(format!("mark-{number}")));
        let claims = claims.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        Ok(Keys { claims, marks: marks.collect::<Result<_, _>>().map_err(|error| error.to_string())? })
    }

    /// The next request.
    pub(super) fn draw(
        &mut self,
        keys: &Keys,
        model: &Model,
        now: Timestamp,
        random: &mut Random,
    ) -> Request {
        if !self.recent.is_empty() && random.one_in(8) {
            return random.pick(&self.recent).clone();
        }
        let key = random.below(keys.claims.len());
        let request = match random.below(100) {
            0..38 => Request::Claim { key, request: claim_request(&keys.claims[key], random) },
            38..74 => self.settle(key, model, random),
            74..80 => self.resolve(key, model, random),
            80..84 => self.adopt(keys, key, model, now, random),
            84..94 => marks(keys, random),
            94 => forget_mark(keys, model, random),
            95 => erase_mark(keys, model, random),
            _ => remove(keys, model, random),
        };
        match self.recent.len() < REMEMBERED {
            true => self.recent.push(request.clone()),
            false => self.recent[random.below(REMEMBERED)] = request.clone(),
        }
        request
    }

    fn settle(&self, key: usize, model: &Model, random: &mut Random) -> Request {
        let current = model.claim(key).filter(|_| !random.one_in(8)).map(|record| record.token);
        let token = current.unwrap_or_else(|| Token::from_bytes(random.bytes()));
        let action = match random.below(10) {
            0..6 => Settle::Complete(self.outcome(random)),
            6..8 => Settle::Renew { lease_ms: LEASE_MS },
            8 => Settle::Release,
            _ => Settle::Doubt("x".repeat(random.below(100))),
        };
        Request::Settle { key, token, action }
    }

    fn resolve(&self, key: usize, model: &Model, random: &mut Random) -> Request {
        let resolution = match random.below(6) {
            0 => Resolution::Done(self.outcome(random)),
            1 => Resolution::Absent,
            2 => Resolution::Release,
            3 => match model.claim(key) {
                Some(record) => Resolution::DoneAsSeen(Seen::of(record), self.outcome(random)),
                None => Resolution::Absent,
            },
            end => {
                let current = model.claim(key).filter(|_| !random.one_in(8)).map(|record| record.token);
                let token = current.unwrap_or_else(|| Token::from_bytes(random.bytes()));
                if end == 4 { Resolution::Forget(token) } else { Resolution::Erase(token) }
            }
        };
        Request::Resolve { key, resolution }
    }

    /// A record of another ledger, sometimes of the same grant.
    fn adopt(&self, keys: &Keys, key: usize, model: &Model, now: Timestamp, random: &mut Random) -> Request {
        let request = claim_request(&keys.claims[key], random);
        let current = model.claim(key).filter(|_| random.one_in(2)).map(|record| record.token);
        let claimed_at = Timestamp(now.0.saturating_sub(random.below_u64(2 * LEASE_MS)));
        let state = match random.below(3) {
            0 => State::Running,
            1 => State::InDoubt(Doubt { since: now, reason: DoubtReason::LeaseLapsed }),
            _ => State::Done(Done { outcome: self.outcome(random), completed_at: claimed_at }),
        };
        let record = Record {
            key: request.key,
            fingerprint: request.fingerprint,
            caller: request.caller,
            nonce: request.nonce,
            token: current.unwrap_or(request.token),
            attempt: 1,
            holder: request.holder,
            claimed_at,
            renewed_at: claimed_at,
            renewals: 0,
            lease_ms: request.lease_ms,
            retention_ms: request.retention_ms,
            metadata: request.metadata,
            state,
        };
        Request::Adopt { key, record: Box::new(record) }
    }

    fn outcome(&self, random: &mut Random) -> Outcome {
        if random.one_in(10) {
            return Outcome::Tombstone("too large".into());
        }
        let is_large = random.one_in(if self.has_large_outcomes { 2 } else { 12 });
        let size = if is_large { 257 + random.below(1500) } else { random.below(200) };
        Outcome::Kept(Bytes::from(random.content(size)))
    }
}

fn claim_request(key: &Key, random: &mut Random) -> ClaimRequest {
    let fingerprint = match random.below(12) {
        0 => Fingerprint::NONE,
        1 => Fingerprint::of(["other"]),
        _ => Fingerprint::of(["usual"]),
    };
    let caller = random.one_in(3).then(|| Caller::of(key.index(), [&b"alice"[..]]));
    ClaimRequest {
        key: key.clone(),
        fingerprint,
        caller,
        nonce: Nonce::from_bytes(random.bytes()),
        token: Token::from_bytes(random.bytes()),
        lease_ms: if random.one_in(4) { 2_000 } else { LEASE_MS },
        retention_ms: *random.pick(&RETENTIONS_MS),
        holder: if random.one_in(3) { Holder::Remote } else { Holder::Process },
        metadata: metadata(random),
        in_doubt: match random.below(3) {
            0 => InDoubtPolicy::Retry { silent_ms: 0 },
            1 => InDoubtPolicy::Retry { silent_ms: 60_000 },
            _ => InDoubtPolicy::Reject,
        },
    }
}

fn metadata(random: &mut Random) -> Metadata {
    if !random.one_in(3) {
        return Metadata::default();
    }
    let value = "v".repeat(random.below(300));
    Metadata::new([("note".to_owned(), value)]).unwrap_or_default()
}

fn marks(keys: &Keys, random: &mut Random) -> Request {
    let first = random.below(keys.marks.len());
    let count = 1 + random.below(keys.marks.len().min(5));
    let marks = (0..count).map(|number| {
        let mark = (first + number) % keys.marks.len();
        let request = mark::Request {
            key: keys.marks[mark].clone(),
            nonce: Nonce::from_bytes(random.bytes()),
            retention_ms: *random.pick(&RETENTIONS_MS),
            metadata: metadata(random),
        };
        (keys.of_mark(mark), request)
    });
    Request::Mark { marks: marks.collect() }
}

/// Removes some of what there is, and something that is not.
fn remove(keys: &Keys, model: &Model, random: &mut Random) -> Request {
    let (mut claims, mut marks) = (Vec::new(), Vec::new());
    for _ in 0..=random.below(3) {
        let key = random.below(keys.len());
        match model.get(key) {
            Some(Held::Claim(record)) => claims.push((key, record.token)),
            Some(Held::Mark(record)) => marks.push((key, record.nonce)),
            None if keys.is_claim(key) => claims.push((key, Token::from_bytes(random.bytes()))),
            None => marks.push((key, Nonce::from_bytes(random.bytes()))),
        }
    }
    Request::Remove { claims, marks }
}

/// Forgets a mark, mostly the one that there is.
fn forget_mark(keys: &Keys, model: &Model, random: &mut Random) -> Request {
    let (key, nonce) = some_mark(keys, model, random);
    Request::ForgetMark { key, nonce }
}

/// Erases a mark, mostly the one that there is.
fn erase_mark(keys: &Keys, model: &Model, random: &mut Random) -> Request {
    let (key, nonce) = some_mark(keys, model, random);
    Request::EraseMark { key, nonce }
}

fn some_mark(keys: &Keys, model: &Model, random: &mut Random) -> (usize, Nonce) {
    let key = keys.of_mark(random.below(keys.marks.len()));
    let nonce = match model.get(key).filter(|_| !random.one_in(8)) {
        Some(Held::Mark(record)) => record.nonce,
        Some(Held::Claim(_)) | None => Nonce::from_bytes(random.bytes()),
    };
    (key, nonce)
}
