//! What the clients of a history do, drawn from a seed.

use ichido_core::InDoubtPolicy;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Short, so that leases lapse and outcomes expire while other clients call.
const LEASES_MS: [u64; 3] = [100, 150, 200];
const RETENTIONS_MS: [u64; 4] = [80, 150, 250, 60_000];
const SILENCES_MS: [u64; 3] = [0, 120, 300];

/// What each client does, in order.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The seed from which it was drawn.
    pub seed: u64,
    /// The steps of each client.
    pub clients: Vec<Vec<Step>>,
    /// Number of claim keys.
    pub claim_keys: usize,
    /// Number of mark keys.
    pub mark_keys: usize,
}

/// One step of a client.
#[derive(Clone, Debug)]
pub struct Step {
    /// How long to wait first.
    pub pause_ms: u64,
    /// When to drop the call.
    pub give_up_ms: Option<u64>,
    /// The call to make.
    pub action: Action,
}

/// A client's call.
#[derive(Clone, Debug)]
pub enum Action {
    /// Claim a key.
    Claim(NewClaim),
    /// Retry the client's last claim of the key, with the same nonce.
    ClaimAgain {
        /// Which key.
        key: usize,
        /// Whether to propose another token, which must not matter.
        other_token: bool,
    },
    /// Settle a grant.
    Settle {
        /// Selects a random grant of any client, instead of the client's own last one.
        of_anyone: Option<u64>,
        /// What to do with it.
        action: HolderAction,
    },
    /// Resolve a claim as an operator.
    Resolve {
        /// Which key.
        key: usize,
        /// What to do with it.
        action: OperatorAction,
    },
    /// Read the record of a key.
    Get {
        /// Which key.
        key: usize,
    },
    /// Mark events.
    Mark {
        /// Which keys.
        keys: Vec<usize>,
        /// Whether to use the nonces that this client used last for them.
        again: bool,
        /// How long the marks are kept.
        retention_ms: u64,
    },
}

/// A claim with a fresh nonce.
#[derive(Clone, Copy, Debug)]
pub struct NewClaim {
    /// Which key.
    pub key: usize,
    /// Whether its fingerprint differs from the others'.
    pub other_fingerprint: bool,
    /// Whether its credentials differ from the others'.
    pub other_caller: bool,
    /// Its lease.
    pub lease_ms: u64,
    /// How long its outcome is kept.
    pub retention_ms: u64,
    /// What to do if the claim is in doubt.
    pub in_doubt: InDoubtPolicy,
}

/// A kind of settlement.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "as in Settle")]
pub enum HolderAction {
    Renew { lease_ms: u64 },
    Complete,
    Release,
    Doubt,
}

/// A kind of resolution.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "as in Resolution")]
pub enum OperatorAction {
    Done,
    Absent,
    AbsentAsSeen,
    Release,
    Forget,
    Erase,
}

impl Workload {
    /// The workload of a seed: four to six clients on three to five keys.
    pub fn draw(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let clients = rng.random_range(4..=6);
        let (claim_keys, mark_keys) = (rng.random_range(2..=3), rng.random_range(1..=2));
        let draw_client = |rng: &mut StdRng| {
            let steps = rng.random_range(22..=30);
            (0..steps).map(|_| Step::draw(rng, claim_keys, mark_keys)).collect()
        };
        let clients = (0..clients).map(|_| draw_client(&mut rng)).collect();
        Self { seed, clients, claim_keys, mark_keys }
    }
}

impl Step {
    fn draw(rng: &mut StdRng, claim_keys: usize, mark_keys: usize) -> Self {
        let pause_ms = match rng.random_range(0..20) {
            0 => rng.random_range(90..260),
            1..10 => rng.random_range(1..30),
            _ => 0,
        };
        let give_up_ms = rng.random_bool(0.1).then(|| rng.random_range(0..6));
        Self { pause_ms, give_up_ms, action: Action::draw(rng, claim_keys, mark_keys) }
    }
}

impl Action {
    fn draw(rng: &mut StdRng, claim_keys: usize, mark_keys: usize) -> Self {
        let key = rng.random_range(0..claim_keys);
        match rng.random_range(0..100) {
            0..34 => Action::Claim(NewClaim::draw(rng, key)),
            34..42 => Action::ClaimAgain { key, other_token: rng.random_bool(0.5) },
            42..68 => {
                let of_anyone = rng.random_bool(0.3).then(|| rng.random());
                Action::Settle { of_anyone, action: HolderAction::draw(rng) }
            }
            68..75 => {
                let action = *pick(
                    rng,
                    &[
                        OperatorAction::Done,
                        OperatorAction::Absent,
                        OperatorAction::AbsentAsSeen,
                        OperatorAction::Release,
                        OperatorAction::Forget,
                        OperatorAction::Erase,
                    ],
                );
                Action::Resolve { key, action }
            }
            75..86 => Action::Get { key },
            _ => {
                let first = rng.random_range(0..mark_keys);
                let keys = (first..mark_keys).collect();
                let retention_ms = *pick(rng, &RETENTIONS_MS[..3]);
                Action::Mark { keys, again: rng.random_bool(0.3), retention_ms }
            }
        }
    }
}

impl NewClaim {
    fn draw(rng: &mut StdRng, key: usize) -> Self {
        let silent_ms = *pick(rng, &SILENCES_MS);
        let is_patient = rng.random_bool(0.55);
        // A key that stays done for a minute is of little use for the rest of the history, so this is rare.
        let retentions = if rng.random_bool(0.15) { &RETENTIONS_MS[..] } else { &RETENTIONS_MS[..3] };
        Self {
            key,
            other_fingerprint: rng.random_bool(0.08),
            other_caller: rng.random_bool(0.08),
            lease_ms: *pick(rng, &LEASES_MS),
            retention_ms: *pick(rng, retentions),
            in_doubt: if is_patient { InDoubtPolicy::Reject } else { InDoubtPolicy::Retry { silent_ms } },
        }
    }
}

impl HolderAction {
    fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..10) {
            0..3 => HolderAction::Renew { lease_ms: *pick(rng, &LEASES_MS) },
            3..7 => HolderAction::Complete,
            7..8 => HolderAction::Release,
            _ => HolderAction::Doubt,
        }
    }
}

fn pick<'a, T>(rng: &mut StdRng, choices: &'a [T]) -> &'a T {
    &choices[rng.random_range(0..choices.len())]
}
