//! Totals that change after they have been sent.

use jiff::ToSpan;
use jiff::tz::TimeZone;
use rust_decimal::Decimal;

use super::Stage;
use super::receiver::{Action, ReceiverKind};

const MODEL: Option<(&str, &str)> = Some(("openai", "gpt-4o"));

/// Noon UTC `days_ago`, in Dify's timestamp format.
fn noon(days_ago: i64) -> String {
    let day = jiff::Timestamp::now().to_zoned(TimeZone::UTC).date().checked_sub(days_ago.days()).unwrap();
    format!("{day} 12:00:00")
}

fn cost(stage: &Stage) -> Decimal {
    stage.receiver.cost().normalize()
}

fn day(text: &str) -> &str {
    &text[..10]
}

/// Exports a week with one message a day, and returns the ids of the messages, newest first.
fn with_exported_week(kind: ReceiverKind) -> (Stage, Vec<String>) {
    let mut stage = Stage::new(kind);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let messages =
        (2..9).map(|ago| stage.dify.plain(&app, &noon(ago), MODEL, (10, 1), Some("1"), &user)).collect();
    let (first, last) = (noon(8), noon(2));
    stage.export(&["--from", day(&first), "--to", day(&last)]).exits_with(0);
    assert_eq!(cost(&stage).to_string(), "7");
    (stage, messages)
}

/// Changes the tokens and the price of a message, as Dify does when it fills them in later.
fn fill_in_later(stage: &Stage, message: &str) {
    stage.dify.sql(&format!(
        "UPDATE messages SET message_tokens = 99, total_price = 5, updated_at = now() AT TIME ZONE 'utc' WHERE id = '{message}'"
    ));
}

#[test]
fn late_change_to_an_old_day_is_found_by_updated_at_and_replaces_the_total() {
    let (stage, messages) = with_exported_week(ReceiverKind::Upsert);
    // This day is older than those that every run reads again.
    fill_in_later(&stage, &messages[6]);
    let run = stage.export(&[]);
    run.exits_with(0);
    assert_eq!((run.sum("replaced"), run.sum("kept")), (1, 0));
    let change = &run.json()["changes"][0];
    assert_eq!(
        (&change["before"]["cost"], &change["now"]["cost"], &change["what"]),
        (&"1".into(), &"5".into(), &"sent".into())
    );
    assert_eq!(cost(&stage).to_string(), "11");
    let again = stage.export(&[]);
    again.exits_with(0);
    assert_eq!((again.sum("replaced"), again.sum("new")), (0, 0));
}

#[test]
fn changed_total_is_reported_but_not_resent_to_a_first_wins_receiver() {
    let (stage, messages) = with_exported_week(ReceiverKind::FirstWins);
    fill_in_later(&stage, &messages[0]);
    for _ in 0..2 {
        let run = stage.export(&[]);
        run.exits_with(0);
        assert_eq!((run.sum("replaced"), run.sum("kept"), run.sum("new")), (0, 1, 0));
        assert_eq!(run.json()["changes"][0]["what"], "not_sent");
    }
    assert_eq!(cost(&stage).to_string(), "7");
    assert_eq!(stage.receiver.counted().duplicates, 0);
}

#[test]
fn newer_total_is_withheld_until_the_spooled_older_one_is_delivered() {
    let mut stage = Stage::new(ReceiverKind::Upsert);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let message = stage.dify.plain(&app, &noon(2), MODEL, (10, 1), Some("1"), &user);
    let other = stage.dify.plain(&app, &noon(3), MODEL, (10, 1), Some("1"), &user);
    let (first, last) = (noon(3), noon(2));
    let days = ["--from", day(&first), "--to", day(&last)];
    stage.receiver.set_script(|_| Action::Respond(503));
    stage.export(&days).exits_with(3);
    assert_eq!(stage.files("spool").len(), 2);
    assert_eq!(
        stage.watermark().as_deref(),
        Some(day(&last)),
        "spooled records count as safe, so the watermark advances"
    );
    fill_in_later(&stage, &message);
    let run = stage.export(&days);
    run.exits_with(3);
    assert_eq!((run.sum("withheld"), run.sum("replaced")), (1, 0));
    assert_eq!(stage.files("spool").len(), 2, "the newer total is not spooled");
    // Simulates a crash after spooling and before recording it: the export no longer knows which records it spooled.
    std::fs::remove_dir_all(stage.path().join("data/export")).unwrap();
    stage.export(&days).exits_with(3);
    assert_eq!(stage.files("spool").len(), 2);
    fill_in_later(&stage, &other);
    stage.receiver.set_script(|_| Action::Count);
    // The spooled records are delivered first; the newer totals follow in the same run.
    stage.export(&days).exits_with(0);
    assert_eq!(cost(&stage).to_string(), "10");
    assert!(stage.files("spool").is_empty());
}

#[test]
fn older_failed_total_does_not_replace_a_newer_one() {
    let mut stage = Stage::new(ReceiverKind::Upsert);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let message = stage.dify.plain(&app, &noon(2), MODEL, (10, 1), Some("1"), &user);
    let last = noon(2);
    let days = ["--from", day(&last), "--to", day(&last)];
    stage.receiver.set_script(|_| Action::Respond(400));
    stage.export(&days).exits_with(4);
    assert_eq!(stage.files("failed").len(), 1);
    fill_in_later(&stage, &message);
    stage.receiver.set_script(|_| Action::Count);
    stage.export(&days).exits_with(0);
    let refused = stage.run(&["failed", "resend", "--all"], &[]);
    refused.exits_with(2);
    assert!(refused.last_line().contains("older total"), "{}", refused.last_line());
    assert_eq!(cost(&stage).to_string(), "5");
}

#[test]
fn changed_aggregation_settings_are_refused_because_they_would_count_usage_again() {
    let (stage, _) = with_exported_week(ReceiverKind::FirstWins);
    stage.settings("mode = \"workspace\"");
    let refused = stage.export(&[]);
    refused.exits_with(2);
    assert!(refused.last_line().contains("export.dify.mode"), "{}", refused.last_line());
    stage.settings("zone = \"Asia/Tokyo\"");
    assert!(stage.export(&[]).exits_with(2).last_line().contains("export.dify.zone"));
}

#[test]
fn open_day_is_skipped_unless_requested() {
    let mut stage = Stage::new(ReceiverKind::Upsert);
    stage.settings("settle_minutes = 0");
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let (today, before) = (noon(0), noon(1));
    let started = format!("{} 00:00:00", day(&today));
    stage.dify.plain(&app, &started, MODEL, (10, 1), Some("1"), &user);
    stage.dify.plain(&app, &before, MODEL, (10, 1), Some("2"), &user);
    let run = stage.export(&["--from", day(&before), "--to", day(&today)]);
    run.exits_with(0);
    assert!(run.json()["left_out"].as_str().unwrap().contains(day(&today)), "{}", run.stdout);
    assert_eq!(cost(&stage).to_string(), "2");
    let refused = stage.export(&["--from", day(&today), "--to", day(&today)]);
    assert!(refused.exits_with(2).last_line().contains("not over yet"), "{}", refused.last_line());
    stage.export(&["--from", day(&today), "--to", day(&today), "--include-open"]).exits_with(0);
    assert_eq!(cost(&stage).to_string(), "3");
    assert_eq!(
        stage.watermark().as_deref(),
        Some(day(&before)),
        "the watermark does not move past an open day"
    );
}
