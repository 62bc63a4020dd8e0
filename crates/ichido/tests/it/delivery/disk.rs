//! Disks that are full, read-only or owned by another user, and spools that are very large.

#![allow(clippy::print_stderr, reason = "a skipped test must say so")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::tmpfs::Tmpfs;
use ichido_testkit::wait::eventually;
use serde_json::json;

use super::{Fixture, Run};

/// All files below a directory whose names start with a prefix.
fn files_with_prefix(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(files_with_prefix(&entry.path(), prefix));
        } else if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    found
}

/// The peak resident memory of a process so far.
fn peak_memory_bytes(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

const PEAK_MEMORY_MAX_BYTES: u64 = 50 << 20;

#[test]
fn full_disk_does_not_stop_delivery_or_hide_lost_records() {
    let fixture = Fixture::new();
    let data = fixture.path().join("data");
    let Some(mount) = Tmpfs::mount(&data, "size=256k,mode=700") else { return };
    fixture.send(1, &[]).exits_with(0);
    let ballast = mount.fill();
    // Records that can be sent at once need no spool.
    let file = fixture.input(1..41);
    let sent = fixture.run(&["send", "--json", file.to_str().unwrap()], &[("BATCH_SIZE", "10")]);
    sent.exits_with(0);
    fixture.receiver.assert_each_record_once(41);
    assert_eq!(sent.metrics()["lost"], 0);
    let notices = sent.log("notice");
    assert_eq!(notices.len(), 1, "not exactly one notice: {}", sent.stderr);
    assert!(notices[0]["subject"].as_str().unwrap().contains("1 full spool"), "{}", sent.stderr);
    assert!(!sent.stderr.contains("recovered at"), "the disk is still full: {}", sent.stderr);
    assert!(files_with_prefix(&data, ".half-").is_empty() && files_with_prefix(&data, "spool_").is_empty());
    // Records that can be neither sent nor spooled are reported as lost.
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    let file = fixture.input(41..42);
    let lost = fixture.run(&["send", "--json", file.to_str().unwrap()], &[("MAX_RETRIES", "1")]);
    lost.exits_with(1);
    assert_eq!(lost.metrics()["lost"], 1);
    assert!(lost.stderr.contains("neither delivered nor written to disk"), "{}", lost.stderr);
    assert!(files_with_prefix(&data, ".half-").is_empty() && files_with_prefix(&data, "spool_").is_empty());
    // There is free space again.
    std::fs::remove_file(ballast).unwrap();
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["send", file.to_str().unwrap()], &[]).exits_with(0);
    fixture.receiver.assert_each_record_once(42);
}

