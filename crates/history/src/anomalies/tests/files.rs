//! Reading the counts from files, and checking each hour once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, ManualClock, Timestamp};
use rusqlite::{Connection, params};

use super::{DAY, WEEK, settings};
use crate::anomalies::{Checked, Finding, Found, Kind, Sensitivity, check};
use crate::record::OTHER;
use crate::{History, Recorder, Settings};

const HOUR_MS: u64 = 3_600_000;
const LAST: u64 = 495_000;

/// Creates the file of an instance.
fn create(dir: &Path, instance: &str, clock: &Arc<ManualClock>) -> Recorder {
    let settings = Settings {
        dir: dir.to_owned(),
        instance: instance.to_owned(),
        decisions_max: 1_000,
        decisions_age: Duration::from_secs(86_400),
        counts_age: 400 * Duration::from_secs(86_400),
        clock: clock.clone(),
    };
    Recorder::start(settings).unwrap()
}

struct File(Connection);

impl File {
    fn new(dir: &Path, instance: &str) -> Self {
        let recorder = create(dir, instance, &Arc::new(ManualClock::at(Timestamp(LAST * HOUR_MS))));
        let path = recorder.path().to_owned();
        drop(recorder);
        // The next instance gets another file.
        let file = dir.join(format!("{instance}.sqlite"));
        std::fs::rename(path, &file).unwrap();
        Self(Connection::open(file).unwrap())
    }

    fn count(&self, hour: u64, source: &str, result: &str, count: i64) {
        let sql = "INSERT INTO hours VALUES (?1, 'events', ?2, ?3, 0, ?4, 0, 0)";
        let hour = i64::try_from(hour).unwrap();
        self.0.prepare_cached(sql).unwrap().execute(params![hour, source, result, count]).unwrap();
    }

    fn recorded(&self, hour: u64, seconds: i64) {
        let sql = "INSERT OR REPLACE INTO recorded VALUES (?1, ?2)";
        let hour = i64::try_from(hour).unwrap();
        self.0.prepare_cached(sql).unwrap().execute(params![hour, seconds]).unwrap();
    }

    /// Four weeks with 200 arrivals in each hour, of which 4 are repeated.
    fn usual_weeks(&self, source: &str) {
        for hour in LAST - 4 * WEEK as u64..=LAST {
            self.count(hour, source, "new", 196);
            self.count(hour, source, "duplicate", 4);
            self.count(hour, source, "completed", 196);
            self.recorded(hour, 3_590);
        }
    }

    fn begin(&self) -> &Self {
        self.0.execute_batch("BEGIN").unwrap();
        self
    }

    fn commit(&self) {
        self.0.execute_batch("COMMIT").unwrap();
    }

    fn change(&self, sql: &str) {
        assert!(self.0.execute(sql, []).unwrap() > 0, "{sql}");
    }
}

/// Some minutes after the end of the last hour.
fn now() -> Timestamp {
    Timestamp((LAST + 1) * HOUR_MS + 5 * 60 * 1_000)
}

fn found(dir: &Path) -> Vec<(Kind, u64)> {
    let history = History::open(&[dir.to_owned()]).unwrap();
    let Found { findings, .. } = history.anomalies(7, now(), &settings(Sensitivity::Medium)).unwrap();
    findings.iter().map(|Finding { kind, at, .. }| (*kind, LAST - at / HOUR_MS)).collect()
}

#[test]
fn files_are_merged_and_judged() {
    let dir = tempfile::tempdir().unwrap();
    for instance in ["web-1", "web-2", "web-3"] {
        let file = File::new(dir.path(), instance);
        file.begin().usual_weeks("C1");
        file.count(LAST, "C2", "new", 300);
        file.commit();
        if instance == "web-2" {
            file.change(&format!(
                "UPDATE hours SET count = 150 WHERE hour = {LAST} AND result = 'duplicate'"
            ));
        }
    }
    assert_eq!(found(dir.path()), [(Kind::Duplicates, 0), (Kind::Instance, 0)]);
    let history = History::open(&[dir.path().to_owned()]).unwrap();
    let Found { known_hours, .. } = history.anomalies(7, now(), &settings(Sensitivity::Medium)).unwrap();
    assert_eq!(known_hours, 4 * WEEK + 1);
}

