//! A holder to be paused.
//!
//! ```text
//! ledger-worker hold URL KEY LEASE_MS OUTCOME
//!   granted          the ledger granted KEY, and the lease is renewed from now on
//!   (a line is read from standard input)
//!   applied          the ledger took the outcome
//!   stale: NOW       it did not: this is what holds
//! ```

use ichido_core::{Claim, ClaimRequest, CurrentState, Key, Outcome, Settled};
use ichido_ledger::{Settings, open};

pub(crate) async fn hold(arguments: &[String]) {
    let [url, key, lease_ms, outcome] = arguments else { panic!("hold URL KEY LEASE_MS OUTCOME") };
    let ledger = open(url, Settings::default()).await.expect("the ledger opens");
    let key = Key::unscoped(key.as_str()).expect("a short key");
    let lease_ms = lease_ms.parse().expect("LEASE_MS");
    let request = ClaimRequest { lease_ms, ..ledger.request(key.clone()) };
    let answer = ledger.claim(&request).await.expect("the claim is answered").claim;
    let Claim::Granted(grant) = answer else { panic!("expected a grant, got {answer:?}") };
    let renewal = ledger.start_renewal(&key, &grant);
    super::print("granted\n");
    let go = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    go.await.expect("standard input is read").expect("a line");
    let settled = ledger.complete(&key, grant.token, Outcome::kept(outcome.clone())).await;
    drop(renewal);
    match settled.expect("the completion is answered") {
        Settled::Applied => super::print("applied\n"),
        Settled::Stale(CurrentState::Absent) => super::print("stale: absent\n"),
        Settled::Stale(CurrentState::Running) => super::print("stale: running\n"),
        Settled::Stale(CurrentState::InDoubt) => super::print("stale: in doubt\n"),
        Settled::Stale(CurrentState::Done(Outcome::Kept(bytes))) => {
            super::print(&format!("stale: done {}\n", String::from_utf8_lossy(&bytes)));
        }
        Settled::Stale(CurrentState::Done(Outcome::Tombstone(_))) => super::print("stale: done, not kept\n"),
    }
}
