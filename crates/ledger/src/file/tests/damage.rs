//! Damage: the ledger opens with everything that was acknowledged, or refuses in one clear line. It never panics, and never
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
const FIRST: &str = "00000001.log";
const SECOND: &str = "00000002.log";

/// The directory as kill -9 would leave it, with a full segment, its index, and outcomes in files of their own.
async fn image() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    for number in 0..DONE {
        if number == DONE / 2 {
            ledger.ask(|reply| crate::log::Call::Rotate { reply }).await.unwrap();
        }
        complete(&ledger, &format!("done-{number}"), 1, &outcome(number)).await;
        if number < RUNNING {
            grant(&ledger, &format!("open-{number}"), 1).await;
        }
    }
    ichido_testkit::wait::eventually("an index", || dir.path().join("00000001.index").exists().then_some(()));
    // The index is complete once a task after it was done.
    ledger.verify().await.unwrap();
    let image = copy(dir.path());
    ledger.close().await.unwrap();
    image
}

fn outcome(number: usize) -> String {
    let length = if number.is_multiple_of(20) { 20_000 } else { 1 + number % 40 * 6 };
    format!("outcome {number} ").repeat(length)
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for path in files(from) {
        let mut bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "log") {
            // A few of the zeros ahead of use will do.
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.resize(bytes.len().min(used + 4096), 0);
        }
        fs::write(to.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    to
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Opens what is there and claims every acknowledged key.
async fn open_and_claim(dir: &Path) -> Result<()> {
    let ledger = File::open(dir, FileSettings::default(), clock())?;
    let claimed = claim_all(&ledger).await;
    ledger.close().await.unwrap();
    claimed
}

async fn claim_all(ledger: &File) -> Result<()> {
    let mut result = Ok(());
    for number in 0..DONE {
        match ledger.claim(&request(&format!("done-{number}"), 9)).await {
            Ok(Claim::Done(kept)) => assert_eq!(kept, Outcome::kept(outcome(number)), "done-{number}"),
            Ok(other) => panic!("done-{number}: {other:?}"),
            Err(error) => result = Err(error),
        }
    }
    for number in 0..RUNNING {
        match ledger.claim(&request(&format!("open-{number}"), 9)).await {
            Ok(Claim::InDoubt(_)) => {}
            Ok(other) => panic!("open-{number}: {other:?}"),
            Err(error) => result = Err(error),
        }
    }
    result
}

async fn damaged(image: &Path, what: &str, damage: impl FnOnce(&Path)) -> Result<()> {
    let copy = copy(image);
    damage(copy.path());
    let result = open_and_claim(copy.path()).await;
    if let Err(error) = &result {
        let is_clear = matches!(error.kind(), Kind::Corrupt(_) | Kind::Schema(_));
        assert!(is_clear && !error.to_string().contains('\n'), "{what}: {error:?}");
    }
    result
}

#[tokio::test]
async fn whatever_byte_is_damaged_nothing_is_granted_twice() {
    let seed: u64 = 20_251_118;
    let mut random = StdRng::seed_from_u64(seed);
    let image = image().await;
    assert!(open_and_claim(copy(image.path()).path()).await.is_ok(), "the image itself is intact");
    for path in files(image.path()) {
        let name = path.file_name().unwrap().to_owned();
        let length = fs::metadata(&path).unwrap().len();
        for _ in 0..if length == 0 { 0 } else { 12 } {
            let (at, mask) = (random.random_range(0..length), random.random_range(1..=255_u8));
            let what = format!("seed {seed}: {name:?} at {at} ^ {mask}");
            drop(damaged(image.path(), &what, |dir| flip(&dir.join(&name), at, mask)).await);
        }
        for share in [0, 3, 7] {
            let what = format!("seed {seed}: {name:?} cut to {share}/8");
            drop(damaged(image.path(), &what, |dir| cut(&dir.join(&name), length * share / 8)).await);
        }
    }
}

#[tokio::test]
async fn whatever_file_is_missing_nothing_is_granted_twice() {
    let image = image().await;
    for path in files(image.path()) {
        let name = path.file_name().unwrap().to_owned();
        let remove = |dir: &Path| fs::remove_file(dir.join(&name)).unwrap();
        let result = damaged(image.path(), &format!("{name:?} removed"), remove).await;
        let is_needed =
            name.to_str().is_some_and(|name| name.ends_with(".log") || name.starts_with("outcome"));
        assert_eq!(result.is_err(), is_needed || name == "format", "{name:?}: {result:?}");
    }
}

#[tokio::test]
async fn a_damaged_index_is_rebuilt() {
    let image = image().await;
    let index = "00000001.index";
    damaged(image.path(), index, |dir| flip(&dir.join(index), 100, 1)).await.unwrap();
    damaged(image.path(), index, |dir| fs::remove_file(dir.join(index)).unwrap()).await.unwrap();
    // Without its index, a damaged segment is noticed when it is opened.
    let error = damaged(image.path(), index, |dir| {
        fs::remove_file(dir.join(index)).unwrap();
        flip(&dir.join(FIRST), 2_000, 1);
    });
    let text = error.await.unwrap_err().to_string();
    assert!(text.contains(FIRST) && text.contains("offset") && text.contains("restore"), "{text}");
}

#[tokio::test]
async fn a_full_segment_that_was_cut_is_refused_with_its_file_and_offset() {
    let image = image().await;
    let half = used(&image.path().join(FIRST)) / 2;
    let error = damaged(image.path(), "half of it", |dir| cut(&dir.join(FIRST), half)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("{FIRST} is damaged at offset {half}: it is cut short")), "{text}");
}

#[tokio::test]
async fn a_damaged_record_is_reported_with_its_file_and_offset() {
    let image = image().await;
    let copy = copy(image.path());
    let bytes = fs::read(copy.path().join(FIRST)).unwrap();
    let at = bytes.windows(9).position(|window| window == b"outcome 7").unwrap() as u64;
    flip(&copy.path().join(FIRST), at, 1);
    let ledger = open(copy.path(), &clock());
    let error = ledger.claim(&request("done-7", 9)).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Corrupt(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(FIRST) && text.contains("at offset") && text.contains("restore"), "{text}");
    assert!(matches!(ledger.claim(&request("done-8", 9)).await.unwrap(), Claim::Done(_)));
    let problems = ledger.verify().await.unwrap().problems;
    assert!(problems.len() == 1 && problems[0].contains(FIRST), "{problems:?}");
}

#[tokio::test]
async fn a_store_that_fell_behind_is_refused_and_left_as_it_is() {
    let image = image().await;
    let used = used(&image.path().join(SECOND));
    // Every one of these cuts loses an acknowledged commit.
    for back in [1, 100, 700] {
        let copy = copy(image.path());
        cut(&copy.path().join(SECOND), used - back);
        let before = fs::read(copy.path().join(SECOND)).unwrap();
        let error = open_and_claim(copy.path()).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("was acknowledged") && text.contains("restore"), "{text}");
        assert_eq!(fs::read(copy.path().join(SECOND)).unwrap(), before, "the evidence is kept");
        fs::remove_file(copy.path().join("high-water")).unwrap();
        let ledger = File::open(copy.path(), FileSettings::default(), clock()).unwrap();
        assert!(ledger.stats().await.unwrap().done.unwrap() >= 50, "the operator accepts the loss");
    }
}

