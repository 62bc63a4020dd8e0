//! The promises of a history.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Key, ManualClock, MarkKey, Metadata, Scope, Timestamp};
use ichido_ledger::{Decision, Observer, Subject};

use crate::{By, Count, Find, History, OfRoute, Recorder, Repeats, Selection, Settings, SourceCount, erase};

const HOUR_MS: u64 = 3_600_000;
const DAY: Duration = Duration::from_secs(86_400);
const START: Timestamp = Timestamp(1_700_000_000_000);

fn settings(dir: &Path, now: Timestamp) -> Settings {
    Settings {
        dir: dir.to_owned(),
        instance: "one".to_owned(),
        decisions_max: 1_000,
        decisions_age: 7 * DAY,
        counts_age: 30 * DAY,
        clock: Arc::new(ManualClock::at(now)),
    }
}

fn start(dir: &Path) -> Recorder {
    Recorder::start(settings(dir, START)).unwrap()
}

fn channel(name: &str) -> Metadata {
    Metadata::new([("channel_id".to_owned(), name.to_owned())]).unwrap()
}

/// Records a decision about an event.
fn event(recorder: &Recorder, at: Timestamp, key: &str, channel_id: &str, result: &'static str) {
    let (key, metadata) = (MarkKey::new(key).unwrap(), channel(channel_id));
    let (subject, latency) = (Subject::Mark(&key), Duration::from_micros(250));
    recorder.decided(&Decision {
        at,
        subject,
        metadata: Some(&metadata),
        result,
        detail: None,
        latency,
        is_degraded: false,
    });
}

fn read(dir: &Path) -> History {
    History::open(&[dir.to_owned()]).unwrap()
}

fn counts(dir: &Path, by: By) -> Vec<(String, String, u64)> {
    let counts = read(dir).counts(by, 0, u64::MAX).unwrap();
    counts.into_iter().map(|Count { group, result, count, .. }| (group, result, count)).collect()
}

fn row(group: &str, result: &str, count: u64) -> (String, String, u64) {
    (group.to_owned(), result.to_owned(), count)
}

fn files(dir: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !name.contains("-wal") && !name.contains("-shm")).collect();
    names.sort();
    names
}

#[test]
fn decisions_are_counted_and_found_by_key_and_by_hash() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = start(dir.path());
    event(&recorder, START, "E1", "C1", "new");
    event(&recorder, Timestamp(START.0 + 5), "E1", "C1", "duplicate");
    event(&recorder, Timestamp(START.0 + HOUR_MS), "E2", "C2", "new");
    let key = Key::new(Scope::new("", "POST /orders"), "E1\u{1b}[31m").unwrap();
    recorder.decided(&Decision {
        at: START,
        subject: Subject::Claim(&key),
        metadata: None,
        result: "in-doubt",
        detail: Some("the lease lapsed"),
        latency: Duration::ZERO,
        is_degraded: true,
    });
    recorder.close();
    let results = counts(dir.path(), By::Source);
    assert_eq!(
        results,
        [row("", "in-doubt", 1), row("C1", "duplicate", 1), row("C1", "new", 1), row("C2", "new", 1)]
    );
    assert_eq!(counts(dir.path(), By::Route)[0], row("POST /orders", "in-doubt", 1));
    assert_eq!(counts(dir.path(), By::Hour).len(), 4);
    assert_eq!(counts(dir.path(), By::Instance).len(), 3);
    let duplicates = &read(dir.path()).counts(By::Result, 0, u64::MAX).unwrap()[0];
    assert_eq!((duplicates.count, duplicates.latency_mean_us, duplicates.degraded), (1, 250, 0));

    let history = read(dir.path());
    let hours_of = |source: Option<&str>, instance: Option<&str>| {
        let owned = |text: &str| text.to_owned();
        let route =
            OfRoute { route: "events".to_owned(), source: source.map(owned), instance: instance.map(owned) };
        let counts = history.hours_of(&route, START.0, u64::MAX).unwrap();
        counts
            .into_iter()
            .map(|Count { group, result, count, .. }| (group, result, count))
            .collect::<Vec<_>>()
    };
    let hour = |at: u64| (at / HOUR_MS * HOUR_MS).to_string();
    let [first, second] = [hour(START.0), hour(START.0 + HOUR_MS)];
    let of_c1 = [row(&first, "duplicate", 1), row(&first, "new", 1)];
    assert_eq!(hours_of(Some("C1"), None), of_c1);
    assert_eq!(hours_of(None, Some("one")), [&of_c1[..], &[row(&second, "new", 1)]].concat());
    assert_eq!(hours_of(None, Some("two")), []);

    let timeline = history.timeline(Find::Key("E1")).unwrap();
    assert_eq!(timeline.iter().map(|entry| entry.result.as_str()).collect::<Vec<_>>(), ["new", "duplicate"]);
    assert_eq!((timeline[0].source.as_deref(), timeline[0].instance.as_str()), (Some("C1"), "one"));
    let doubt = history.timeline(Find::Hash(key.index().as_bytes())).unwrap();
    assert_eq!(
        (doubt.len(), doubt[0].detail.as_deref(), doubt[0].degraded),
        (1, Some("the lease lapsed"), true)
    );
    assert!(key.index().to_string().starts_with(&doubt[0].hash), "{}", doubt[0].hash);
}

