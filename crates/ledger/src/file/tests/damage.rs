//! Damage: the ledger opens with all that was acknowledged, or refuses with a clear word. It never panics, and never
//! grants an acknowledged key again.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ichido_core::{Claim, Outcome};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::{File, FileSettings};
use super::{clock, complete, grant, open, request};
use crate::{Backend, Kind, Maintain, Result};

const DONE: usize = 60;
const RUNNING: usize = 30;

/// The directory as kill -9 would leave it: some of it in tables, the rest in the journal.
async fn image() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    for number in 0..DONE {
        if number == DONE / 2 {
            assert!(ledger.shared.engine().unwrap().flush().unwrap());
        }
        complete(&ledger, &format!("done-{number}"), 1, &outcome(number)).await;
        if number < RUNNING {
            grant(&ledger, &format!("open-{number}"), 1).await;
        }
    }
    let image = copy(dir.path());
    ledger.close().await.unwrap();
    image
}

fn outcome(number: usize) -> String {
    // Some of them lie apart from their claims.
    format!("outcome {number} ").repeat(1 + number % 40 * 6)
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for path in files(from) {
        let target = to.path().join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            // The engine makes room ahead; a few zeros of it will do.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.resize(bytes.len().min(used + 4096), 0);
        }
        fs::write(target, bytes).unwrap();
    }
    to
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Opens what is there and asks for every acknowledged key.
async fn verdict(dir: &Path) -> Result<()> {
    let ledger = File::open(dir, FileSettings::default(), clock())?;
    let asked = ask_all(&ledger).await;
    ledger.close().await.unwrap();
    asked
}

async fn ask_all(ledger: &File) -> Result<()> {
    let mut flaw = Ok(());
    for number in 0..DONE {
        match ledger.claim(&request(&format!("done-{number}"), 9)).await {
            Ok(Claim::Done(told)) => {
                assert_eq!(told, Outcome::kept(outcome(number)), "done-{number} is torn")
            }
            Ok(other) => panic!("done-{number}: {other:?}"),
            Err(error) => flaw = Err(error),
        }
    }
    for number in 0..RUNNING {
        match ledger.claim(&request(&format!("open-{number}"), 9)).await {
            Ok(Claim::InDoubt(_)) => {}
            Ok(other) => panic!("open-{number}: {other:?}"),
            Err(error) => flaw = Err(error),
        }
    }
    flaw
}

async fn damaged(image: &Path, what: &str, harm: impl FnOnce(&Path)) -> Result<()> {
    let copy = copy(image);
    harm(copy.path());
    let verdict = verdict(copy.path()).await;
    if let Err(error) = &verdict {
        let clear = matches!(error.kind(), Kind::Corrupt(_) | Kind::Schema(_));
        assert!(clear, "{what}: {error:?}");
    }
    verdict
}

#[tokio::test]
async fn whatever_byte_is_damaged_nothing_is_granted_twice() {
    let seed: u64 = 20_251_118;
    let mut chance = StdRng::seed_from_u64(seed);
    let image = image().await;
    assert!(verdict(copy(image.path()).path()).await.is_ok(), "the image itself is whole");
    for path in files(image.path()) {
        let name = path.strip_prefix(image.path()).unwrap().to_owned();
        let length = fs::metadata(&path).unwrap().len();
        for _ in 0..if length == 0 { 0 } else { 6 } {
            let (at, mask) = (chance.random_range(0..length), chance.random_range(1..=255_u8));
            let what = format!("seed {seed}: {} at {at} ^ {mask}", name.display());
            drop(damaged(image.path(), &what, |dir| flip(&dir.join(&name), at, mask)).await);
        }
        for share in [0, 3, 7] {
            let what = format!("seed {seed}: {} cut to {share}/8", name.display());
            drop(damaged(image.path(), &what, |dir| cut(&dir.join(&name), length * share / 8)).await);
        }
    }
}

