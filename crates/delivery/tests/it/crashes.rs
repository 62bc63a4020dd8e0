//! Kills a sender with SIGKILL before each of its disk operations, one process each. The receiver's records are the
//! oracle.

mod child;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ichido_core::Timestamp;
use ichido_delivery::store::{BatchDir, Layout, Options, Store, is_group, read_group};
use ichido_testkit::receiver::{Receiver, Reply};

use crate::scratch;
use child::{Job, run};

const LAST_PASS: u32 = 2;

/// A spool with a batch that has one pass left, one that has more, and one that will be delivered.
fn prepare(data: &Path) {
    let dir = data.join("spool");
    fs::create_dir_all(&dir).unwrap();
    for (second, id, retry_count) in
        [(1, "down-last", LAST_PASS - 1), (2, "down-more", 0), (3, "good-old", 0)]
    {
        let file = serde_json::json!({
            "batchIdempotencyKey": format!("{id}-key"), "records": [{"source_event_id": id}],
            "firstAttempt": format!("2099-01-01T00:00:0{second}Z"), "retryCount": retry_count, "lastError": "HTTP 503",
        });
        fs::write(dir.join(format!("spool_20990101T00000{second}Z_{id}.json")), file.to_string()).unwrap();
    }
}

/// Every batch below the directory, by its records. A file that cannot be read fails the test.
fn batches(data: &Path) -> BTreeMap<String, Vec<(PathBuf, u32)>> {
    let layout = Layout::new(data);
    let mut found: BTreeMap<String, Vec<(PathBuf, u32)>> = BTreeMap::new();
    let mut see = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("torn: {text}"));
        for record in file["records"].as_array().unwrap() {
            let id = record["source_event_id"].as_str().unwrap().to_owned();
            let count = u32::try_from(file["retryCount"].as_u64().unwrap()).unwrap();
            found.entry(id).or_default().push((path.clone(), count));
        }
    };
    for batch_dir in [BatchDir::Spool, BatchDir::Failed] {
        for listed in layout.oldest(batch_dir, None, usize::MAX).unwrap() {
            assert!(layout.read(batch_dir, &listed).unwrap().is_ok(), "{listed:?}");
            see(layout.dir(batch_dir).join(listed.file));
        }
    }
    let mut groups = Vec::new();
    for dir in fs::read_dir(layout.inflight()).into_iter().flatten().flatten() {
        for entry in fs::read_dir(dir.path()).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("spool_") {
                see(entry.path());
            } else if is_group(&name) {
                groups.push(entry.path());
            }
        }
    }
    for path in groups {
        for stored in read_group(&fs::read(&path).unwrap()).unwrap() {
            for record in stored.batch.records() {
                found.entry(record.key().to_owned()).or_default().push((path.clone(), stored.retry_count));
            }
        }
    }
    found
}

