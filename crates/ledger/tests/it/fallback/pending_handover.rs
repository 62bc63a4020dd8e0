//! What is pending handover during an outage: operators see it, it survives a restart, and it reaches the primary.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{
    Claim, Clock, DoubtReason, Holder, Key, Outcome, Resolution, Resolved, Settled, SystemClock,
};
use ichido_ledger::file::{File, FileSettings};
use ichido_ledger::{
    ConflictKind, FallbackSettings, Kind, Ledger, LocalBackend, OpenOptions, Query, Settings, StateName,
    Summary, open_or_defer,
};
use ichido_testkit::faulty_backend::Behavior;
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::tcp_proxy::{Fault, TcpProxy};
use ichido_testkit::wait::until;
use redis::AsyncCommands;

use super::{
    BOUND, LONG, SHORT, Scene, ask, event, flaky_primary, granted, is_new, key, mark, with_local, with_memory,
};
use crate::support::redis_client;

async fn declare_in_doubt(ledger: &Ledger, key: &Key) {
    let (grant, _) = granted(ledger, &ledger.request(key.clone())).await;
    assert_eq!(ledger.declare_in_doubt(key, grant.token, "status 500").await.unwrap(), Settled::Applied);
}

async fn complete(ledger: &Ledger, key: &Key, outcome: &'static str) {
    let (grant, _) = granted(ledger, &ledger.request(key.clone())).await;
    assert_eq!(ledger.complete(key, grant.token, Outcome::kept(outcome)).await.unwrap(), Settled::Applied);
}

/// All pages: a scan of a large server has many.
async fn in_doubt(ledger: &Ledger) -> Vec<Summary> {
    let mut query = Query { state: Some(StateName::InDoubt), limit: 1_000, ..Query::default() };
    let mut claims = Vec::new();
    loop {
        let page = ledger.list(&query).await.unwrap();
        claims.extend(page.claims);
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return claims,
        }
    }
}

fn reason(claim: Claim) -> Option<DoubtReason> {
    let Claim::InDoubt(doubt) = claim else { return None };
    Some(doubt.reason)
}

#[tokio::test]
async fn doubt_of_an_outage_is_doubt_for_all_instances_afterwards() {
    let scene = Scene::open(SHORT).await;
    let key = key();
    scene.outage().await;
    declare_in_doubt(&scene.ledger, &key).await;
    scene.recovery().await;
    let declared = Some(DoubtReason::Declared("status 500".to_owned()));
    for ledger in [&scene.other, &scene.ledger] {
        assert_eq!(reason(ask(ledger, &key).await.claim), declared);
    }
    let listed = in_doubt(&scene.other).await;
    assert_eq!((listed.len(), listed[0].key.as_str(), listed[0].local), (1, key.text(), false));
    assert_eq!(scene.counts.of("ichido_ledger_doubts_handed_over_total"), 1);
    assert_eq!(scene.other.resolve(&key, &Resolution::Absent).await.unwrap(), Resolved::Applied);
    granted(&scene.other, &scene.other.request(key.clone())).await;
}

