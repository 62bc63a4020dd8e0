use std::fs;
use std::os::unix::fs::PermissionsExt;

use ichido_core::{ManualClock, Timestamp};

use super::*;

const ROTATION: Rotation = Rotation { max_bytes: 1 << 20, max_age: None };

fn actor(who: &str) -> Actor {
    Actor { who: who.to_owned(), via: Via::Token, from: "127.0.0.1:1".to_owned(), sudo_user: None }
}

/// A log with this many entries, and its directory.
fn log_with(entries: u64) -> (tempfile::TempDir, AuditLog) {
    let dir = tempfile::tempdir().unwrap();
    let log = AuditLog::new(dir.path().join("audit"), ROTATION);
    write(&log, entries);
    (dir, log)
}

fn write(log: &AuditLog, entries: u64) {
    for _ in 0..entries {
        log.record(&actor("alice"), &Action::named("sign in"), Outcome::of("full")).unwrap();
    }
}

fn file(log: &AuditLog) -> PathBuf {
    log.dir().unwrap().join("audit.jsonl")
}

fn lines(log: &AuditLog) -> Vec<String> {
    fs::read_to_string(file(log)).unwrap().lines().map(ToOwned::to_owned).collect()
}

fn set_lines(log: &AuditLog, lines: &[String]) {
    fs::write(file(log), lines.join("\n") + "\n").unwrap();
}

fn verify(log: &AuditLog) -> Result<Summary, Break> {
    log.snapshot().unwrap().unwrap().verify(None, None).unwrap()
}

/// Where the log is broken: the kind, and the line.
fn broken(log: &AuditLog) -> (&'static str, Option<u64>) {
    let found = verify(log).unwrap_err();
    (found.kind, found.line)
}

#[test]
fn entries_continue_each_other() {
    let (_dir, log) = log_with(0);
    assert!(log.snapshot().unwrap().is_none());
    let action = Action {
        index: Some("1f".to_owned()),
        before: Some("in-doubt".to_owned()),
        ..Action::named("release")
    };
    let pending = log.begin(actor("alice"), action).unwrap();
    pending.finish(Outcome { after: Some("absent".to_owned()), ..Outcome::of("applied") }).unwrap();
    write(&log, 3);
    let summary = verify(&log).unwrap();
    assert_eq!((summary.entries, summary.last_seq, summary.files, summary.notes.len()), (5, 5, 1, 0));
    let mut entries = Vec::new();
    assert_eq!(log.snapshot().unwrap().unwrap().each(|entry, _| entries.push(entry)).unwrap(), 0);
    let [intent, result, ..] = &entries[..] else { panic!() };
    assert_eq!((intent.step, result.step, result.intent), (Step::Intent, Step::Result, Some(1)));
    assert_eq!(
        (result.action.before.as_deref(), result.outcome.after.as_deref()),
        (Some("in-doubt"), Some("absent"))
    );
    for (path, mode) in [
        (log.dir().unwrap().to_owned(), 0o700),
        (file(&log), 0o600),
        (log.dir().unwrap().join("head"), 0o600),
    ] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
    }
}

/// Anyone can verify a line with sha256sum.
#[test]
fn hash_covers_the_line_up_to_itself() {
    let (_dir, log) = log_with(2);
    let lines = lines(&log);
    let (covered, rest) = lines[1].rsplit_once(",\"hash\":").unwrap();
    assert_eq!(rest, format!("\"{}\"}}", entry::sha256(covered.as_bytes())));
    let first = lines[0].rsplit_once(",\"hash\":\"").unwrap().1.trim_end_matches("\"}");
    assert!(covered.ends_with(&format!("\"prev\":\"{first}\"")), "{covered}");
}

