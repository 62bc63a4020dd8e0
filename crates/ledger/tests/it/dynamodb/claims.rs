//! Claims without a store clock.

use futures_util::future::join_all;
use ichido_core::{
    Claim, CurrentState, Doubt, DoubtReason, Key, Metadata, Outcome, Resolution, Resolved, Scope, Settle,
    Settled, Timestamp,
};
use ichido_ledger::{Backend, Kind, Maintain, Query, StateName};

use super::support::{
    LEASE_MS, START, Server, ask, clock, event, event_key, granted, held_ms, is_in_doubt, key, n, retry,
};

pub(crate) async fn lapse_is_watched_on_the_claimants_steady_clock(server: Server) {
    let (holders, watchers) = (clock(), clock());
    let (holder, watcher) = (server.ledger(&holders).await, server.ledger(&watchers).await);
    granted(&holder, &ask("k1")).await;

    // The watcher's wall clock is a day ahead: by it the lease is long over, but the watch has only begun.
    watchers.jump_to(START + 86_400_000);
    assert_eq!(held_ms(&watcher, &ask("k1")).await, LEASE_MS);
    watchers.advance(LEASE_MS - 1);
    watchers.jump_to(Timestamp(0));
    assert_eq!(held_ms(&watcher, &ask("k1")).await, 1);
    watchers.advance(1);
    let doubt = Doubt { since: START + LEASE_MS, reason: DoubtReason::LeaseLapsed };
    assert_eq!(watcher.claim(&ask("k1")).await.unwrap(), Claim::InDoubt(doubt));
    assert_eq!(held_ms(&holder, &ask("k1")).await, LEASE_MS, "each watches for itself");
}

pub(crate) async fn renewal_restarts_the_watch(server: Server) {
    let (holders, watchers) = (clock(), clock());
    let (holder, watcher) = (server.ledger(&holders).await, server.ledger(&watchers).await);
    let grant = granted(&holder, &ask("k1")).await;
    held_ms(&watcher, &ask("k1")).await;
    watchers.advance(LEASE_MS);
    let renew = Settle::Renew { lease_ms: 500 };
    assert_eq!(holder.settle(&key("k1"), grant.token, &renew).await.unwrap(), Settled::Applied);
    assert_eq!(held_ms(&watcher, &ask("k1")).await, 500, "a new lease, seen from now");
    watchers.advance(500);
    assert!(is_in_doubt(&watcher, &ask("k1")).await);
    assert_eq!(holder.settle(&key("k1"), grant.token, &renew).await.unwrap(), Settled::Applied);
    assert_eq!(held_ms(&watcher, &ask("k1")).await, 500, "the holder came back in time");
}

pub(crate) async fn takeover_waits_for_the_requested_silence(server: Server) {
    let watchers = clock();
    let (holder, watcher) = (server.ledger(&clock()).await, server.ledger(&watchers).await);
    let zombie = granted(&holder, &ask("k1")).await;
    held_ms(&watcher, &retry("k1", 2 * LEASE_MS)).await;
    watchers.advance(2 * LEASE_MS - 1);
    assert!(
        is_in_doubt(&watcher, &retry("k1", 2 * LEASE_MS)).await,
        "lapsed, but not silent for long enough"
    );
    watchers.advance(1);
    let second = granted(&watcher, &retry("k1", 2 * LEASE_MS)).await;
    assert_eq!(second.attempt, 2);
    let record = watcher.get(&key("k1")).await.unwrap().expect("a claim");
    assert_eq!(record.claimed_at, START + 2 * LEASE_MS, "dated by the wall clock");
    let late = holder.settle(&key("k1"), zombie.token, &Settle::Complete(Outcome::kept("late"))).await;
    assert_eq!(late.unwrap(), Settled::Stale(CurrentState::Running));

    // A declared doubt is watched as well before it is taken over.
    let doubt = Settle::Doubt("cut off".to_owned());
    assert_eq!(watcher.settle(&key("k1"), second.token, &doubt).await.unwrap(), Settled::Applied);
    let other = clock();
    let third = server.ledger(&other).await;
    assert!(is_in_doubt(&third, &retry("k1", 1000)).await);
    other.advance(1000);
    assert_eq!(granted(&third, &retry("k1", 1000)).await.attempt, 3);
}