#[test]
fn instances_have_files_of_their_own_and_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (start(dir.path()), start(dir.path()));
    assert_ne!(one.path(), two.path());
    event(&one, START, "E1", "C1", "new");
    event(&two, Timestamp(START.0 + 1), "E1", "C1", "duplicate");
    one.close();
    two.close();
    assert_eq!(counts(dir.path(), By::Source), [row("C1", "duplicate", 1), row("C1", "new", 1)]);
    assert_eq!(read(dir.path()).timeline(Find::Key("E1")).unwrap().len(), 2);
    // A file that was released is used again.
    drop((one, two));
    assert!(start(dir.path()).path().ends_with("history-1.sqlite"));
}

#[test]
fn everything_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = start(dir.path());
    for number in 0..10_000 {
        let result = if number % 1_000 == 999 { "duplicate" } else { "new" };
        event(&recorder, START, &format!("E{number}"), &format!("C{number}"), result);
    }
    recorder.close();
    let sources = counts(dir.path(), By::Source);
    let count = |wanted: &dyn Fn(&str) -> bool| -> u64 {
        sources.iter().filter(|(source, ..)| wanted(source)).map(|(.., count)| count).sum()
    };
    assert_eq!(count(&|_| true), 10_000, "everything is counted");
    assert_eq!(count(&|source| source == "(other)"), 9_900, "100 channels, and the others together");
    let by_day = read(dir.path()).sources(START.0, START.0).unwrap();
    let in_day = |SourceCount { count, .. }: &SourceCount| *count;
    assert_eq!((by_day.iter().map(in_day).sum::<u64>(), by_day.len() <= 2 * 102), (10_000, true));
    let newest = timeline(dir.path(), 9_999);
    assert_eq!(newest.len(), 1, "repeats are kept one by one, however many decisions there are");
    let kept = (0..10_000).step_by(100).filter(|number| !timeline(dir.path(), *number).is_empty()).count();
    assert!(kept <= 12, "{kept} of 100 are kept, although a thousand of ten thousand may be");
    drop(recorder);
    // A clock that jumps ahead ages what is there; one that jumps back does no harm.
    for (jump, left) in [(Timestamp(START.0 + 31 * 24 * HOUR_MS), 1), (Timestamp(1), 2)] {
        let recorder = Recorder::start(settings(dir.path(), jump)).unwrap();
        event(&recorder, jump, "after", "C1", "new");
        recorder.close();
        assert_eq!(counts(dir.path(), By::Source).iter().map(|(.., count)| count).sum::<u64>(), left);
    }
}