#[tokio::test]
async fn operators_see_and_resolve_doubt_during_an_outage() {
    let scene = Scene::open(SHORT).await;
    let (happened, did_not, running) = (key(), key(), key());
    scene.outage().await;
    declare_in_doubt(&scene.ledger, &happened).await;
    declare_in_doubt(&scene.ledger, &did_not).await;
    granted(&scene.ledger, &scene.ledger.request(running.clone())).await;

    let query = Query { limit: 2, ..Query::default() };
    let first = scene.ledger.list(&query).await.unwrap();
    let rest = scene.ledger.list(&Query { cursor: first.cursor.clone(), ..query }).await.unwrap();
    assert!(rest.degraded, "the list says that it is not the whole ledger");
    assert!(first.claims.iter().chain(&rest.claims).all(|claim| claim.local));
    assert_eq!((first.claims.len(), rest.claims.len()), (2, 1));
    assert!(scene.ledger.is_pending_handover(&happened));
    assert!(scene.ledger.get(&happened).await.unwrap().is_some());
    let stats = scene.ledger.stats().await.unwrap();
    assert_eq!((stats.in_doubt, stats.running), (Some(2), Some(1)));
    let status = stats.fallback.unwrap();
    assert_eq!((status.degraded, status.pending_claims, status.refused), (true, 3, 0));

    let done = Resolution::Done(Outcome::kept("by hand"));
    assert_eq!(scene.ledger.resolve(&happened, &done).await.unwrap(), Resolved::Applied);
    assert_eq!(scene.ledger.resolve(&did_not, &Resolution::Absent).await.unwrap(), Resolved::Applied);
    let refused = scene.ledger.resolve(&running, &Resolution::Absent).await.unwrap();
    assert!(matches!(refused, Resolved::Refused(_)), "{refused:?}");

    scene.recovery().await;
    assert_eq!(ask(&scene.other, &happened).await.claim, Claim::Done(Outcome::kept("by hand")));
    granted(&scene.other, &scene.other.request(did_not)).await;
    let held = ask(&scene.other, &running).await.claim;
    assert!(matches!(held, Claim::Held { .. }), "{held:?}");
    let listed = scene.ledger.list(&Query { limit: 10, ..Query::default() }).await.unwrap();
    assert!(!listed.degraded && listed.claims.iter().all(|claim| !claim.local), "{listed:?}");
}

#[tokio::test]
async fn conflicts_are_kept_for_operators() {
    let scene = Scene::open(SHORT).await;
    let (done, doubted) = (key(), key());
    scene.outage().await;
    complete(&scene.ledger, &done, "here").await;
    declare_in_doubt(&scene.ledger, &doubted).await;
    complete(&scene.other, &done, "there").await;
    complete(&scene.other, &doubted, "there").await;
    scene.recovery().await;
    let conflicts = scene.ledger.fallback_status().await.unwrap().conflicts;
    for (key, local_state) in [(&done, StateName::Done), (&doubted, StateName::InDoubt)] {
        let found = conflicts.iter().find(|conflict| conflict.key == key.text()).expect("it is listed");
        assert_eq!((found.kind, found.count), (ConflictKind::Claim { local_state }, 1));
        assert_eq!(ask(&scene.ledger, key).await.claim, Claim::Done(Outcome::kept("there")));
    }
    assert_eq!(scene.counts.of("ichido_ledger_conflicts_total"), 2);
}

/// Records that are handed over move to the mirror. If the mirror is full, the local ledger keeps answering for
/// them.
#[tokio::test]
async fn records_that_do_not_fit_the_mirror_are_known_in_the_next_outage() {
    let server = LedgerServer::redis().await;
    let proxy = server.proxy();
    let settings = Settings { timeout: Duration::from_secs(2), ..Settings::default() };
    let primary = server.through(&proxy, settings).await;
    let local = ichido_ledger::memory::Memory::new(Arc::new(SystemClock::default()), 1_000);
    let narrow = FallbackSettings { pause: SHORT, mirror_bound: 1 };
    let ledger = primary.with_fallback(Arc::new(local), narrow).await.unwrap();
    let keys: Vec<_> = (0..5).map(|_| key()).collect();
    for out in [true, false, true] {
        proxy.set(if out { Fault::Refuse } else { Fault::None });
        wait_for_mode(&ledger, out).await;
        for key in &keys {
            let claim = ask(&ledger, key).await.claim;
            if let Claim::Granted(grant) = claim {
                let done = ledger.complete(key, grant.token, Outcome::kept("x")).await.unwrap();
                assert_eq!(done, Settled::Applied);
            } else {
                assert_eq!(claim, Claim::Done(Outcome::kept("x")));
            }
        }
    }
    for key in &keys {
        assert_eq!(ask(&ledger, key).await.claim, Claim::Done(Outcome::kept("x")), "granted once");
    }
}

/// Waits until the instance has noticed that the primary is unavailable, or available again.
async fn wait_for_mode(ledger: &Ledger, degraded: bool) {
    until("the change is noticed", || async { mark(ledger, &event()).await.degraded == degraded }).await;
}

