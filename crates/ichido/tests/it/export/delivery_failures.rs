//! What the exporter before us got wrong, as far as it concerns the export. Groups 1 and 5 are with the ids and the sums.

use super::Stage;
use super::receiver::{Act, Habit};

const MODEL: Option<(&str, &str)> = Some(("openai", "gpt-4o"));
const DAYS: [&str; 7] = ["export", "dify", "--json", "--from", "2025-11-02", "--to", "2025-11-03"];

/// So many users with one message each, on two days.
fn stage(users: usize) -> Stage {
    let mut stage = Stage::new(Habit::FirstWins);
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
fn old_mistake_2_batches_behind_a_failing_one_are_sent_or_spooled() {
    let stage = stage(10);
    let settings = [("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")];
    stage.receiver.does(|turn| if turn == 1 { Act::Say(503) } else { Act::Count });
    stage.run(&DAYS, &settings).ends_with(3);
    assert_eq!((stage.receiver.counted().records.len(), stage.files("spool").len()), (9, 1));
    stage.receiver.does(|_| Act::Say(503));
    let run = stage.run(&DAYS, &settings);
    assert_eq!(run.sum("new"), 0, "the spool counts as sent");
    stage.receiver.does(|_| Act::Count);
    stage.run(&["spool", "resend", "--force"], &settings).ends_with(0);
    assert_eq!(stage.receiver.counted().records.len(), 10);
}

#[test]
fn old_mistake_3_what_waits_is_really_resent_and_what_fails_really_lies_in_failed() {
    let stage = stage(4);
    stage.receiver.does(|_| Act::Say(503));
    let settings = [("MAX_RETRIES", "0"), ("MAX_SPOOL_RETRIES", "1")];
    stage.run(&DAYS, &settings).ends_with(3);
    stage.run(&["spool", "resend"], &settings).ends_with(4);
    assert_eq!((stage.files("spool").len(), stage.files("failed").len()), (0, 2));
    stage.receiver.does(|_| Act::Count);
    stage.run(&["failed", "resend", "--all"], &settings).ends_with(0);
    assert_eq!(stage.receiver.counted().records.len(), 4);
}

#[test]
fn old_mistake_4_the_watermark_moves_only_after_everything_was_delivered_or_spooled() {
    let stage = stage(4);
    // There is no room for a single batch.
    let run = stage.run(&DAYS, &[("SPOOL_MAX_BYTES", "10")]);
    run.ends_with(1);
    assert_eq!(stage.watermark(), None);
    assert!(stage.files("export/sent").is_empty() && stage.receiver.counted().bodies.is_empty());
    stage.run(&DAYS, &[]).ends_with(0);
    assert_eq!(stage.watermark().as_deref(), Some("2025-11-03"));
    // A gap is not passed.
    stage.export(&["--from", "2025-11-20", "--to", "2025-11-21"]).ends_with(0);
    assert_eq!(stage.watermark().as_deref(), Some("2025-11-03"));
    stage.export(&["--from", "2025-11-04", "--to", "2025-11-19"]).ends_with(0);
    assert_eq!(stage.watermark().as_deref(), Some("2025-11-19"));
}

#[test]
fn old_mistake_4_days_are_those_of_one_zone() {
    let mut stage = Stage::new(Habit::FirstWins);
    stage.settings("mode = \"workspace\"\nzone = \"America/Los_Angeles\"");
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    // Clocks are set back on this day: it has 25 hours.
    for at in ["2025-11-02 06:59:59", "2025-11-02 07:00:00", "2025-11-03 07:59:59", "2025-11-03 08:00:00"] {
        stage.dify.plain(&app, at, MODEL, (10, 1), Some("1"), &user);
    }
    stage.export(&["--from", "2025-11-02", "--to", "2025-11-02"]).ends_with(0);
    let books = stage.receiver.books();
    let sums: Vec<(String, u64)> = books.iter().map(|((day, ..), sum)| (day.clone(), sum.requests)).collect();
    assert_eq!(sums, [("2025-11-02".to_owned(), 2)]);
}

#[test]
fn old_mistake_7_a_request_that_times_out_is_tried_again_and_counts_once() {
    let stage = stage(2);
    let deadline = [("EXTERNAL_API_TIMEOUT_MS", "1000")];
    stage.receiver.does(|turn| if turn == 1 { Act::CountAndKeepSilent } else { Act::Count });
    let run = stage.run(&DAYS, &deadline);
    run.ends_with(0);
    assert!(run.json()["delivery"]["retries"].as_u64().unwrap() >= 1, "{}", run.stdout);
    assert_eq!(run.log("not delivered")[0]["errorKind"], "timeout", "{}", run.stderr);
    let counted = stage.receiver.counted();
    assert_eq!((counted.records.len(), counted.duplicates), (2, 1));
}

#[test]
fn old_mistake_7_timeouts_without_end_wait_in_the_spool() {
    let stage = stage(2);
    let settings = [("EXTERNAL_API_TIMEOUT_MS", "500"), ("MAX_RETRIES", "0")];
    stage.receiver.does(|_| Act::CountAndKeepSilent);
    stage.run(&DAYS, &settings).ends_with(3);
    assert_eq!((stage.files("spool").len(), stage.files("failed").len()), (2, 0));
    stage.receiver.does(|_| Act::Count);
    stage.run(&["spool", "resend", "--force"], &[]).ends_with(0);
    assert_eq!(stage.receiver.counted().records.len(), 2);
}

#[test]
fn old_mistake_7_refusals_are_no_outages() {
    let stage = stage(2);
    // 401: the lane is held, and nothing is charged or lost.
    stage.receiver.does(|_| Act::Say(401));
    let run = stage.run(&DAYS, &[]);
    run.ends_with(3);
    assert!(run.last().contains("operator acts"), "{}", run.last());
    let held: Vec<String> =
        stage.files("spool").iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(!held.is_empty() && held.iter().all(|file| file.contains("\"retryCount\":0")), "{held:?}");
    // 400: to failed, with the receiver's words.
    stage.receiver.does(|_| Act::Say(400));
    stage.run(&["spool", "resend", "--force"], &[]).ends_with(4);
    assert!(stage.files("spool").is_empty() && !stage.files("failed").is_empty());
    // 409: it is there already, and that is well.
    stage.receiver.does(|_| Act::CountAndHangUp);
    stage.run(&["failed", "resend", "--all"], &[("MAX_RETRIES", "0")]).ends_with(3);
    stage.receiver.does(|_| Act::Count);
    stage.run(&["spool", "resend", "--force"], &[]).ends_with(0);
    let counted = stage.receiver.counted();
    assert_eq!(counted.records.len(), 2);
    assert!(counted.duplicates > 0);
}
