//! Claims that were only granted: one value for each commit, until they end or are moved on.

use std::fs;
use std::path::Path;

use futures_util::future::join_all;
use ichido_core::{Caller, Claim, ClaimRequest, Holder, Metadata, Outcome, Settle, Settled};

use super::super::engine::{Engine, Expect};
use super::super::meta::{self, FORMAT, FORMAT_KEY, FORMAT_ONE, FORMAT_TWO};
use super::{File, LEASE_MS, RETENTION_MS, clock, complete, grant, key, open, request};
use crate::{Backend, Maintain, Query, StateName};

/// What lies in `grants`, `open` and `done`.
fn lengths(ledger: &File) -> [usize; 3] {
    let engine = ledger.shared.engine().unwrap();
    [&engine.grants, &engine.open, &engine.done].map(|keyspace| keyspace.len().unwrap())
}

async fn listed(ledger: &File, state: Option<StateName>, limit: usize) -> Vec<String> {
    let mut query = Query { state, limit, ..Query::default() };
    let mut keys = Vec::new();
    loop {
        let page = ledger.list(&query).await.unwrap();
        assert!(page.claims.len() <= limit);
        keys.extend(page.claims.into_iter().map(|claim| claim.key));
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return keys,
        }
    }
}

#[tokio::test]
async fn a_claim_that_ends_is_written_once_and_its_grant_goes() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    for number in 0..50 {
        complete(&ledger, &format!("k{number}"), 1, "x").await;
    }
    let [grants, open, done] = lengths(&ledger);
    assert!(grants <= 2, "{grants} values are left");
    assert_eq!((open, done), (0, 50));
    assert_eq!(ledger.shared.engine().unwrap().outcomes.len().unwrap(), 0, "small outcomes need no value");
}

#[tokio::test]
async fn a_large_outcome_lies_apart_and_goes_with_its_claim() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let (small, large) = ("s".repeat(2048), "l".repeat(2049));
    complete(&ledger, "small", 1, &small).await;
    complete(&ledger, "large", 1, &large).await;
    assert_eq!(ledger.shared.engine().unwrap().outcomes.len().unwrap(), 1);
    let page = ledger.list(&Query { limit: 10, ..Query::default() }).await.unwrap();
    let mut lengths: Vec<_> = page.claims.iter().map(|claim| claim.outcome_bytes).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [Some(2048), Some(2049)]);
    ledger.close().await.unwrap();

    let ledger = open(dir.path(), &clock);
    for (text, outcome) in [("small", small), ("large", large)] {
        let told = ledger.claim(&request(text, 2)).await.unwrap();
        assert_eq!(told, Claim::Done(Outcome::kept(outcome)));
    }
    clock.advance(RETENTION_MS);
    assert_eq!(ledger.sweep(10).await.unwrap().removed, 2);
    let engine = ledger.shared.engine().unwrap();
    assert_eq!((engine.done.len().unwrap(), engine.outcomes.len().unwrap()), (0, 0));
}

#[tokio::test]
async fn what_was_said_of_a_grant_holds_after_a_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    // It keeps every value of `grants` where it is.
    grant(&ledger, "first", 1).await;
    for (text, word) in [
        ("released", Settle::Release),
        ("renewed", Settle::Renew { lease_ms: LEASE_MS }),
        ("doubted", Settle::Doubt("who knows".to_owned())),
        ("completed", Settle::Complete(Outcome::kept("x"))),
    ] {
        let grant = grant(&ledger, text, 1).await;
        assert_eq!(ledger.settle(&key(text), grant.token, &word).await.unwrap(), Settled::Applied);
    }
    let mut short = request("forgotten", 1);
    short.retention_ms = 10;
    assert!(matches!(ledger.claim(&short).await.unwrap(), Claim::Granted(_)));
    let word = Settle::Complete(Outcome::kept("x"));
    assert_eq!(ledger.settle(&short.key, short.token, &word).await.unwrap(), Settled::Applied);
    clock.advance(20);
    assert_eq!(ledger.sweep(10).await.unwrap().removed, 1);
    assert!(lengths(&ledger)[0] > 4, "the first grant is there, so the notes behind it are");
    ledger.close().await.unwrap();

    let ledger = open(dir.path(), &clock);
    assert_eq!(lengths(&ledger), [0, 3, 1], "grants that did not end are in `open`");
    for (text, free) in
        [("first", false), ("released", true), ("renewed", false), ("doubted", false), ("forgotten", true)]
    {
        let told = ledger.claim(&request(text, 2)).await.unwrap();
        assert_eq!(matches!(told, Claim::Granted(_)), free, "{text}: {told:?}");
    }
    assert!(matches!(ledger.claim(&request("completed", 2)).await.unwrap(), Claim::Done(_)));
}