fn timeline(dir: &Path, number: usize) -> Vec<crate::Entry> {
    read(dir).timeline(Find::Key(&format!("E{number}"))).unwrap()
}

/// Keys may be personal data, so they go when their time is over, even if nothing else happens.
#[test]
fn old_decisions_are_removed_from_an_idle_history() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = start(dir.path());
    event(&recorder, START, "E1", "C1", "new");
    drop(recorder);
    assert_eq!(timeline(dir.path(), 1).len(), 1);
    drop(Recorder::start(settings(dir.path(), Timestamp(START.0 + 8 * 24 * HOUR_MS))).unwrap());
    assert_eq!(timeline(dir.path(), 1).len(), 0);
    assert_eq!(counts(dir.path(), By::Source), [row("C1", "new", 1)], "counts are kept longer");
}

/// A request that names several keys, on two instances, is found by its id with everything else that happened to its keys.
#[test]
fn timeline_is_found_by_request_id() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (start(dir.path()), start(dir.path()));
    let (key, other) = (MarkKey::new("E1").unwrap(), MarkKey::new("E2").unwrap());
    let metadata = Metadata::new([("request_id".to_owned(), "req-1".to_owned())]).unwrap();
    let mut at = START.0;
    for (recorder, key, metadata, result) in [
        (&one, &key, Some(&metadata), "new"),
        (&two, &key, None, "duplicate"),
        (&two, &other, Some(&metadata), "new"),
        (&two, &MarkKey::new("E3").unwrap(), None, "new"),
    ] {
        at += 1;
        let (at, subject, latency) = (Timestamp(at), Subject::Mark(key), Duration::ZERO);
        let (detail, is_degraded) = (None, false);
        recorder.decided(&Decision { at, subject, metadata, result, detail, latency, is_degraded });
    }
    drop((one, two));
    let history = read(dir.path());
    let found = history.timeline(Find::Request("req-1")).unwrap();
    let found: Vec<_> =
        found.iter().map(|entry| (&*entry.key, &*entry.result, entry.request_id.as_deref())).collect();
    assert_eq!(
        found,
        [("E1", "new", Some("req-1")), ("E1", "duplicate", None), ("E2", "new", Some("req-1"))]
    );
    for text in ["req-1", "E1", &key.index().to_string()] {
        assert!(history.search(text).unwrap().len() >= 2, "{text}");
    }
    assert!(history.search("req-2").unwrap().is_empty());
}

#[test]
fn repeats_are_those_of_the_present_mark() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = start(dir.path());
    let at = |seconds: u64| Timestamp(START.0 + seconds * 1_000);
    for (seconds, result) in
        [(0, "new"), (1, "duplicate"), (2, "forgotten"), (3, "new"), (4, "duplicate"), (5, "duplicate")]
    {
        event(&recorder, at(seconds), "E1", "C1", result);
    }
    event(&recorder, at(500), "E2", "C1", "duplicate");
    recorder.close();
    let repeats = |number, seconds| Repeats::of(&timeline(dir.path(), number), at(seconds).0);
    assert_eq!(repeats(1, 3), Some(Repeats { count: 2, is_complete: true }), "it was forgotten in between");
    assert_eq!(repeats(1, 4_000), None, "what was recorded is about an earlier mark");
    assert_eq!(
        repeats(2, 400),
        Some(Repeats { count: 1, is_complete: false }),
        "another instance saw it first"
    );
    assert_eq!(repeats(3, 0), None);
}