pub(crate) async fn operators_use_the_wall_clock(server: Server) {
    let operators = clock();
    let (holder, operator) = (server.ledger(&clock()).await, server.ledger(&operators).await);
    let grant = granted(&holder, &ask("k1")).await;
    let done = Resolution::Done(Outcome::kept("by hand"));
    assert_eq!(operator.resolve(&key("k1"), &done).await.unwrap(), Resolved::Refused(CurrentState::Running));
    operators.advance(LEASE_MS);
    let query = Query { state: Some(StateName::InDoubt), limit: 10, ..Query::default() };
    assert_eq!(operator.list(&query).await.unwrap().claims.len(), 1, "listed as in doubt at once");
    assert_eq!(
        held_ms(&server.ledger(&operators).await, &ask("k1")).await,
        LEASE_MS,
        "a claimer still watches"
    );
    assert_eq!(operator.resolve(&key("k1"), &done).await.unwrap(), Resolved::Applied);
    let late = holder.settle(&key("k1"), grant.token, &Settle::Release).await.unwrap();
    assert_eq!(late, Settled::Stale(CurrentState::Done(Outcome::kept("by hand"))));
}

pub(crate) async fn ttl_is_set_on_completed_items_only(server: Server) {
    let ledger = server.ledger(&clock()).await;
    let grant = granted(&ledger, &ask("k1")).await;
    let at = event_key(&key("k1"));
    let actions =
        [Settle::Renew { lease_ms: LEASE_MS }, Settle::Doubt("?".to_owned()), Settle::Renew { lease_ms: 7 }];
    assert!(!server.item(&at).await.expect("an item").contains_key("ttl"));
    for action in actions {
        assert_eq!(ledger.settle(&key("k1"), grant.token, &action).await.unwrap(), Settled::Applied);
        assert!(!server.item(&at).await.expect("an item").contains_key("ttl"), "after {action:?}");
    }
    let doubt = Settle::Doubt("?".to_owned());
    assert_eq!(ledger.settle(&key("k1"), grant.token, &doubt).await.unwrap(), Settled::Applied);
    let complete = Settle::Complete(Outcome::kept("answer"));
    assert_eq!(ledger.settle(&key("k1"), grant.token, &complete).await.unwrap(), Settled::Applied);
    let item = server.item(&at).await.expect("an item");
    assert_eq!(item["ttl"], n((START + 86_400_000).ceil_seconds()));
    assert!(!item.contains_key("ichido_doubt"), "the doubt is over");
    assert_eq!(ledger.claim(&ask("k1")).await.unwrap(), Claim::Done(Outcome::kept("answer")));
}

pub(crate) async fn large_outcome_leaves_a_tombstone(server: Server) {
    let ledger = server.ledger(&clock()).await;
    // Everything else is as large as allowed: the item must still fit.
    let scope = Scope::new("t".repeat(1024), "r".repeat(1024));
    let metadata = Metadata::new((0..1024).map(|i| (format!("n{i:04}"), "xyz".to_owned()))).unwrap();
    let largest =
        ichido_core::ClaimRequest { key: Key::new(scope, "k".repeat(1024)).unwrap(), metadata, ..ask("k") };
    let grant = granted(&ledger, &largest).await;
    let kept = Outcome::kept(vec![7; 350 * 1024]);
    let settled = ledger.settle(&largest.key, grant.token, &Settle::Complete(kept.clone())).await.unwrap();
    assert_eq!(settled, Settled::Applied);
    assert_eq!(ledger.claim(&largest).await.unwrap(), Claim::Done(kept));

    let grant = granted(&ledger, &ask("k1")).await;
    let large = Settle::Complete(Outcome::kept(vec![7; 350 * 1024 + 1]));
    assert_eq!(ledger.settle(&key("k1"), grant.token, &large).await.unwrap(), Settled::Applied);
    let Claim::Done(Outcome::Tombstone(reason)) = ledger.claim(&ask("k1")).await.unwrap() else {
        panic!("not a tombstone")
    };
    assert!(reason.contains("358401 bytes"), "{reason}");
}

