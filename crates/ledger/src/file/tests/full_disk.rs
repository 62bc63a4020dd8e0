//! A full disk: nothing is acknowledged that does not last, and the ledger goes on by itself once there is room.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ichido_core::{Claim, Fingerprint, Outcome, Settle, Settled};

use super::{clock, key, open, request};
use crate::{Backend, Effect, Kind, Maintain};

/// A mounted file system of one's own; only root may have one.
pub(super) struct Mount(PathBuf);

impl Mount {
    #[allow(clippy::print_stderr, reason = "a test that is left out must say so")]
    pub(super) fn tmpfs(path: &Path, options: &str) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(path.to_owned()));
        }
        eprintln!("LEFT OUT: this test needs leave to mount a tmpfs (run it as root)");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_acknowledges_nothing_and_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = Mount::tmpfs(dir.path(), "size=24m") else { return };
    let ledger = open(&dir.path().join("ledger"), &clock());
    let ballast = dir.path().join("ballast");
    fs::write(&ballast, vec![1; 16 * 1024 * 1024]).unwrap();

    // Hashes: bytes that do not get smaller.
    let body = |number: u32| -> Vec<u8> {
        (0..1024_u32)
            .flat_map(|part| *Fingerprint::of([number.to_be_bytes(), part.to_be_bytes()]).as_bytes())
            .collect()
    };
    let held = ["held", "told"].map(|text| request(text, 1));
    for request in &held {
        assert!(matches!(ledger.claim(request).await.unwrap(), Claim::Granted(_)));
    }
    let mut acknowledged = Vec::new();
    let mut error = None;
    for number in 0..2_000 {
        let text = format!("k{number}");
        let result = async {
            let claim = ledger.claim(&request(&text, 1)).await?;
            assert!(matches!(claim, Claim::Granted(_)));
            let word = Settle::Complete(Outcome::kept(body(number)));
            ledger.settle(&key(&text), request(&text, 1).token, &word).await
        };
        match result.await {
            Ok(settled) => {
                assert_eq!(settled, Settled::Applied);
                acknowledged.push(number);
            }
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
    }
    let error = error.expect("the disk should have been full");
    assert_eq!(error.kind(), &Kind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("disk is full") && text.contains(dir.path().to_str().unwrap()), "{text}");
    assert!(!acknowledged.is_empty());

    fs::remove_file(&ballast).unwrap();
    let mut works = false;
    for _ in 0..200 {
        if ledger.claim(&request("afterwards", 1)).await.is_ok() {
            works = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(works, "there is room, and yet it does not go on");
    for number in &acknowledged {
        let done = ledger.claim(&request(&format!("k{number}"), 2)).await.unwrap();
        assert_eq!(done, Claim::Done(Outcome::kept(body(*number))));
    }
    // What was only granted outlives the engine that had it in memory.
    for request in &held {
        assert!(matches!(ledger.claim(request).await.unwrap(), Claim::Granted(_)), "the same call again");
        let other = super::request(request.key.text(), 2);
        assert!(matches!(ledger.claim(&other).await.unwrap(), Claim::Held { .. }));
    }
    let word = Settle::Complete(Outcome::kept("after all"));
    assert_eq!(ledger.settle(&held[1].key, held[1].token, &word).await.unwrap(), Settled::Applied);
    // Where a table met the full disk before the commit did, the call was never tried, and says so.
    if error.effect() == Effect::None {
        let untried = ledger.claim(&request(&format!("k{}", acknowledged.len()), 2)).await.unwrap();
        assert!(!matches!(untried, Claim::Done(_)), "{untried:?}");
    }
    ledger.close().await.unwrap();
    let ledger = open(&dir.path().join("ledger"), &clock());
    assert_eq!(ledger.stats().await.unwrap().done.unwrap(), 1 + ledger_done(&acknowledged, &ledger).await);
    assert!(matches!(ledger.claim(&request("held", 2)).await.unwrap(), Claim::InDoubt(_)));
}

/// The acknowledged ones, and the one in between if it turns out to have happened.
async fn ledger_done(acknowledged: &[u32], ledger: &super::File) -> u64 {
    let next = acknowledged.last().unwrap() + 1;
    let between = ledger.claim(&request(&format!("k{next}"), 2)).await.unwrap();
    acknowledged.len() as u64 + u64::from(matches!(between, Claim::Done(_)))
}