#[test]
fn files_that_no_process_uses_are_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, three) = (start(dir.path()), start(dir.path()), start(dir.path()));
    event(&two, START, "E2", "C1", "new");
    event(&three, START, "E3", "C1", "new");
    three.close();
    drop((one, two));
    std::fs::write(dir.path().join("history-9.sqlite"), b"x".repeat(4_096)).unwrap();
    let start_later = |days: u64| {
        let later = Timestamp(START.0 + days * 24 * HOUR_MS);
        drop(Recorder::start(settings(dir.path(), later)).unwrap());
    };
    let databases =
        || files(dir.path()).into_iter().filter(|name| name.contains("sqlite")).collect::<Vec<_>>();
    start_later(8);
    assert_eq!(
        databases(),
        ["history-1.sqlite", "history-2.sqlite", "history-3.sqlite", "history-9.sqlite.unusable-1"]
    );
    assert!(timeline(dir.path(), 2).is_empty(), "its process is gone, and its keys go in time");
    start_later(31);
    assert_eq!(databases(), ["history-1.sqlite", "history-3.sqlite", "history-9.sqlite.unusable-1"]);
    assert_eq!(counts(dir.path(), By::Source), [row("C1", "new", 1)], "a file in use is left alone");
    // The file that was set aside is as old as the machine's clock says.
    start_later(365 * 100);
    assert_eq!(databases(), ["history-1.sqlite", "history-3.sqlite"]);
}

#[test]
fn file_that_cannot_be_used_is_set_aside() {
    for damage in [&b"not a database, but long enough to be one header"[..], b""] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history-1.sqlite");
        std::fs::write(&path, damage.repeat(100)).unwrap();
        let recorder = start(dir.path());
        event(&recorder, START, "E1", "C1", "new");
        recorder.close();
        assert_eq!(counts(dir.path(), By::Source), [row("C1", "new", 1)]);
        assert_eq!(files(dir.path()).contains(&"history-1.sqlite.unusable-1".to_owned()), !damage.is_empty());
    }
}

#[test]
fn file_of_another_version_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = start(dir.path());
    event(&recorder, START, "E0", "C1", "new");
    drop(recorder);
    let path: PathBuf = dir.path().join("history-1.sqlite");
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 9").unwrap();
    let text = read(dir.path()).counts(By::Hour, 0, u64::MAX).unwrap_err().to_string();
    assert!(text.contains("another version") && text.contains("history-1.sqlite"), "{text}");
    let recorder = start(dir.path());
    event(&recorder, START, "E1", "C1", "new");
    recorder.close();
    assert_eq!(counts(dir.path(), By::Source).len(), 1);
    assert!(files(dir.path()).contains(&"history-1.sqlite.unusable-1".to_owned()));
}

#[test]
fn directory_without_a_history_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("missing")] {
        let text = History::open(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(
            text.contains("nothing was recorded") && text.contains(&path.display().to_string()),
            "{text}"
        );
    }
}

#[test]
fn erased_decisions_are_gone_from_the_files_and_counts_lose_their_source() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = start(dir.path());
    for (key, source) in [("Ev-secret", "C-secret"), ("Ev-other", "C-secret"), ("Ev-third", "C3")] {
        event(&recorder, START, key, source, "new");
    }
    let paths = [dir.path().to_owned()];
    let key = Selection { key: Some("Ev-secret".to_owned()), ..Selection::default() };
    let source = Selection { source: Some("C-secret".to_owned()), ..Selection::default() };
    let hash = *MarkKey::new("Ev-third").unwrap().index().as_bytes();
    let by_hash = Selection { hashes: vec![hash], ..Selection::default() };
    recorder.close();
    let found = erase(&paths, &source, false).unwrap();
    assert_eq!((found.decisions, found.counts), (2, 2), "one row for the hour, one for the day");
    assert_eq!(erase(&paths, &key, true).unwrap().decisions, 1);
    assert_eq!(erase(&paths, &by_hash, true).unwrap().decisions, 1);
    let erased = erase(&paths, &source, true).unwrap();
    assert_eq!((erased.decisions, erased.counts, erased.busy.len()), (1, 2, 0));
    assert_eq!(erase(&paths, &source, true).unwrap(), crate::Erased::default());
    assert_eq!(counts(dir.path(), By::Source), [row("(erased)", "new", 2), row("C3", "new", 1)]);
    assert_eq!(counts(dir.path(), By::Result), [row("new", "new", 3)]);
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let text = String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()).into_owned();
        assert!(!text.contains("secret") && !text.contains("Ev-third"), "it is left in a file");
    }
}
