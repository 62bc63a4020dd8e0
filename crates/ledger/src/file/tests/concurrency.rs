//! Many callers at once: one of them is granted the claim, and no answer contradicts an earlier one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ichido_core::{Claim, Outcome, Settle};

use super::{clock, key, open, request};
use crate::{Backend, Maintain};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_many_callers_is_granted_the_claim() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Arc::new(open(dir.path(), &clock()));
    let winners: Arc<Vec<AtomicUsize>> = Arc::new((0..200).map(|_| AtomicUsize::new(0)).collect());
    let callers = (1..=32_u8).map(|caller| {
        let (ledger, winners) = (ledger.clone(), winners.clone());
        tokio::spawn(async move {
            for (number, winner) in winners.iter().enumerate() {
                let claim = ledger.claim(&request(&format!("k{number}"), caller)).await.unwrap();
                assert!(matches!(claim, Claim::Granted(_) | Claim::Held { .. }), "{claim:?}");
                winner.fetch_add(usize::from(matches!(claim, Claim::Granted(_))), Ordering::SeqCst);
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    assert!(winners.iter().all(|winner| winner.load(Ordering::SeqCst) == 1));
}

/// Keys are claimed and released again and again by many callers. Only one of them holds a key at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_has_one_holder_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Arc::new(open(dir.path(), &clock()));
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..8).map(|_| AtomicUsize::new(0)).collect());
    let callers = (1..=24_u8).map(|caller| {
        let (ledger, inside) = (ledger.clone(), inside.clone());
        tokio::spawn(async move {
            let mut grants = 0;
            for turn in 0..400_usize {
                let number = (turn + usize::from(caller)) % inside.len();
                let text = format!("k{number}");
                let mut ask = request(&text, caller);
                ask.nonce =
                    ichido_core::Nonce::from_bytes(((turn as u128) << 8 | u128::from(caller)).to_be_bytes());
                ask.token = ichido_core::Token::from_bytes(*ask.nonce.as_bytes());
                if let Claim::Granted(grant) = ledger.claim(&ask).await.unwrap() {
                    assert_eq!(inside[number].fetch_add(1, Ordering::SeqCst), 0, "two callers hold {text}");
                    tokio::task::yield_now().await;
                    inside[number].fetch_sub(1, Ordering::SeqCst);
                    let settled = ledger.settle(&key(&text), grant.token, &Settle::Release).await.unwrap();
                    assert_eq!(settled, ichido_core::Settled::Applied);
                    grants += 1;
                }
            }
            grants
        })
    });
    let mut grants = 0;
    for caller in callers.collect::<Vec<_>>() {
        grants += caller.await.unwrap();
    }
    assert!(grants > 100, "{grants}");
}

/// Once a key is done for one caller, it is done for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn done_stays_done_for_everyone() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Arc::new(open(dir.path(), &clock()));
    let keys = 200;
    let done = Arc::new(AtomicUsize::new(0));
    let worker = tokio::spawn({
        let (ledger, done) = (ledger.clone(), done.clone());
        async move {
            for number in 0..keys {
                let text = format!("k{number}");
                let Claim::Granted(grant) = ledger.claim(&request(&text, 1)).await.unwrap() else { panic!() };
                let action = Settle::Complete(Outcome::kept(text.clone()));
                drop(ledger.settle(&key(&text), grant.token, &action).await.unwrap());
                done.store(number + 1, Ordering::SeqCst);
            }
        }
    });
    let askers = (2..6_u8).map(|caller| {
        let (ledger, done) = (ledger.clone(), done.clone());
        tokio::spawn(async move {
            while done.load(Ordering::SeqCst) < keys {
                for number in 0..done.load(Ordering::SeqCst) {
                    let text = format!("k{number}");
                    let answer = ledger.claim(&request(&text, caller)).await.unwrap();
                    assert_eq!(answer, Claim::Done(Outcome::kept(text)));
                }
                tokio::task::yield_now().await;
            }
        })
    });
    for asker in askers.collect::<Vec<_>>() {
        asker.await.unwrap();
    }
    worker.await.unwrap();
    ledger.close().await.unwrap();
}