#[tokio::test]
async fn damage_in_the_middle_of_the_newest_segment_is_not_a_torn_end() {
    let image = image().await;
    let middle = used(&image.path().join(SECOND)) / 2;
    let flipped = |dir: &Path| flip(&dir.join(SECOND), middle, 1);
    let error = damaged(image.path(), "the middle", flipped).await.unwrap_err();
    assert!(error.to_string().contains("was acknowledged"), "{error}");
    // Later commits know that it was durable, even without the high-water mark.
    let error = damaged(image.path(), "the middle", |dir| {
        flipped(dir);
        fs::remove_file(dir.join("high-water")).unwrap();
    });
    let text = error.await.unwrap_err().to_string();
    assert!(text.contains("was acknowledged"), "{text}");
}

/// Power loss in the middle of a commit: its sectors arrive in any order, and it was not acknowledged.
#[tokio::test]
async fn a_torn_commit_that_nobody_was_told_of_is_ignored() {
    let image = image().await;
    let last = used(&image.path().join(SECOND)) - 30;
    let error = damaged(image.path(), "acknowledged", |dir| flip(&dir.join(SECOND), last, 1)).await;
    assert!(error.is_err(), "a damaged commit that was acknowledged is a loss");

    let dir = tempfile::tempdir().unwrap();
    let ledger = open(dir.path(), &clock());
    complete(&ledger, "k", 1, "x").await;
    let mark = fs::read(dir.path().join("high-water")).unwrap();
    grant(&ledger, "torn", 1).await;
    let copy = copy(dir.path());
    ledger.close().await.unwrap();
    fs::write(copy.path().join("high-water"), mark).unwrap();
    let segment = copy.path().join(FIRST);
    flip(&segment, used(&segment) - 30, 1);
    let ledger = open(copy.path(), &clock());
    assert!(matches!(ledger.claim(&request("k", 2)).await.unwrap(), Claim::Done(_)));
    assert!(matches!(ledger.claim(&request("torn", 2)).await.unwrap(), Claim::Granted(_)));
}

/// Where the zeros ahead of use begin.
fn used(path: &Path) -> u64 {
    fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
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