#[test]
fn failed_retry_count_update_leaves_the_spool_file_intact() {
    let fixture = Fixture::new();
    let data = fixture.path().join("data");
    let Some(mount) = Tmpfs::mount(&data, "size=256k,mode=700") else { return };
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(2, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    let content = || fixture.files("spool").into_iter().map(|(path, _)| std::fs::read(path).unwrap());
    let before: Vec<Vec<u8>> = content().collect();
    mount.fill();
    let requests_before = fixture.receiver.batch_count();
    // The audit log is on the full disk as well.
    let unrecorded = fixture.run(&["spool", "resend"], &[("MAX_RETRIES", "0")]);
    assert!(
        unrecorded.exits_with(2).stderr.contains("No space left on device (os error 28); nothing was done")
    );
    assert_eq!(fixture.receiver.batch_count(), requests_before);
    let elsewhere = fixture.path().join("audit").display().to_string();
    let settings = [("MAX_RETRIES", "0"), ("ICHIDO_ADMIN_AUDIT_DIR", elsewhere.as_str())];
    fixture.run(&["spool", "resend"], &settings).exits_with(3);
    assert_eq!(fixture.receiver.batch_count(), requests_before + 2, "both batches are tried");
    assert_eq!(content().collect::<Vec<_>>(), before);
    assert!(files_with_prefix(&data, ".half-").is_empty());
    fixture.receiver.on_batch(|_| Reply::Accept);
    fixture.run(&["spool", "resend"], &settings[1..]).exits_with(0);
    fixture.receiver.assert_each_record_once(2);
}

#[test]
fn read_only_disk_stops_startup_and_names_path_and_mode() {
    let fixture = Fixture::new();
    let data = fixture.path().join("data");
    let Some(mount) = Tmpfs::mount(&data, "size=256k,mode=700") else { return };
    fixture.send(1, &[]).exits_with(0);
    mount.remount("ro");
    let requests_before = fixture.receiver.batch_count();
    let run = fixture.send(1, &[]);
    run.exits_with(2);
    assert!(
        run.stderr.contains("data/spool/.inflight") && run.stderr.contains("mode 0700"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("Read-only"), "{}", run.stderr);
    assert_eq!(fixture.receiver.batch_count(), requests_before);
}

#[test]
fn unwritable_directory_stops_startup_and_names_path_and_mode() {
    let fixture = Fixture::new();
    let data = fixture.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o555)).unwrap();
    let Some(mut command) = unprivileged_send(&fixture) else { return };
    let run = Run::of(command.output().unwrap());
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    run.exits_with(2);
    assert!(run.stderr.contains("data/spool") && run.stderr.contains("mode 0555"), "{}", run.stderr);
    assert!(run.stderr.contains("Permission denied"), "{}", run.stderr);
    assert!(fixture.receiver.batches().is_empty());
}

/// `ichido send` as a user without root privileges, or `None` if the test cannot drop them.
fn unprivileged_send(fixture: &Fixture) -> Option<Command> {
    let file = fixture.input(0..1);
    let send = fixture.command(&["send", file.to_str().unwrap()]);
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    if !is_root {
        return Some(send);
    }
    // The user `nobody` cannot read the build directory.
    let binary = fixture.path().join("ichido");
    std::fs::copy(env!("CARGO_BIN_EXE_ichido"), &binary).unwrap();
    std::fs::set_permissions(fixture.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let probe = Command::new("setpriv").args(nobody).arg(&binary).arg("--version").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: cannot run as another user with setpriv (run this test as root)");
        return None;
    }
    let mut command = Command::new("setpriv");
    command.args(nobody).arg(binary).args(send.get_args()).current_dir(fixture.path());
    for (name, value) in send.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Some(command)
}

#[test]
fn data_is_private_to_the_owner_under_any_umask() {
    for umask in ["000", "022", "077", "777"] {
        let fixture = Fixture::new();
        // The receiver is also the Slack webhook. It rejects the notice, which therefore stays in the outbox.
        fixture.receiver.on_batch(|request| match request.ids.first().map(String::as_str) {
            None => Reply::Status(404, String::new()),
            Some("e0") => Reply::Status(422, String::new()),
            Some(_) => Reply::Status(503, String::new()),
        });
        let slack = fixture.url("/services/x");
        let file = fixture.input(0..2);
        let send = fixture.command(&["send", file.to_str().unwrap()]);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]).arg(send.get_program());
        command.args(send.get_args()).current_dir(fixture.path());
        for (name, value) in send.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            command.env(name, value);
        }
        command.env("SLACK_WEBHOOK_URL", slack).env("BATCH_SIZE", "1").env("MAX_RETRIES", "0");
        let run = Run::of(command.output().unwrap());
        run.exits_with(4);
        assert_eq!((fixture.files("spool").len(), fixture.files("failed").len()), (1, 1));
        assert_eq!(fixture.files("notices").len(), 1);
        assert_owner_only(&fixture.path().join("data"));
    }
}

fn assert_owner_only(path: &Path) {
    let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().flatten().for_each(|entry| assert_owner_only(&entry.path()));
    }
}