#[tokio::test]
async fn lists_and_counts_have_fresh_claims_in_their_places() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let mut all = Vec::new();
    for number in 0..60 {
        let text = format!("k{number}");
        let grant = grant(&ledger, &text, 1).await;
        match number % 3 {
            0 => {}
            1 => {
                let word = Settle::Renew { lease_ms: LEASE_MS };
                assert_eq!(ledger.settle(&key(&text), grant.token, &word).await.unwrap(), Settled::Applied);
            }
            _ => {
                let word = Settle::Complete(Outcome::kept("x"));
                assert_eq!(ledger.settle(&key(&text), grant.token, &word).await.unwrap(), Settled::Applied);
                continue;
            }
        }
        all.push((key(&text).index(), text));
    }
    all.sort();
    let all: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
    let stats = ledger.stats().await.unwrap();
    assert_eq!((stats.running, stats.in_doubt, stats.done), (Some(40), Some(0), Some(20)));
    for limit in [1, 7, 40, 100] {
        assert_eq!(listed(&ledger, Some(StateName::Running), limit).await, all, "pages of {limit}");
        assert_eq!(listed(&ledger, None, limit).await.len(), 60, "pages of {limit}");
    }
    clock.advance(LEASE_MS);
    let stats = ledger.stats().await.unwrap();
    assert_eq!((stats.running, stats.in_doubt), (Some(0), Some(40)));
    assert_eq!(listed(&ledger, Some(StateName::InDoubt), 9).await, all);
}

/// More at once than are kept in memory: what is beyond goes to `open`, and older ones follow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claims_at_once_are_all_held_and_all_end() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    let texts: Vec<String> = (0..9_000).map(|number| format!("k{number}")).collect();
    let grants = join_all(texts.iter().map(|text| grant(&ledger, text, 1))).await;
    let in_open = lengths(&ledger)[1];
    assert!((9_000 - 8_192..9_000).contains(&in_open), "{in_open} in `open`");
    let again = join_all(texts.iter().map(|text| async { ledger.claim(&request(text, 2)).await.unwrap() }));
    assert!(again.await.iter().all(|claim| matches!(claim, Claim::Held { .. })));
    let ends = texts.iter().zip(&grants).map(|(text, grant)| {
        let word = Settle::Complete(Outcome::kept("x"));
        let (ledger, key) = (&ledger, key(text));
        async move { ledger.settle(&key, grant.token, &word).await.unwrap() }
    });
    assert!(join_all(ends).await.iter().all(|settled| *settled == Settled::Applied));
    complete(&ledger, "last", 1, "x").await;
    let [grants, open, done] = lengths(&ledger);
    assert!(grants <= 2, "{grants} values are left");
    assert_eq!((open, done), (0, 9_001));
}

/// A claim that goes on for long does not keep the values of all later commits.
#[tokio::test]
async fn old_grants_are_moved_on() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let mut slow = request("slow", 1);
    (slow.holder, slow.lease_ms) = (Holder::Remote, 86_400_000);
    assert!(matches!(ledger.claim(&slow).await.unwrap(), Claim::Granted(_)));
    for number in 0..2_100 {
        complete(&ledger, &format!("k{number}"), 1, "x").await;
    }
    let [grants, in_open, _] = lengths(&ledger);
    assert!(grants < 200 && in_open == 1, "{grants} values, {in_open} in `open`");
    assert!(matches!(ledger.claim(&request("slow", 2)).await.unwrap(), Claim::Held { .. }));
    ledger.close().await.unwrap();
    let ledger = open(dir.path(), &clock);
    let word = Settle::Complete(Outcome::kept("after all"));
    assert_eq!(ledger.settle(&slow.key, slow.token, &word).await.unwrap(), Settled::Applied);
}

