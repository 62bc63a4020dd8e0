//! Compares a backend with the memory ledger, which consists of the rules alone: both must return the same.
//!
//! Leases and retention either end at once or not during the test, and a pause after each step lets the clocks of
//! both ledgers pass what has ended. So the results do not depend on how fast either of them is.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::{
    Caller, Claim, ClaimRequest, Done, Doubt, DoubtReason, Entropy, Fingerprint, Holder, InDoubtPolicy, Key,
    Metadata, Nonce, Outcome, Record, Resolution, SeededEntropy, Settle, State, SystemClock, Timestamp,
    Token,
};
use ichido_ledger::memory::Memory;
use ichido_ledger::{Backend, Maintain};
use ichido_testkit::ledger_server::unique;

const LONG_MS: u64 = 3_600_000;
const STEPS: usize = 150;

/// Runs a random story on both ledgers; the same seed gives the same story.
pub(crate) async fn agrees_with_the_rules(ledger: &dyn Backend, seed: u64) {
    let rules = Memory::new(Arc::new(SystemClock::default()), 1_000);
    let story = Story::new(seed);
    for step in 0..STEPS {
        let key = story.pick(&story.keys.clone());
        let (actual, expected) = story.step(ledger, &rules, &key).await;
        assert_eq!(actual, expected, "seed {seed}, step {step}");
        tokio::time::sleep(Duration::from_millis(4)).await;
        let (seen, expected) = (ledger.get(&key).await.unwrap(), rules.get(&key).await.unwrap());
        assert_eq!(seen.map(timeless), expected.map(timeless), "seed {seed}, after step {step}");
    }
}

struct Story {
    rng: SeededEntropy,
    keys: Vec<Key>,
    tokens: Vec<Token>,
    nonces: Vec<Nonce>,
}

impl Story {
    fn new(seed: u64) -> Self {
        let rng = SeededEntropy::new(seed);
        let texts = ["plain", "zero\0in it", "sépârateurs:%_\\'\"", "長い"];
        let run = unique();
        let keys = texts.iter().map(|text| Key::unscoped(format!("{text}{run}")).unwrap()).collect();
        let tokens = (0..4).map(|_| Token::draw(&rng)).collect();
        let nonces = (0..4).map(|_| Nonce::draw(&rng)).collect();
        Self { rng, keys, tokens, nonces }
    }

    fn pick<T: Clone>(&self, from: &[T]) -> T {
        from[usize::from(self.rng.draw()[0]) % from.len()].clone()
    }

    async fn step(&self, ledger: &dyn Backend, rules: &Memory, key: &Key) -> (String, String) {
        match self.pick(&[0, 0, 0, 1, 1, 1, 1, 2, 3]) {
            0 => {
                let request = self.request(key);
                (claimed(ledger.claim(&request).await), claimed(rules.claim(&request).await))
            }
            1 => {
                let (token, action) = (self.token(rules, key).await, self.action());
                let actual = ledger.settle(key, token, &action).await.unwrap();
                (
                    format!("{action:?} {actual:?}"),
                    format!("{action:?} {:?}", rules.settle(key, token, &action).await.unwrap()),
                )
            }
            2 => {
                let resolution =
                    self.pick(&[Resolution::Absent, Resolution::Release, Resolution::Done(self.outcome())]);
                let actual = ledger.resolve(key, &resolution).await.unwrap();
                (
                    format!("{resolution:?} {actual:?}"),
                    format!("{resolution:?} {:?}", rules.resolve(key, &resolution).await.unwrap()),
                )
            }
            _ => {
                let record = self.foreign(rules, key).await;
                let actual = ledger.adopt(&record).await.unwrap();
                (format!("adopt {actual:?}"), format!("adopt {:?}", rules.adopt(&record).await.unwrap()))
            }
        }
    }

