//! Tells the observer what was decided.

use std::time::Duration;

use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{Claim, ClaimRequest, DoubtReason, Key, Metadata, Resolution, Resolved, Settle, Settled};

use super::Ledger;
use crate::observer::{Decision, Observer, Subject};
use crate::{Claimed, Marked, Result};

/// An observer, and when the call began that it will hear of.
pub(super) struct Observed<'a> {
    ledger: &'a Ledger,
    observer: &'a dyn Observer,
    started: Duration,
}

impl Ledger {
    /// Starts a call, if somebody observes it.
    pub(super) fn observed(&self) -> Option<Observed<'_>> {
        let settings = &self.backend.settings;
        let observer = settings.observer.as_deref()?;
        Some(Observed { ledger: self, observer, started: settings.clock.steady() })
    }
}

impl Observed<'_> {
    fn decided(
        &self,
        subject: Subject<'_>,
        metadata: Option<&Metadata>,
        result: &'static str,
        detail: Option<&str>,
        is_degraded: bool,
    ) {
        let clock = &self.ledger.backend.settings.clock;
        let latency = clock.steady().saturating_sub(self.started);
        let decision = Decision { at: clock.now(), subject, metadata, result, detail, latency, is_degraded };
        self.observer.decided(&decision);
    }

    pub(super) fn claimed(&self, request: &ClaimRequest, claimed: &Result<Claimed>) {
        let (result, detail) = match claimed.as_ref().map(|claimed| &claimed.claim) {
            Ok(Claim::Granted(_)) => ("granted", None),
            Ok(Claim::Done(_)) => ("replayed", None),
            Ok(Claim::Held { .. }) => ("in-flight", None),
            Ok(Claim::InDoubt(doubt)) => ("in-doubt", Some(reason(&doubt.reason))),
            Ok(Claim::Mismatch) => ("key-reused", None),
            Ok(Claim::CallerChanged) => ("caller-changed", None),
            Err(_) => ("unavailable", None),
        };
        let is_degraded = claimed.as_ref().is_ok_and(|claimed| claimed.degraded);
        self.decided(Subject::Claim(&request.key), Some(&request.metadata), result, detail, is_degraded);
    }

    pub(super) fn settled(&self, key: &Key, action: &Settle, settled: &Result<Settled>) {
        let (result, detail) = match (action, settled) {
            (_, Err(_)) => ("unavailable", None),
            (_, Ok(Settled::Stale(_))) => ("stale", None),
            (Settle::Renew { .. }, Ok(Settled::Applied)) => ("renewed", None),
            (Settle::Complete(_), Ok(Settled::Applied)) => ("completed", None),
            (Settle::Release, Ok(Settled::Applied)) => ("released", None),
            (Settle::Doubt(reason), Ok(Settled::Applied)) => ("declared-in-doubt", Some(reason.as_str())),
        };
        self.decided(Subject::Claim(key), None, result, detail, false);
    }

    pub(super) fn resolved(&self, key: &Key, resolution: &Resolution, resolved: &Result<Resolved>) {
        if let Ok(Resolved::Applied) = resolved {
            let result = match resolution {
                Resolution::Done(_) | Resolution::DoneAsSeen(..) => "resolved-as-done",
                Resolution::Absent | Resolution::AbsentAsSeen(_) => "resolved-as-absent",
                Resolution::Release => "released-by-operator",
                Resolution::Forget(_) => "forgotten",
                Resolution::Erase(_) => "erased",
            };
            self.decided(Subject::Claim(key), None, result, self.ledger.operator.as_deref(), false);
        }
    }

    pub(super) fn forgotten(&self, seen: &mark::Record, forgotten: &Result<Forgotten>) {
        if let Ok(Forgotten::Removed) = forgotten {
            let by = self.ledger.operator.as_deref();
            self.decided(Subject::Mark(&seen.key), Some(&seen.metadata), "forgotten", by, false);
        }
    }

    /// The observer learns the hash of the key only.
    pub(super) fn erased(&self, seen: &mark::Record, erased: &Result<Erased>) {
        if let Ok(Erased::Whole | Erased::KeyKept) = erased {
            let by = self.ledger.operator.as_deref();
            self.decided(Subject::Mark(&seen.key.erased()), None, "erased", by, false);
        }
    }

    pub(super) fn same_content(&self, request: &mark::Request, first: Option<&str>, is_degraded: bool) {
        let detail = first.map(|event| format!("same content as {event}"));
        self.decided(
            Subject::Mark(&request.key),
            Some(&request.metadata),
            "same-content",
            detail.as_deref(),
            is_degraded,
        );
    }

    pub(super) fn marked(&self, requests: &[mark::Request], marked: &Result<Vec<Marked>>) {
        for (at, request) in requests.iter().enumerate() {
            let found = marked.as_ref().ok().and_then(|marked| marked.get(at));
            let (result, is_degraded) = match found {
                Some(Marked { mark: Mark::New, degraded }) => ("new", *degraded),
                Some(Marked { mark: Mark::Seen { .. }, degraded }) => ("duplicate", *degraded),
                None => ("unavailable", false),
            };
            self.decided(Subject::Mark(&request.key), Some(&request.metadata), result, None, is_degraded);
        }
    }
}

fn reason(reason: &DoubtReason) -> &str {
    match reason {
        DoubtReason::LeaseLapsed => "the lease lapsed",
        DoubtReason::HolderGone => "its holder is gone",
        DoubtReason::Declared(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use ichido_core::{ManualClock, Timestamp};

    use super::*;
    use crate::Settings;
    use crate::memory::Memory;

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<&'static str>>);

    impl Observer for Seen {
        fn decided(&self, decision: &Decision<'_>) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(decision.result);
        }
    }

    /// A request that waits for another one asks the ledger many times. It was delivered once.
    #[tokio::test]
    async fn waiting_is_one_decision() {
        let seen = Arc::new(Seen::default());
        let clock = Arc::new(ManualClock::at(Timestamp(1)));
        let settings = Settings { observer: Some(seen.clone()), clock: clock.clone(), ..Settings::default() };
        let ledger = Ledger::new(Arc::new(Memory::new(clock, 10)), settings);
        let key = Key::unscoped("k").unwrap();
        ledger.claim(&ledger.request(key.clone())).await.unwrap();
        ledger.claim_or_wait(&ledger.request(key), Duration::from_millis(150)).await.unwrap();
        assert_eq!(*seen.0.lock().unwrap(), ["granted", "in-flight"]);
    }
}
