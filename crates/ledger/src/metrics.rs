//! Metrics of the handle. All names start with `ichido_`; handles are looked up once, not per call.

use std::time::Duration;

use ::metrics::{Counter, Histogram, counter, histogram};
use ichido_core::mark::Mark;
use ichido_core::{Claim, Settled};

/// A kind of call, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Claim,
    Settle,
    Mark,
    Adopt,
    Maintain,
}

const VERBS: [(Verb, &str); 5] = [
    (Verb::Claim, "claim"),
    (Verb::Settle, "settle"),
    (Verb::Mark, "mark"),
    (Verb::Adopt, "adopt"),
    (Verb::Maintain, "maintain"),
];

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        VERBS[self as usize].1
    }

    /// What is being done, for error messages.
    pub(crate) fn doing(self) -> &'static str {
        match self {
            Verb::Claim => "claiming a key",
            Verb::Settle => "settling a claim",
            Verb::Mark => "marking events",
            Verb::Adopt => "adopting a record",
            Verb::Maintain => "maintaining the ledger",
        }
    }
}

pub(crate) struct Metrics {
    seconds: [Histogram; VERBS.len()],
    errors: [Counter; VERBS.len()],
    retries: Counter,
    granted: Counter,
    held: Counter,
    in_doubt: Counter,
    done: Counter,
    mismatch: Counter,
    caller_changed: Counter,
    stale: Counter,
    new: Counter,
    seen: Counter,
    pub(crate) suspected_twice: Counter,
    pub(crate) renewals_failed: Counter,
}

impl Metrics {
    pub(crate) fn new(backend: &'static str) -> Self {
        let claims = |answer: &'static str| counter!("ichido_ledger_claims_total", "backend" => backend, "answer" => answer);
        let marks = |answer: &'static str| counter!("ichido_ledger_marks_total", "backend" => backend, "answer" => answer);
        Self {
            seconds: VERBS
                .map(|(_, verb)| histogram!("ichido_ledger_seconds", "backend" => backend, "verb" => verb)),
            errors: VERBS.map(
                |(_, verb)| counter!("ichido_ledger_errors_total", "backend" => backend, "verb" => verb),
            ),
            retries: counter!("ichido_ledger_retries_total", "backend" => backend),
            granted: claims("granted"),
            held: claims("held"),
            in_doubt: claims("in-doubt"),
            done: claims("done"),
            mismatch: claims("mismatch"),
            caller_changed: claims("caller-changed"),
            stale: counter!("ichido_ledger_stale_total", "backend" => backend),
            new: marks("new"),
            seen: marks("seen"),
            suspected_twice: counter!("ichido_suspected_twice_total", "backend" => backend),
            renewals_failed: counter!("ichido_ledger_renewals_failed_total", "backend" => backend),
        }
    }

    pub(crate) fn call(&self, verb: Verb, took: Duration, failed: bool) {
        self.seconds[verb as usize].record(took);
        if failed {
            self.errors[verb as usize].increment(1);
        }
    }

    pub(crate) fn retried(&self) {
        self.retries.increment(1);
    }

    pub(crate) fn claimed(&self, claim: &Claim) {
        match claim {
            Claim::Granted(_) => &self.granted,
            Claim::Held { .. } => &self.held,
            Claim::InDoubt(_) => &self.in_doubt,
            Claim::Done(_) => &self.done,
            Claim::Mismatch => &self.mismatch,
            Claim::CallerChanged => &self.caller_changed,
        }
        .increment(1);
    }

    pub(crate) fn settled(&self, settled: &Settled) {
        match settled {
            Settled::Applied => {}
            Settled::Stale(_) => self.stale.increment(1),
        }
    }

    pub(crate) fn marked(&self, marks: &[Mark]) {
        let new = marks.iter().filter(|mark| matches!(mark, Mark::New)).count() as u64;
        self.new.increment(new);
        self.seen.increment(marks.len() as u64 - new);
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}