/// A service on one machine, whose fallback is a directory.
struct Service {
    server: LedgerServer,
    proxy: TcpProxy,
    home: tempfile::TempDir,
}

impl Service {
    async fn new() -> Self {
        let server = LedgerServer::redis().await;
        let proxy = server.proxy();
        Self { server, proxy, home: tempfile::tempdir().unwrap() }
    }

    /// Starts an instance, even if the primary is unavailable.
    async fn start(&self) -> Ledger {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let options = OpenOptions { clock, admin: None };
        let backend = open_or_defer(&self.server.url_through(&self.proxy), &options).await.unwrap();
        let settings = Settings { timeout: Duration::from_secs(2), ..Settings::default() };
        with_local(&Ledger::new(backend, settings), open_dir(self.home.path()).await, SHORT).await
    }
}

/// The previous process may still be releasing the directory.
async fn open_dir(dir: &Path) -> Arc<dyn LocalBackend> {
    let opening = async {
        loop {
            match File::open(dir, FileSettings::default(), Arc::new(SystemClock::default())) {
                Ok(file) => return file,
                Err(error) if matches!(error.kind(), Kind::InUse(_)) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    Arc::new(tokio::time::timeout(BOUND, opening).await.expect("the directory is free"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_handover_survives_a_restart_and_reaches_the_primary() {
    let service = Service::new().await;
    let other = service.server.instance().await;
    let (done, doubted, running, remote, given_back) = (key(), key(), key(), key(), key());
    let marked = event();
    service.proxy.set(Fault::Refuse);
    {
        let ledger = service.start().await;
        assert!(is_new(&mark(&ledger, &marked).await));
        complete(&ledger, &done, "x").await;
        declare_in_doubt(&ledger, &doubted).await;
        granted(&ledger, &ledger.request(running.clone())).await;
        let caller = ichido_core::ClaimRequest { holder: Holder::Remote, ..ledger.request(remote.clone()) };
        granted(&ledger, &caller).await;
        let (grant, _) = granted(&ledger, &ledger.request(given_back.clone())).await;
        assert_eq!(ledger.release(&given_back, grant.token).await.unwrap(), Settled::Applied);
    }
    // Restarted while the primary is still unavailable.
    let ledger = service.start().await;
    assert!(!is_new(&mark(&ledger, &marked).await));
    assert_eq!(ask(&ledger, &done).await.claim, Claim::Done(Outcome::kept("x")));
    let declared = Some(DoubtReason::Declared("status 500".to_owned()));
    assert_eq!(reason(ask(&ledger, &doubted).await.claim), declared);
    assert_eq!(reason(ask(&ledger, &running).await.claim), Some(DoubtReason::HolderGone));
    assert!(matches!(ask(&ledger, &remote).await.claim, Claim::Held { .. }));

    // Restarted when it is available again: nothing is served before everything is handed over.
    drop(ledger);
    service.proxy.set(Fault::None);
    let ledger = service.start().await;
    for ledger in [&other, &ledger] {
        assert!(!is_new(&mark(ledger, &marked).await));
        assert_eq!(ask(ledger, &done).await.claim, Claim::Done(Outcome::kept("x")));
        assert_eq!(reason(ask(ledger, &doubted).await.claim), declared);
        assert_eq!(reason(ask(ledger, &running).await.claim), Some(DoubtReason::HolderGone));
        assert!(matches!(ask(ledger, &remote).await.claim, Claim::Held { .. }));
    }
    assert!(!mark(&ledger, &event()).await.degraded);
    granted(&other, &other.request(given_back)).await;
    let status = ledger.fallback_status().await.unwrap();
    assert_eq!((status.degraded, status.pending_claims, status.pending_marks), (false, 0, 0));
    // What was handed over is not pending again, whatever happened to it since.
    assert_eq!(other.resolve(&doubted, &Resolution::Absent).await.unwrap(), Resolved::Applied);
    drop(ledger);
    let ledger = service.start().await;
    assert!(matches!(ask(&ledger, &doubted).await.claim, Claim::Granted(_)));
}

/// The primary granted a claim but its reply was lost. The local ledger granted it instead, the holder released the
/// key, and the process exited. The primary must not keep the key for a holder that does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_of_an_outage_survives_a_restart() {
    for seed in 0..8 {
        let (primary, home, key) = (flaky_primary(seed), tempfile::tempdir().unwrap(), key());
        let settings = || Settings {
            // The local ledger has this timeout too, and syncs its file.
            timeout: Duration::from_secs(2),
            try_timeout: Duration::from_secs(2),
            ..Settings::default()
        };
        primary.all(Behavior::RandomlyLost);
        {
            let local = open_dir(home.path()).await;
            let ledger = with_local(&Ledger::new(primary.clone(), settings()), local, LONG).await;
            let (grant, _) = granted(&ledger, &ledger.request(key.clone())).await;
            assert_eq!(ledger.release(&key, grant.token).await.unwrap(), Settled::Applied);
        }
        primary.all(Behavior::Normal);
        let plain = Ledger::new(primary.clone(), Settings::default());
        let ledger = with_local(&plain, open_dir(home.path()).await, SHORT).await;
        wait_for_mode(&ledger, false).await;
        let claim = ask(&plain, &key).await.claim;
        assert!(matches!(claim, Claim::Granted(_)), "{claim:?} with seed {seed}");
    }
}

#[tokio::test]
async fn key_that_the_primary_cannot_read_blocks_no_others() {
    let server = LedgerServer::redis().await;
    let proxy = server.proxy();
    let settings = Settings { timeout: Duration::from_secs(2), ..Settings::default() };
    let ledger = with_memory(&server.through(&proxy, settings).await, SHORT).await;
    let other = server.instance().await;
    let (broken, whole) = (key(), key());
    let (broken_event, whole_event) = (event(), event());
    proxy.set(Fault::Refuse);
    for key in [&broken, &whole] {
        complete(&ledger, key, "x").await;
    }
    for event in [&broken_event, &whole_event] {
        assert!(is_new(&mark(&ledger, event).await));
    }
    let url: url::Url = server.url().parse().unwrap();
    let prefix = url.query_pairs().find(|(name, _)| name == "prefix").unwrap().1.into_owned();
    let names =
        [format!("{prefix}claim:{}", broken.index()), format!("{prefix}mark:{}", broken_event.index())];
    let mut client = redis_client(&format!("redis://{}", url.authority())).await;
    for name in &names {
        let _: () = client.set(name, "2 but not ours").await.unwrap();
    }

    proxy.set(Fault::None);
    wait_for_mode(&ledger, false).await;
    assert_eq!(ask(&other, &whole).await.claim, Claim::Done(Outcome::kept("x")));
    assert!(!is_new(&mark(&other, &whole_event).await));
    assert_eq!(ledger.fallback_status().await.unwrap().refused, 2);
    // Only the broken keys fail, and nothing else does.
    assert_eq!(ask(&ledger, &broken).await.claim, Claim::Done(Outcome::kept("x")), "known here");
    let error = ledger.mark(&[ledger.mark_request(broken_event.clone())]).await.unwrap_err();
    assert!(!error.is_outage(), "{error}");
    let error = other.claim(&other.request(broken.clone())).await.unwrap_err();
    assert!(!error.is_outage(), "{error}");
    assert!(!mark(&ledger, &event()).await.degraded);

    // Someone removes the broken values: pending records are handed over by themselves, and nothing is new in
    // between.
    for name in &names {
        let _: () = client.del(name).await.unwrap();
    }
    assert!(!is_new(&mark(&ledger, &broken_event).await));
    until("pending records are handed over", || async {
        ledger.maintain_fallback().await;
        ledger.fallback_status().await.unwrap().refused == 0
    })
    .await;
    assert_eq!(ask(&other, &broken).await.claim, Claim::Done(Outcome::kept("x")));
    assert!(!is_new(&mark(&other, &broken_event).await));
}
