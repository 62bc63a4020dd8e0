//! Timeouts, outages and rejections during an export lose no usage and count none twice.

use super::Stage;
use super::receiver::{Action, ReceiverKind};

const MODEL: Option<(&str, &str)> = Some(("openai", "gpt-4o"));
const DAYS: [&str; 7] = ["export", "dify", "--json", "--from", "2025-11-02", "--to", "2025-11-03"];

/// A number of users with one message each, spread over two days.
fn stage_with_users(users: usize) -> Stage {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    stage.settings("mode = \"per_user\"");
    let app = stage.dify.app("chat", "a");
    for number in 0..users {
        let user = stage.dify.end_user(&format!("u{number}"));
        let at = format!("2025-11-0{} 12:00:00", 2 + number % 2);
        stage.dify.plain(&app, &at, MODEL, (10, 1), Some("1"), &user);
    }
    stage
}

#[test]
fn batches_after_a_failing_one_are_sent_or_spooled() {
    let stage = stage_with_users(10);
    let settings = [("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")];
    stage
        .receiver
        .set_script(|request_number| if request_number == 1 { Action::Respond(503) } else { Action::Count });
    stage.run(&DAYS, &settings).exits_with(3);
    assert_eq!((stage.receiver.counted().records.len(), stage.files("spool").len()), (9, 1));
    stage.receiver.set_script(|_| Action::Respond(503));
    let run = stage.run(&DAYS, &settings);
    assert_eq!(run.sum("new"), 0, "spooled records are not new");
    stage.receiver.set_script(|_| Action::Count);
    stage.run(&["spool", "resend", "--force"], &settings).exits_with(0);
    assert_eq!(stage.receiver.counted().records.len(), 10);
}

#[test]
fn watermark_advances_only_after_everything_is_delivered_or_spooled() {
    let stage = stage_with_users(4);
    // The spool is too small for a single batch.
    let run = stage.run(&DAYS, &[("SPOOL_MAX_BYTES", "10")]);
    run.exits_with(1);
    assert_eq!(stage.watermark(), None);
    assert!(stage.files("export/sent").is_empty() && stage.receiver.counted().bodies.is_empty());
    stage.run(&DAYS, &[]).exits_with(0);
    assert_eq!(stage.watermark().as_deref(), Some("2025-11-03"));
    // The watermark does not jump over days that were not exported.
    stage.export(&["--from", "2025-11-20", "--to", "2025-11-21"]).exits_with(0);
    assert_eq!(stage.watermark().as_deref(), Some("2025-11-03"));
    stage.export(&["--from", "2025-11-04", "--to", "2025-11-19"]).exits_with(0);
    assert_eq!(stage.watermark().as_deref(), Some("2025-11-19"));
}

#[test]
fn timed_out_request_is_retried_and_counted_once() {
    let stage = stage_with_users(2);
    let deadline = [("EXTERNAL_API_TIMEOUT_MS", "1000")];
    stage.receiver.set_script(
        |request_number| if request_number == 1 { Action::CountAndNeverRespond } else { Action::Count },
    );
    let run = stage.run(&DAYS, &deadline);
    run.exits_with(0);
    assert!(run.json()["delivery"]["retries"].as_u64().unwrap() >= 1, "{}", run.stdout);
    assert_eq!(run.log("not delivered")[0]["errorKind"], "timeout", "{}", run.stderr);
    let counted = stage.receiver.counted();
    assert_eq!((counted.records.len(), counted.duplicates), (2, 1));
}

#[test]
fn rejected_batches_are_held_or_failed_and_duplicates_count_as_delivered() {
    let stage = stage_with_users(2);
    // 401: the lane is held. Nothing is lost, and no retry is counted.
    stage.receiver.set_script(|_| Action::Respond(401));
    let run = stage.run(&DAYS, &[]);
    run.exits_with(3);
    assert!(run.last_line().contains("operator acts"), "{}", run.last_line());
    let held: Vec<String> =
        stage.files("spool").iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(!held.is_empty() && held.iter().all(|file| file.contains("\"retryCount\":0")), "{held:?}");
    // 400: the batches move to failed.
    stage.receiver.set_script(|_| Action::Respond(400));
    stage.run(&["spool", "resend", "--force"], &[]).exits_with(4);
    assert!(stage.files("spool").is_empty() && !stage.files("failed").is_empty());
    // 409: the receiver already has the records, so they count as delivered.
    stage.receiver.set_script(|_| Action::CountAndHangUp);
    stage.run(&["failed", "resend", "--all"], &[("MAX_RETRIES", "0")]).exits_with(3);
    stage.receiver.set_script(|_| Action::Count);
    stage.run(&["spool", "resend", "--force"], &[]).exits_with(0);
    let counted = stage.receiver.counted();
    assert_eq!(counted.records.len(), 2);
    assert!(counted.duplicates > 0);
}