    fn request(&self, key: &Key) -> ClaimRequest {
        let metadata = [("name".to_owned(), self.pick(&["", "zero\0", "\u{1f600}"]).to_owned())];
        ClaimRequest {
            key: key.clone(),
            fingerprint: Fingerprint::of([self.pick(&["a", "a", "a", "b"])]),
            caller: self.pick(&[None, Some(1), Some(1), Some(1), Some(2)]).map(caller),
            nonce: self.pick(&self.nonces),
            token: Token::draw(&self.rng),
            lease_ms: self.pick(&[1, LONG_MS]),
            retention_ms: self.pick(&[0, LONG_MS, LONG_MS]),
            holder: self.pick(&[Holder::Process, Holder::Remote]),
            metadata: Metadata::new(metadata).unwrap(),
            in_doubt: self.pick(&[
                InDoubtPolicy::Reject,
                InDoubtPolicy::Retry { silent_ms: 1 },
                InDoubtPolicy::Retry { silent_ms: LONG_MS },
            ]),
        }
    }

    /// Mostly the current one.
    async fn token(&self, rules: &Memory, key: &Key) -> Token {
        let current = rules.get(key).await.unwrap().map(|record| record.token);
        let stale = self.pick(&self.tokens);
        self.pick(&[current.unwrap_or(stale), current.unwrap_or(stale), current.unwrap_or(stale), stale])
    }

    fn action(&self) -> Settle {
        self.pick(&[
            Settle::Renew { lease_ms: 1 },
            Settle::Renew { lease_ms: LONG_MS },
            Settle::Complete(self.outcome()),
            Settle::Release,
            Settle::Doubt(self.pick(&["", "zero\0", "timeout"]).to_owned()),
        ])
    }

    fn outcome(&self) -> Outcome {
        let bytes = self.rng.draw().to_vec();
        self.pick(&[Outcome::kept(bytes), Outcome::kept(Vec::new()), Outcome::Tombstone("zero\0".to_owned())])
    }

    async fn foreign(&self, rules: &Memory, key: &Key) -> Record {
        let now = Timestamp(ichido_core::Clock::now(&SystemClock::default()).0);
        let token = self.token(rules, key).await;
        Record {
            key: key.clone(),
            fingerprint: Fingerprint::of(["a"]),
            caller: self.pick(&[None, Some(1)]).map(caller),
            nonce: self.pick(&self.nonces),
            token,
            attempt: 3,
            holder: Holder::Process,
            claimed_at: now,
            renewed_at: now,
            renewals: u32::MAX,
            lease_ms: self.pick(&[1, LONG_MS]),
            retention_ms: LONG_MS,
            metadata: Metadata::default(),
            state: self.pick(&[
                State::Running,
                State::InDoubt(Doubt { since: now, reason: DoubtReason::HolderGone }),
                State::Done(Done { outcome: self.outcome(), completed_at: now }),
            ]),
        }
    }
}

fn caller(byte: u8) -> Caller {
    Caller::from_bytes([byte; 32])
}

/// A result without its times, which differ between two ledgers.
fn claimed(answer: ichido_ledger::Result<Claim>) -> String {
    match answer.unwrap() {
        Claim::Held { .. } => "held".to_owned(),
        Claim::InDoubt(doubt) => format!("in doubt: {:?}", doubt.reason),
        Claim::Granted(grant) => format!("granted {:?} {} {}", grant.token, grant.attempt, grant.lease_ms),
        actual @ (Claim::Done(_) | Claim::Mismatch | Claim::CallerChanged) => format!("{actual:?}"),
    }
}

fn timeless(record: Record) -> Record {
    let zero = Timestamp::default();
    let state = match record.state {
        State::Running => State::Running,
        State::InDoubt(doubt) => State::InDoubt(Doubt { since: zero, ..doubt }),
        State::Done(done) => State::Done(Done { completed_at: zero, ..done }),
    };
    Record { claimed_at: zero, renewed_at: zero, state, ..record }
}