#[test]
fn process_that_was_down_is_not_a_silent_source() {
    let silent = |recorded: i64| {
        let dir = tempfile::tempdir().unwrap();
        let file = File::new(dir.path(), "one");
        file.begin().usual_weeks("C1");
        file.change(&format!("DELETE FROM hours WHERE hour > {}", LAST - 5));
        file.change(&format!("UPDATE recorded SET seconds = {recorded} WHERE hour > {}", LAST - 5));
        file.commit();
        found(dir.path())
    };
    assert_eq!(silent(3_590), [(Kind::Silence, 4)], "the only source is silent");
    assert_eq!(silent(1_800), [], "nothing was recorded for half of each hour");
}

#[test]
fn clock_that_jumps_raises_no_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::new(dir.path(), "one");
    file.begin().usual_weeks("C1");
    // Set back by an hour, three times: the hour was lived four times.
    file.change(&format!("UPDATE hours SET count = 4 * count WHERE hour = {}", LAST - 3));
    file.recorded(LAST - 3, 4 * 3_600);
    // Set forward by years, and back again.
    file.count(LAST * 2, "C1", "new", 1_000_000);
    file.recorded(LAST * 2, 3_600);
    file.commit();
    assert_eq!(found(dir.path()), []);
}

#[test]
fn source_among_others_is_not_silent() {
    let silent = |has_others: bool| {
        let dir = tempfile::tempdir().unwrap();
        let file = File::new(dir.path(), "one");
        file.begin().usual_weeks("C1");
        file.change(&format!("DELETE FROM hours WHERE hour = {LAST}"));
        file.count(LAST, if has_others { OTHER } else { "C2" }, "new", 20);
        file.commit();
        found(dir.path())
    };
    assert_eq!((silent(true), silent(false)), (vec![], vec![(Kind::Silence, 0)]));
}

#[test]
fn only_the_busiest_of_ten_thousand_sources_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::new(dir.path(), "one");
    file.begin();
    for number in 0..10_000 {
        file.count(LAST - number % 100, &format!("C{number}"), "new", 100 + i64::try_from(number).unwrap());
    }
    file.recorded(LAST, 3_600);
    file.commit();
    let observed = History::open(&[dir.path().to_owned()]).unwrap().hourly(LAST..=LAST).unwrap();
    assert_eq!((observed.sources.len(), observed.routes.len(), observed.instances.len()), (1_000, 1, 1));
    assert!(observed.sources.iter().all(|series| series.name.len() == "C9000".len()), "the busiest");
}

fn check_now(dir: &Path, now: Timestamp) -> Option<Checked> {
    check(dir, now, &settings(Sensitivity::Medium)).unwrap()
}

#[test]
fn every_hour_is_checked_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::new(dir.path(), "one");
    file.begin().usual_weeks("C1");
    file.change(&format!("UPDATE hours SET count = 10 * count WHERE hour >= {}", LAST - 1));
    file.commit();
    let at = |minutes: u64| Timestamp(LAST * HOUR_MS + minutes * 60 * 1_000);
    let first = check_now(dir.path(), at(5)).unwrap();
    assert_eq!(first.findings.len(), 1, "{:?}", first.findings);
    assert!(check_now(dir.path(), at(6)).is_none(), "another process is checking");
    drop(first);
    let again = check_now(dir.path(), at(6)).unwrap();
    assert_eq!(again.findings.len(), 1, "it was not reported");
    again.done().unwrap();
    assert!(check_now(dir.path(), at(59)).is_none(), "the hour is not over");
    assert!(check_now(dir.path(), at(61)).is_none(), "its last decisions may not be in the file yet");
    let next = check_now(dir.path(), at(65)).unwrap();
    assert_eq!(next.findings, [], "it goes on, and was reported");
    next.done().unwrap();
    // A clock that was ahead does not stop the checks for long.
    let ahead = Timestamp((LAST + 10 * DAY as u64) * HOUR_MS);
    check_now(dir.path(), ahead).unwrap().done().unwrap();
    assert!(check_now(dir.path(), at(65)).is_some());
}

#[test]
fn recorder_notes_how_long_it_records() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(LAST * HOUR_MS)));
    let recorder = create(dir.path(), "one", &clock);
    let seconds = || {
        let connection = Connection::open(recorder.path()).ok()?;
        let sql = "SELECT sum(seconds) FROM recorded";
        connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
    };
    // The writer looks at the clock twice a second. Its first look only starts to count.
    while seconds().is_none_or(|seconds| seconds < 300) {
        clock.advance(60_000);
        std::thread::sleep(Duration::from_millis(20));
    }
    let noted = Duration::from_secs(u64::try_from(seconds().unwrap()).unwrap());
    assert!(noted <= clock.steady(), "{noted:?} are more than what has passed");
}
