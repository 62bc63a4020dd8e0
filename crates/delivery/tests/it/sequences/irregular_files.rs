//! Files with our names that are not regular files.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use ichido_delivery::store::{BatchDir, Layout};
use rustix::fs::{CWD, Mode, mkfifoat};

use super::actions::{Action, Scenario};
use super::world::{World, id};

/// Far longer than the test takes. If a FIFO blocks the process, the test would never end.
const FOR_EVER: Duration = Duration::from_secs(120);

#[test]
fn irregular_file_is_set_aside_and_blocks_nothing() {
    let (done, waited) = mpsc::channel();
    std::thread::spawn(move || {
        play();
        let _ = done.send(());
    });
    waited.recv_timeout(FOR_EVER).expect("it failed, or something waits for the other end of a FIFO");
}

fn play() {
    let mut world = World::new(Scenario::default());
    // Creates the directories.
    world.play(&Action::Look);
    world.play(&Action::Send(0));
    world.play(&Action::Kill);
    let data = world.data();
    let (spool, notices) = (data.join("spool"), data.join("notices"));
    plant(&spool, 1);
    let dead = spool.join(".inflight/99999-1");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("lock"), "").unwrap();
    plant(&dead, 2);
    // It is unknown whether a process works in these, so they are left alone.
    for dir in [&spool, &notices] {
        let foreign = dir.join(".inflight/99998-1");
        fs::create_dir(&foreign).unwrap();
        fifo(&foreign.join("lock"));
    }
    fs::create_dir(data.join("elsewhere")).unwrap();
    fs::write(data.join("elsewhere/lock"), "").unwrap();
    fs::write(data.join("elsewhere/spool_20250118T120530Z_abc.json"), "theirs").unwrap();
    symlink(data.join("elsewhere"), spool.join(".inflight/99997-1")).unwrap();
    fifo(&notices.join("notice_20250118T120530Z_0123456789abcdef.json"));
    let lane = sha256_of("lane https://receiver.example");
    fifo(&notices.join(format!(".outages/outage_{lane}.json")));

    world.play(&Action::Send(1));
    world.play(&Action::Pass);
    world.play(&Action::Look);
    world.play(&Action::FailedResend { only: None });
    world.play(&Action::Look);

    assert_eq!(world.receiver.state().counts.get(&id(1, 0)), Some(&1), "batches go on");
    let layout = Layout::new(&data);
    assert_eq!(layout.count(BatchDir::Spool).unwrap(), 0);
    assert_eq!(layout.count(BatchDir::Failed).unwrap(), 8, "each is kept where a person looks");
    assert!(world.failed_reported() >= 8, "operators are notified");
    let kept = fs::read_dir(layout.dir(BatchDir::Failed)).unwrap().map(|entry| entry.unwrap());
    assert_eq!(kept.filter(|entry| entry.file_type().unwrap().is_fifo()).count(), 2);
    assert!(notices.join("notice_20250118T120530Z_0123456789abcdef.json.unreadable").exists());
    assert_eq!(
        fs::read_to_string(data.join("elsewhere/spool_20250118T120530Z_abc.json")).unwrap(),
        "theirs",
        "links are not followed"
    );
}

/// Creates one file of each kind, with names of batches.
fn plant(dir: &Path, minute: u32) {
    let path = |kind: &str| dir.join(format!("spool_20250118T12{minute:02}30Z_{kind}.json"));
    fifo(&path("fifo"));
    drop(UnixListener::bind(path("socket")).unwrap());
    symlink("/etc/passwd", path("link")).unwrap();
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("dir").join("something"), "inside").unwrap();
}

fn fifo(path: &Path) {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
}

fn sha256_of(outage: &str) -> String {
    use sha2::Digest as _;
    ichido_core::to_hex(&sha2::Sha256::digest(outage))[..16].to_owned()
}