#[tokio::test]
async fn whatever_file_is_missing_nothing_is_granted_twice() {
    let image = image().await;
    for path in files(image.path()) {
        let name = path.strip_prefix(image.path()).unwrap().to_owned();
        let what = format!("{} removed", name.display());
        drop(damaged(image.path(), &what, |dir| fs::remove_file(dir.join(&name)).unwrap()).await);
    }
    let missing = damaged(image.path(), "store", |dir| fs::remove_dir_all(dir.join("store")).unwrap()).await;
    assert!(matches!(missing.unwrap_err().kind(), Kind::Corrupt(_)), "a lost store is no new store");
}

#[tokio::test]
async fn a_store_that_fell_behind_is_refused_and_left_as_it_is() {
    let image = image().await;
    let journal = newest_journal(image.path());
    let used = fs::metadata(image.path().join(&journal)).unwrap().len();
    // Every cut of the last kilobytes loses an acknowledged commit.
    for back in [4096 + 1, 4096 + 100, 4096 + 700] {
        let copy = copy(image.path());
        cut(&copy.path().join(&journal), used - back);
        let before = fs::read(copy.path().join(&journal)).unwrap();
        let error = verdict(copy.path()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("was acknowledged") && text.contains("restore"), "{text}");
        assert_eq!(fs::read(copy.path().join(&journal)).unwrap(), before, "the evidence is kept");
        fs::remove_file(copy.path().join("high-water")).unwrap();
        let ledger = File::open(copy.path(), FileSettings::default(), clock()).unwrap();
        assert!(
            ledger.stats().await.unwrap().done.unwrap() >= 50,
            "the operator's word opens it all the same"
        );
    }
}

#[tokio::test]
async fn a_damaged_tag_in_mid_journal_is_noticed() {
    let image = image().await;
    let journal = newest_journal(image.path());
    let bytes = fs::read(image.path().join(&journal)).unwrap();
    let trailers: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, four)| *four == b"FJL\x03").map(|(at, _)| at).collect();
    let middle = trailers[trailers.len() / 2] as u64;
    // The engine would cut the journal here without a word.
    let error =
        damaged(image.path(), "a trailer", |dir| flip(&dir.join(&journal), middle, 0xff)).await.unwrap_err();
    assert!(error.to_string().contains("was acknowledged"), "{error}");
    let error =
        damaged(image.path(), "a tag", |dir| flip(&dir.join(&journal), middle + 4, 0x40)).await.unwrap_err();
    assert!(error.to_string().contains("was acknowledged"), "{error}");
}

/// Power loss in the middle of a commit: its pages arrive in any order, and nobody was told of it.
#[tokio::test]
async fn a_torn_commit_that_nobody_was_told_of_is_cut_off() {
    let image = image().await;
    let journal = newest_journal(image.path());
    let bytes = fs::read(image.path().join(&journal)).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let error = damaged(image.path(), "acknowledged", |dir| flip(&dir.join(&journal), used - 30, 1)).await;
    assert!(error.is_err(), "a damaged commit that was acknowledged is a loss");

    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "x").await;
    let mark = fs::read(dir.path().join("high-water")).unwrap();
    grant(&ledger, "torn", 1).await;
    let copy = copy(dir.path());
    ledger.close().await.unwrap();
    fs::write(copy.path().join("high-water"), mark).unwrap();
    let journal = copy.path().join(newest_journal(copy.path()));
    let used = fs::read(&journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
    flip(&journal, used - 30, 1);
    let ledger = open(copy.path(), &clock());
    assert!(matches!(ledger.claim(&request("k", 2)).await.unwrap(), Claim::Done(_)));
    assert!(matches!(ledger.claim(&request("torn", 2)).await.unwrap(), Claim::Granted(_)));
}

fn newest_journal(dir: &Path) -> PathBuf {
    let journals =
        files(&dir.join("store")).into_iter().filter(|path| path.extension().is_some_and(|e| e == "jnl"));
    journals.max().unwrap().strip_prefix(dir).unwrap().to_owned()
}

fn flip(path: &Path, at: u64, mask: u8) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ mask], at).unwrap();
}

fn cut(path: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}