/// Neither does it if these are few and large: what lies in `grants` is read at opening, all of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_grants_are_moved_on_sooner() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    grant(&ledger, "slow", 1).await;
    for round in 0..12 {
        let claims = (0..256).map(|number| {
            let mut large = request(&format!("k{round}-{number}"), 1);
            large.metadata = Metadata::new([("note".to_owned(), "x".repeat(8_000))]).unwrap();
            let ledger = &ledger;
            async move {
                assert!(matches!(ledger.claim(&large).await.unwrap(), Claim::Granted(_)));
                let word = Settle::Complete(Outcome::kept("x"));
                assert_eq!(ledger.settle(&large.key, large.token, &word).await.unwrap(), Settled::Applied);
            }
        });
        join_all(claims).await;
    }
    let engine = ledger.shared.engine().unwrap();
    let bytes: usize = engine.grants.iter().map(|guard| guard.into_inner().unwrap().1.len()).sum();
    assert!(bytes < 18 << 20, "{bytes} of 24 MB are left");
    assert_eq!(lengths(&ledger)[1], 1, "the slow one is in `open`");
    assert!(matches!(ledger.claim(&request("slow", 2)).await.unwrap(), Claim::Held { .. }));
}

/// Claims of holders that are gone give way to those that come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_nobody_ends_make_room_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let texts: Vec<String> = (0..8_192).map(|number| format!("gone{number}")).collect();
    join_all(texts.iter().map(|text| grant(&ledger, text, 1))).await;
    complete(&ledger, "one", 1, "x").await;
    let before = lengths(&ledger);
    assert!((1..8_192).contains(&before[1]), "{before:?}");
    for number in 0..20 {
        complete(&ledger, &format!("k{number}"), 1, "x").await;
    }
    assert_eq!(lengths(&ledger)[1], before[1], "new claims are fresh, and no others had to give way");
    ledger.close().await.unwrap();

    let ledger = open(dir.path(), &clock);
    assert_eq!(lengths(&ledger), [0, 8_192, 21]);
    clock.advance(LEASE_MS);
    assert_eq!(ledger.stats().await.unwrap().in_doubt, Some(8_192));
}

fn without_grants(dir: &Path, format: u32) {
    let engine = Engine::open(dir, &dir.join("store"), Expect::Whole).unwrap();
    engine.meta.insert(FORMAT_KEY, meta::encode_format(format).as_slice()).unwrap();
    engine.db.delete_keyspace(engine.grants.clone()).unwrap();
}

#[tokio::test]
async fn a_store_of_the_format_before_is_read_and_raised() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let large = "l".repeat(3_000);
    complete(&ledger, "done", 1, &large).await;
    let grant = super::grant(&ledger, "open", 1).await;
    let word = Settle::Renew { lease_ms: LEASE_MS };
    assert_eq!(ledger.settle(&key("open"), grant.token, &word).await.unwrap(), Settled::Applied);
    ledger.close().await.unwrap();

    // As the version before left it: every outcome apart, and no `grants`.
    without_grants(dir.path(), FORMAT_ONE);
    fs::write(dir.path().join("format"), "ichido ledger, format 1\n").unwrap();

    let ledger = open(dir.path(), &clock);
    let told = ledger.claim(&request("done", 2)).await.unwrap();
    assert_eq!(told, Claim::Done(Outcome::kept(large)));
    assert!(matches!(ledger.claim(&request("open", 2)).await.unwrap(), Claim::InDoubt(_)));
    assert_eq!(ledger.shared.engine().unwrap().check_format(dir.path()).unwrap(), FORMAT);
    ledger.close().await.unwrap();
    assert_eq!(
        fs::read_to_string(dir.path().join("format")).unwrap(),
        format!("ichido ledger, format {FORMAT}\n")
    );

    without_grants(dir.path(), FORMAT);
    let missing = File::open(dir.path(), super::FileSettings::default(), clock).unwrap_err();
    assert!(missing.to_string().contains("a keyspace is missing"), "{missing}");
}