#[test]
fn two_gigabyte_spool_file_is_rejected_unread() {
    let fixture = Fixture::new();
    let dir = fixture.path().join("data/spool");
    std::fs::create_dir_all(&dir).unwrap();
    let huge = std::fs::File::create(dir.join("spool_20250101T000000Z_eeeeeeeeeeee.json")).unwrap();
    huge.set_len(2 << 30).unwrap();
    write_spool_file(&dir, 1, "e1");
    let daemon = Process::start(&mut fixture.command(&["run", "--admin", "off"])).unwrap();
    eventually("the valid batch", || (fixture.receiver.record_count() == 1).then_some(()));
    eventually("the huge file in failed", || (!fixture.file_names("failed").is_empty()).then_some(()));
    daemon.wait_for_stderr("corrupt: larger than");
    let memory = peak_memory_bytes(&daemon);
    assert!(memory < PEAK_MEMORY_MAX_BYTES, "{memory}");
}

/// Writes a spool file with only the required fields.
fn write_spool_file(dir: &Path, second: usize, id: &str) {
    let at = jiff::Timestamp::from_second(4_070_908_800 + i64::try_from(second).unwrap()).unwrap();
    let file = json!({
        "batchIdempotencyKey": format!("{second:012}{id}"), "records": [{"source_event_id": id}],
        "firstAttempt": at.to_string(), "retryCount": 0, "lastError": "HTTP 503 Service Unavailable",
    });
    let name = format!("spool_{}_{second:012}.json", at.strftime("%Y%m%dT%H%M%SZ"));
    std::fs::write(dir.join(name), file.to_string()).unwrap();
}

#[test]
fn large_spool_is_sent_oldest_first_and_does_not_delay_new_batches() {
    const FILES: usize = 100_000;
    let fixture = Fixture::new();
    // In memory if possible, because writing this many files to disk is slow.
    let shared = Path::new("/dev/shm");
    let data = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.unwrap();
    let spool = data.path().join("spool");
    std::fs::create_dir(&spool).unwrap();
    // Written in shuffled order, so that no file system lists them sorted by chance.
    (0..FILES).for_each(|index| {
        let second = index * 7_919 % FILES;
        write_spool_file(&spool, second, &format!("e{second}"));
    });
    // The oldest batch always fails; every other response is slightly delayed.
    fixture.receiver.on_batch(|request| match request.ids[0].as_str() {
        "e0" => Reply::Status(500, String::new()),
        _ => Reply::AcceptAndDelay(std::time::Duration::from_millis(2)),
    });
    // With several requests under way, the receiver may see them in another order.
    let settings =
        [("DATA_DIR", data.path().to_str().unwrap()), ("MAX_RETRIES", "0"), ("SEND_CONCURRENCY", "1")];
    let daemon =
        Process::start(fixture.command(&["run", "--admin", "off"]).envs(settings).env("LOG_LEVEL", "error"))
            .unwrap();
    eventually("the first request", || (fixture.receiver.batch_count() > 0).then_some(()));
    eventually("300 requests", || (fixture.receiver.batch_count() > 300).then_some(()));
    let order: Vec<String> =
        fixture.receiver.batches().iter().take(300).map(|request| request.ids[0].clone()).collect();
    assert_eq!(order, (0..300).map(|id| format!("e{id}")).collect::<Vec<_>>());
    let memory = peak_memory_bytes(&daemon);
    assert!(memory < PEAK_MEMORY_MAX_BYTES, "{memory}");
    drop(daemon);
    // A new batch is sent while most of the others are still in the spool.
    let file = fixture.input(FILES..FILES + 1);
    let mut command = fixture.command(&["send", file.to_str().unwrap()]);
    let sender = Process::start(command.envs(settings).env("LOG_LEVEL", "error")).unwrap();
    eventually("the new batch", || fixture.receiver.counts().contains_key("e100000").then_some(()));
    assert!(fixture.receiver.record_count() < FILES / 2);
    let memory = peak_memory_bytes(&sender);
    assert!(memory < PEAK_MEMORY_MAX_BYTES, "{memory}");
}