#[test]
fn every_changed_byte_is_found() {
    let (_dir, log) = log_with(3);
    let intact = fs::read(file(&log)).unwrap();
    let line_of = |at: usize| intact[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    for at in 0..intact.len() {
        let mut bytes = intact.clone();
        bytes[at] ^= 1;
        fs::write(file(&log), bytes).unwrap();
        let (kind, line) = broken(&log);
        // Without its line break, the last line is an incomplete one.
        let expected = if at + 1 == intact.len() { "cut" } else { "edited" };
        assert_eq!((kind, line), (expected, Some(line_of(at))), "byte {at}");
    }
}

#[test]
fn every_cut_is_found() {
    let (_dir, log) = log_with(3);
    let intact = fs::read(file(&log)).unwrap();
    for length in 0..intact.len() {
        fs::write(file(&log), &intact[..length]).unwrap();
        assert_eq!(broken(&log).0, "cut", "{length} bytes");
        let refused = log.record(&actor("eve"), &Action::named("release"), Outcome::of("applied"));
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{length} bytes: {refused:?}");
    }
    fs::remove_file(file(&log)).unwrap();
    assert_eq!(broken(&log).0, "cut");
}

#[test]
fn removed_and_moved_lines_are_found() {
    let (_dir, log) = log_with(6);
    let intact = lines(&log);
    for removed in 0..5 {
        let mut lines = intact.clone();
        lines.remove(removed);
        set_lines(&log, &lines);
        assert_eq!(broken(&log), ("removed", Some(removed as u64 + 1)));
    }
    for moved in 0..5 {
        let mut lines = intact.clone();
        lines.swap(moved, moved + 1);
        set_lines(&log, &lines);
        assert_eq!(broken(&log), ("reordered", Some(moved as u64 + 1)));
    }
    let mut repeated = intact.clone();
    repeated.insert(3, intact[1].clone());
    set_lines(&log, &repeated);
    assert_eq!(broken(&log), ("reordered", Some(4)));
}

/// An entry with a valid hash of its own is still not the one that its successor names.
#[test]
fn replaced_entry_is_found() {
    let (_dir, log) = log_with(3);
    let mut lines = lines(&log);
    let (mut entry, _) = Entry::decode(format!("{}\n", lines[1]).as_bytes()).unwrap();
    entry.actor.who = "mallory".to_owned();
    lines[1] = entry.encode().unwrap().0.trim_end().to_owned();
    set_lines(&log, &lines);
    assert_eq!(broken(&log), ("edited", Some(3)));
    // Nor is a replaced last entry the one that the head names.
    lines.truncate(2);
    set_lines(&log, &lines);
    let head = log.dir().unwrap().join("head");
    fs::write(&head, fs::read_to_string(&head).unwrap().replace("\"seq\":3", "\"seq\":2")).unwrap();
    assert_eq!(broken(&log).0, "edited");
}

/// A chain that was computed anew is intact in itself. A hash that was kept elsewhere shows it.
#[test]
fn rewritten_log_lacks_a_known_hash() {
    let (_dir, log) = log_with(3);
    let known = verify(&log).unwrap().last_hash;
    let contains = || log.snapshot().unwrap().unwrap().verify(None, Some(&known)).unwrap();
    assert!(contains().is_ok());
    fs::remove_dir_all(log.dir().unwrap()).unwrap();
    write(&log, 4);
    assert!(verify(&log).is_ok());
    assert!(contains().unwrap_err().detail.contains("no entry with the given hash"));
}

#[test]
fn crash_between_entry_and_head_is_repaired() {
    for entries in [1, 3] {
        let (_dir, log) = log_with(entries - 1);
        let head = log.dir().unwrap().join("head");
        let before = fs::read(&head).ok();
        write(&log, 1);
        match before {
            Some(before) => fs::write(&head, before).unwrap(),
            None => fs::remove_file(&head).unwrap(),
        }
        let summary = verify(&log).unwrap();
        assert_eq!((summary.last_seq, summary.notes.len()), (entries, 1));
        write(&log, 1);
        let summary = verify(&log).unwrap();
        assert_eq!((summary.last_seq, summary.notes.len()), (entries + 1, 0));
    }
}

#[test]
fn head_that_is_missing_or_too_old_is_found() {
    let (_dir, log) = log_with(1);
    let head = log.dir().unwrap().join("head");
    let old = fs::read(&head).unwrap();
    write(&log, 3);
    fs::write(&head, old).unwrap();
    assert_eq!(broken(&log).0, "edited");
    fs::remove_file(&head).unwrap();
    assert_eq!(broken(&log).0, "cut");
    let refused = log.record(&actor("a"), &Action::named("release"), Outcome::of("applied")).unwrap_err();
    assert!(refused.to_string().contains("Move the directory away"), "{refused}");
}

/// A process that is killed while it writes leaves a part of a line; it may be killed again while it records that.
#[test]
fn incomplete_line_is_kept_and_recorded() {
    for torn in ["{\"seq\":4,\"ti", "{\"seq\":4}\n", "x\n\ny\nz"] {
        let (_dir, log) = log_with(3);
        let append = |text: &str| {
            let mut bytes = fs::read(file(&log)).unwrap();
            bytes.extend(text.as_bytes());
            fs::write(file(&log), bytes).unwrap();
        };
        append(torn);
        let notes = verify(&log).unwrap().notes;
        assert!(notes.len() == 1 && notes[0].contains(&format!("{} bytes", torn.len())), "{notes:?}");
        append("\n{\"seq\":4,");
        write(&log, 1);
        let summary = verify(&log).unwrap();
        assert_eq!((summary.entries, summary.notes.len()), (5, 0));
        let text = fs::read_to_string(file(&log)).unwrap();
        assert!(text.contains(torn) && text.contains("record an incomplete line"), "{text}");
        // The bytes are part of the chain from now on.
        fs::write(file(&log), text.replacen(torn, &"?".repeat(torn.len()), 1)).unwrap();
        assert_eq!(broken(&log).0, "edited");
    }
}

#[test]
fn chain_continues_across_files() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000)));
    let rotation = Rotation { max_bytes: 1000, max_age: Some(Duration::from_secs(3600)) };
    let log = AuditLog::with_clock(dir.path().join("audit"), rotation, clock.clone());
    write(&log, 10);
    let files = verify(&log).unwrap().files;
    assert!(files > 2, "{files} files");
    clock.advance(3_601_000);
    write(&log, 1);
    let summary = verify(&log).unwrap();
    assert_eq!((summary.entries, summary.last_seq, summary.files), (11, 11, files + 1));
    let head = fs::read(log.dir().unwrap().join("head")).unwrap();

    // A crash between the new name and the next entry.
    fs::rename(file(&log), log.dir().unwrap().join("audit-000000000011.jsonl")).unwrap();
    assert_eq!(verify(&log).unwrap().last_seq, 11);
    write(&log, 1);
    assert_eq!(verify(&log).unwrap().last_seq, 12);
    // A crash between that entry and the head.
    fs::write(log.dir().unwrap().join("head"), head).unwrap();
    write(&log, 1);
    assert_eq!(verify(&log).unwrap().last_seq, 13);

    let mut rotated: Vec<_> = fs::read_dir(log.dir().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("/audit-"))
        .collect();
    rotated.sort();
    let last = fs::read_to_string(&rotated[0]).unwrap().lines().last().unwrap().to_owned();
    fs::remove_file(&rotated[0]).unwrap();
    assert_eq!(broken(&log), ("removed", Some(1)));
    let hash = last.rsplit_once(",\"hash\":\"").unwrap().1.trim_end_matches("\"}");
    let summary = log.snapshot().unwrap().unwrap().verify(Some(hash), None).unwrap().unwrap();
    assert_eq!(summary.last_seq, 13);
}

#[test]
fn several_writers_share_one_chain() {
    let (dir, log) = log_with(1);
    let path = dir.path().join("audit");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            // Each has its own handle, as another process would.
            scope.spawn(|| write(&AuditLog::new(path.clone(), Rotation { max_bytes: 2000, ..ROTATION }), 5));
        }
    });
    assert_eq!(verify(&log).unwrap().last_seq, 16);
}

#[test]
fn unusable_directory_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    fs::write(&path, "a file").unwrap();
    let log = AuditLog::new(path.clone(), ROTATION);
    let error = log.begin(actor("a"), Action::named("release")).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("cannot use the audit log {} (admin.audit_dir): ", path.display())),
        "{error}"
    );
    assert!(AuditLog::off().begin(actor("a"), Action::named("release")).is_ok());
}