pub(crate) async fn item_of_another_format_is_refused(server: Server) {
    let ledger = server.ledger(&clock()).await;
    let grant = granted(&ledger, &ask("k1")).await;
    let mut item = server.item(&event_key(&key("k1"))).await.expect("an item");
    item.insert("ichido_format".to_owned(), n(3));
    let attributes: Vec<_> = item.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    server.put(&attributes).await;

    let complete = Settle::Complete(Outcome::kept("x"));
    let errors = [
        ledger.claim(&ask("k1")).await.unwrap_err(),
        ledger.settle(&key("k1"), grant.token, &complete).await.unwrap_err(),
        ledger.settle(&key("k1"), grant.token, &Settle::Release).await.unwrap_err(),
        ledger.resolve(&key("k1"), &Resolution::Release).await.unwrap_err(),
        ledger.get(&key("k1")).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error.kind(), Kind::Schema(text) if text.contains("format 3")), "{error}");
    }
    assert_eq!(server.item(&event_key(&key("k1"))).await, Some(item), "it is left as it was");
    assert_eq!(ledger.sweep(10).await.unwrap().removed, 0);
}

pub(crate) async fn one_of_many_claimants_wins(server: Server) {
    let ledger = server.ledger(&clock()).await;
    for round in 0..5 {
        let text = format!("k{round}");
        let requests: Vec<_> = (0..32).map(|_| ask(&text)).collect();
        let claims = join_all(requests.iter().map(|request| ledger.claim(request))).await;
        let won = claims.iter().filter(|claim| matches!(claim, Ok(Claim::Granted(_)))).count();
        assert_eq!(won, 1, "{claims:?}");
        assert!(claims.iter().all(|claim| matches!(claim, Ok(Claim::Granted(_) | Claim::Held { .. }))));
    }
}

pub(crate) async fn sweep_continues_where_it_stopped(server: Server) {
    let clock = clock();
    let ledger = server.ledger(&clock).await;
    let events: Vec<_> = (0..20).map(|i| event(&format!("Ev{i}"))).collect();
    ledger.mark(&events).await.unwrap();
    granted(&ledger, &ask("in doubt")).await;
    clock.advance(40 * 86_400_000);
    granted(&ledger, &ask("running")).await;
    let first = ledger.sweep(8).await.unwrap();
    assert_eq!((first.removed, first.more), (8, true));
    let rest = ledger.sweep(100).await.unwrap();
    assert_eq!((rest.removed, rest.more), (13, false));
    assert_eq!(first.doubts_ended + rest.doubts_ended, 1);
    let stats = ledger.stats().await.unwrap();
    assert_eq!((stats.running, stats.in_doubt, stats.marks), (Some(1), Some(0), Some(0)));
}

pub(crate) async fn list_returns_claims_only(server: Server) {
    let ledger = server.ledger(&clock()).await;
    for i in 0..7 {
        granted(&ledger, &ask(&format!("k{i}"))).await;
        ledger.mark(&[event(&format!("Ev{i}")), event(&format!("ichido#{i}"))]).await.unwrap();
    }
    let mut query = Query { limit: 3, ..Query::default() };
    let mut keys = Vec::new();
    loop {
        let page = ledger.list(&query).await.unwrap();
        assert!(page.claims.len() <= 3);
        keys.extend(page.claims.into_iter().map(|claim| claim.key));
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    keys.sort_unstable();
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]);
}