/// A receiver that rejects batches with an id that starts with `bad`, and is down for those with `down`.
///
/// Its 409 is bare: what the sender knows about the batch must survive the crash.
fn start_receiver() -> Receiver {
    let receiver = Receiver::start().unwrap();
    receiver.on_batch(|batch| {
        let contains = |prefix: &str| batch.ids.iter().any(|id| id.starts_with(prefix));
        if batch.is_known {
            Reply::Status(409, String::new())
        } else if contains("down") {
            Reply::Status(503, String::new())
        } else if contains("bad") {
            Reply::Status(422, String::new())
        } else {
            Reply::Accept
        }
    });
    receiver
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Runs a process until it is killed before operation number `at`, and returns that operation. `None` if it ended before.
fn kill(dir: &Path, receiver: &Receiver, at: usize, fresh: bool) -> Option<String> {
    let _ = fs::remove_file(dir.join("ops"));
    let status = run(&Job { dir, port: receiver.address().port(), crash_at: Some(at), fresh });
    let point = lines(&dir.join("ops")).get(at).cloned()?;
    assert_eq!(status.signal(), Some(9), "{point}");
    Some(point)
}

/// Kills a process before operation number `at`, and lets the next process finish. Returns the operation. With `again`,
/// the next process is killed before that operation, and a third one finishes; then the result is its operation.
fn crash_at(at: usize, again: Option<usize>) -> Option<String> {
    let dir = scratch();
    let data = dir.path().join("data");
    prepare(&data);
    let receiver = start_receiver();
    let mut point = kill(dir.path(), &receiver, at, true)?;
    if let Some(again) = again {
        point = kill(dir.path(), &receiver, again, false)?;
    }

    let counts = receiver.counts();
    let kept = batches(&data);
    let accepted: BTreeSet<String> = lines(&dir.path().join("accepted")).into_iter().collect();
    let before = ["down-last", "down-more", "good-old"].map(str::to_owned);
    for id in accepted.iter().chain(&before) {
        assert!(counts.contains_key(id) || kept.contains_key(id), "{point}: {id} is nowhere");
    }
    let charged = |id: &str| kept.get(id).into_iter().flatten().map(|(_, count)| *count).min();
    assert!(charged("down-last").is_some_and(|count| count >= LAST_PASS - 1), "{point}: a count went down");

    let status = run(&Job { dir: dir.path(), port: receiver.address().port(), crash_at: None, fresh: false });
    assert!(status.success(), "{point}");
    let (counts, kept) = (receiver.counts(), batches(&data));
    assert!(counts.values().all(|count| *count == 1), "{point}: {counts:?}");
    assert_eq!(counts.get("good-old"), Some(&1), "{point}");
    for id in &accepted {
        let is_delivered = id.starts_with("good");
        assert_eq!(counts.contains_key(id), is_delivered, "{point}: {id}");
        assert!(is_delivered || kept.contains_key(id), "{point}: {id} is nowhere");
    }
    // The batch is in failed once, and operators were notified.
    let failed: Vec<_> = kept["down-last"].iter().map(|(path, _)| path).collect();
    assert!(failed.len() == 1 && failed[0].starts_with(data.join("failed")), "{point}: {failed:?}");
    let notified = fs::read_to_string(dir.path().join("notified")).unwrap_or_default();
    assert!(notified.contains("down-last-key"), "{point}: operators were not notified: {notified}");
    // No temporary files, and no directories of ended processes.
    assert_eq!(fs::read_dir(data.join("spool/.inflight")).unwrap().count(), 0, "{point}");
    assert_eq!(fs::read_dir(data.join("notices/.inflight")).unwrap().count(), 0, "{point}");
    Some(point)
}

/// Calls `crash` with every number until it returns `None`. Returns the number of calls, and the operations.
fn everywhere(crash: impl Fn(usize) -> Option<String> + Sync) -> (usize, BTreeSet<String>) {
    let next = AtomicUsize::new(0);
    let points = std::thread::scope(|scope| {
        let worker = || {
            let mut points = BTreeSet::new();
            while let Some(point) = crash(next.fetch_add(1, Relaxed)) {
                points.insert(point);
            }
            points
        };
        let workers = [(); 2].map(|()| scope.spawn(worker));
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    (next.load(Relaxed), points)
}

#[test]
fn wherever_the_recovery_of_a_group_is_interrupted_the_next_process_finishes_it() {
    // The group is on disk, and nothing of it was sent.
    let all = scratch();
    prepare(&all.path().join("data"));
    let receiver = start_receiver();
    run(&Job { dir: all.path(), port: receiver.address().port(), crash_at: None, fresh: true });
    let ops = lines(&all.path().join("ops"));
    let at = ops.iter().position(|point| point == "Rename group").unwrap() + 2;
    let (_, points) = everywhere(|again| crash_at(at, Some(again)));
    for point in ["Read group", "Create inflight", "Remove group", "SyncDir inflight", "Rename spool"] {
        assert!(points.contains(point), "{point} is not among {points:?}");
    }
}

#[test]
fn wherever_the_sender_is_killed_the_next_process_finishes_its_work() {
    let (crashes, points) = everywhere(|at| crash_at(at, None));
    // Operations that must be among the crash points.
    for point in [
        "Create group",
        "Write group",
        "Sync group",
        "Rename group",
        "Remove group",
        "Create inflight",
        "Write inflight",
        "Sync inflight",
        "Rename inflight",
        "SyncDir inflight",
        "Remove inflight",
        "Rename spool",
        "Rename failed",
        "SyncDir failed",
        "Write receipts",
        "Rename notices",
        "SyncDir notices",
    ] {
        assert!(points.contains(point), "{point} is not among {points:?}");
    }
    assert!(crashes > 60, "{crashes}");
}

#[test]
fn running_process_recovers_the_files_of_a_killed_one() {
    let dir = scratch();
    let data = dir.path().join("data");
    let running = Store::open(&data, Options::default(), Timestamp(1_737_201_930_000)).unwrap();
    prepare(&data);
    let receiver = start_receiver();
    // The process has taken the first file out of the spool, and is about to write its new state.
    let first = "Create inflight";
    let all = scratch();
    prepare(&all.path().join("data"));
    run(&Job { dir: all.path(), port: receiver.address().port(), crash_at: None, fresh: false });
    let at = lines(&all.path().join("ops")).iter().position(|point| point == first).unwrap();
    let status =
        run(&Job { dir: dir.path(), port: receiver.address().port(), crash_at: Some(at), fresh: false });
    assert_eq!(status.signal(), Some(9));
    assert_eq!(running.layout().count(BatchDir::Spool).unwrap(), 2, "the killed process had taken one");
    assert_eq!(running.recover().unwrap(), 1);
    assert_eq!(running.layout().count(BatchDir::Spool).unwrap(), 3);
}