#[tokio::test]
async fn a_store_without_callers_is_read_and_raised() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    complete(&ledger, "done", 1, "answer").await;
    ledger.close().await.unwrap();
    let engine = Engine::open(dir.path(), &dir.path().join("store"), Expect::Whole).unwrap();
    engine.meta.insert(FORMAT_KEY, meta::encode_format(FORMAT_TWO).as_slice()).unwrap();
    drop(engine);
    fs::write(dir.path().join("format"), "ichido ledger, format 2\n").unwrap();

    let ledger = open(dir.path(), &clock);
    let caller = Some(Caller::from_bytes([1; 32]));
    let asked = ClaimRequest { caller, ..request("done", 2) };
    assert_eq!(ledger.claim(&asked).await.unwrap(), Claim::CallerChanged);
    let shared = request("done", 2);
    assert_eq!(ledger.claim(&shared).await.unwrap(), Claim::Done(Outcome::kept("answer")));
    let text = fs::read_to_string(dir.path().join("format")).unwrap();
    assert_eq!(text, format!("ichido ledger, format {FORMAT}\n"), "an older version refuses it from now on");
}

/// Fresh, in `open`, and done with its outcome in the record or apart.
#[tokio::test]
async fn a_caller_is_kept_wherever_its_claim_lies() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    let caller = Some(Caller::from_bytes([1; 32]));
    let asked = |text, nonce| ClaimRequest { caller, ..request(text, nonce) };
    let large = "l".repeat(3_000);
    for (text, outcome) in [("fresh", None), ("small", Some("s")), ("large", Some(large.as_str()))] {
        let Claim::Granted(grant) = ledger.claim(&asked(text, 1)).await.unwrap() else { panic!("{text}") };
        if let Some(outcome) = outcome {
            let word = Settle::Complete(Outcome::kept(outcome.to_owned()));
            assert_eq!(ledger.settle(&key(text), grant.token, &word).await.unwrap(), Settled::Applied);
        }
    }
    let refused = async |ledger: &File| {
        for text in ["fresh", "small", "large"] {
            let other = ClaimRequest { caller: Some(Caller::from_bytes([2; 32])), ..request(text, 2) };
            assert_eq!(ledger.claim(&other).await.unwrap(), Claim::CallerChanged, "{text}");
        }
    };
    refused(&ledger).await;
    ledger.close().await.unwrap();
    let ledger = open(dir.path(), &clock);
    refused(&ledger).await;
    assert!(matches!(ledger.claim(&asked("fresh", 3)).await.unwrap(), Claim::InDoubt(_)));
    assert_eq!(ledger.claim(&asked("large", 3)).await.unwrap(), Claim::Done(Outcome::kept(large.clone())));
    let other = ClaimRequest { caller: Some(Caller::from_bytes([2; 32])), ..request("large", 4) };
    assert_eq!(ledger.cached_claim(&other), Some(Claim::CallerChanged), "from memory, too");
}

/// The first opening by this version may be cut off while the engine makes `grants`.
#[tokio::test]
async fn raising_that_was_interrupted_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let ledger = open(dir.path(), &clock);
    complete(&ledger, "done", 1, "x").await;
    ledger.close().await.unwrap();
    without_grants(dir.path(), FORMAT_ONE);
    let unfinished = dir.path().join("store/keyspaces/99");
    let leave = || {
        fs::create_dir_all(unfinished.join("tables")).unwrap();
        fs::write(unfinished.join("v0"), "cut").unwrap();
    };
    let refused = || File::open(dir.path(), super::FileSettings::default(), clock.clone()).unwrap_err();

    leave();
    assert!(refused().to_string().contains("99"), "in a store of our own format it is damage");
    fs::write(dir.path().join("format"), "ichido ledger, format 1\n").unwrap();
    fs::write(unfinished.join("tables/0"), "x").unwrap();
    assert!(refused().to_string().contains("99"), "what has tables was in use");
    fs::remove_file(unfinished.join("tables/0")).unwrap();

    for opening in 0..2 {
        let ledger = open(dir.path(), &clock);
        assert!(matches!(ledger.claim(&request("done", 2)).await.unwrap(), Claim::Done(_)), "{opening}");
        complete(&ledger, &format!("more{opening}"), 1, "x").await;
        ledger.close().await.unwrap();
    }
    assert!(!unfinished.join("v0").exists(), "the engine has removed it");
}
