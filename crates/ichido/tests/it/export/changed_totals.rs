//! Totals that change after they were sent.

use jiff::ToSpan;
use jiff::tz::TimeZone;
use rust_decimal::Decimal;

use super::Stage;
use super::receiver::{Act, Habit};

const MODEL: Option<(&str, &str)> = Some(("openai", "gpt-4o"));

/// Noon of so many days ago, as Dify writes it.
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

/// A stage on which a week was exported: one message a day.
fn exported(habit: Habit) -> (Stage, Vec<String>) {
    let mut stage = Stage::new(habit);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let messages =
        (2..9).map(|ago| stage.dify.plain(&app, &noon(ago), MODEL, (10, 1), Some("1"), &user)).collect();
    let (first, last) = (noon(8), noon(2));
    stage.export(&["--from", day(&first), "--to", day(&last)]).ends_with(0);
    assert_eq!(cost(&stage).to_string(), "7");
    (stage, messages)
}

/// Tokens that Dify fills in later.
fn late(stage: &Stage, message: &str) {
    stage.dify.sql(&format!(
        "UPDATE messages SET message_tokens = 99, total_price = 5, updated_at = now() AT TIME ZONE 'utc' WHERE id = '{message}'"
    ));
}

#[test]
fn a_late_change_far_back_is_found_by_updated_at_and_replaces_the_total() {
    let (stage, messages) = exported(Habit::Upsert);
    // Beyond the days that each run reads again anyway.
    late(&stage, &messages[6]);
    let run = stage.export(&[]);
    run.ends_with(0);
    assert_eq!((run.sum("replaced"), run.sum("kept")), (1, 0));
    let change = &run.json()["changes"][0];
    assert_eq!(
        (&change["before"]["cost"], &change["now"]["cost"], &change["what"]),
        (&"1".into(), &"5".into(), &"sent".into())
    );
    assert_eq!(cost(&stage).to_string(), "11");
    let again = stage.export(&[]);
    again.ends_with(0);
    assert_eq!((again.sum("replaced"), again.sum("new")), (0, 0));
}

#[test]
fn a_receiver_that_keeps_the_first_is_not_asked_again_and_the_change_is_reported() {
    let (stage, messages) = exported(Habit::FirstWins);
    late(&stage, &messages[0]);
    for _ in 0..2 {
        let run = stage.export(&[]);
        run.ends_with(0);
        assert_eq!((run.sum("replaced"), run.sum("kept"), run.sum("new")), (0, 1, 0));
        assert_eq!(run.json()["changes"][0]["what"], "not_sent");
    }
    assert_eq!(cost(&stage).to_string(), "7");
    assert_eq!(stage.receiver.counted().duplicates, 0);
}

#[test]
fn a_newer_total_is_never_overtaken_by_an_older_one_that_waits() {
    let mut stage = Stage::new(Habit::Upsert);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let message = stage.dify.plain(&app, &noon(2), MODEL, (10, 1), Some("1"), &user);
    let other = stage.dify.plain(&app, &noon(3), MODEL, (10, 1), Some("1"), &user);
    let (first, last) = (noon(3), noon(2));
    let days = ["--from", day(&first), "--to", day(&last)];
    stage.receiver.does(|_| Act::Say(503));
    stage.export(&days).ends_with(3);
    assert_eq!(stage.files("spool").len(), 2);
    assert_eq!(stage.watermark().as_deref(), Some(day(&last)), "what is spooled is safe");
    late(&stage, &message);
    let run = stage.export(&days);
    run.ends_with(3);
    assert_eq!((run.sum("withheld"), run.sum("replaced")), (1, 0));
    assert_eq!(stage.files("spool").len(), 2, "the newer total stays in the source");
    // The one that died between sending and remembering: nothing is known of what waits.
    std::fs::remove_dir_all(stage.path().join("data/export")).unwrap();
    stage.export(&days).ends_with(3);
    assert_eq!(stage.files("spool").len(), 2);
    late(&stage, &other);
    stage.receiver.does(|_| Act::Count);
    // What waits arrives first, and then the newer totals go in the same run.
    stage.export(&days).ends_with(0);
    assert_eq!(cost(&stage).to_string(), "10");
    assert!(stage.files("spool").is_empty());
}

#[test]
fn an_older_total_in_failed_is_not_sent_over_a_newer_one() {
    let mut stage = Stage::new(Habit::Upsert);
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let message = stage.dify.plain(&app, &noon(2), MODEL, (10, 1), Some("1"), &user);
    let last = noon(2);
    let days = ["--from", day(&last), "--to", day(&last)];
    stage.receiver.does(|_| Act::Say(400));
    stage.export(&days).ends_with(4);
    assert_eq!(stage.files("failed").len(), 1);
    late(&stage, &message);
    stage.receiver.does(|_| Act::Count);
    stage.export(&days).ends_with(0);
    let refused = stage.run(&["failed", "resend", "--all"], &[]);
    refused.ends_with(2);
    assert!(refused.last().contains("older total"), "{}", refused.last());
    assert_eq!(cost(&stage).to_string(), "5");
}

#[test]
fn other_rules_would_count_the_same_usage_again_and_are_refused() {
    let (stage, _) = exported(Habit::FirstWins);
    stage.settings("mode = \"workspace\"");
    let refused = stage.export(&[]);
    refused.ends_with(2);
    assert!(refused.last().contains("export.dify.mode"), "{}", refused.last());
    stage.settings("zone = \"Asia/Tokyo\"");
    assert!(stage.export(&[]).ends_with(2).last().contains("export.dify.zone"));
}

#[test]
fn a_day_that_is_not_over_is_left_out_unless_it_is_asked_for() {
    let mut stage = Stage::new(Habit::Upsert);
    stage.settings("settle_minutes = 0");
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    let (today, before) = (noon(0), noon(1));
    let started = format!("{} 00:00:00", day(&today));
    stage.dify.plain(&app, &started, MODEL, (10, 1), Some("1"), &user);
    stage.dify.plain(&app, &before, MODEL, (10, 1), Some("2"), &user);
    let run = stage.export(&["--from", day(&before), "--to", day(&today)]);
    run.ends_with(0);
    assert!(run.json()["left_out"].as_str().unwrap().contains(day(&today)), "{}", run.stdout);
    assert_eq!(cost(&stage).to_string(), "2");
    let refused = stage.export(&["--from", day(&today), "--to", day(&today)]);
    assert!(refused.ends_with(2).last().contains("not over yet"), "{}", refused.last());
    stage.export(&["--from", day(&today), "--to", day(&today), "--include-open"]).ends_with(0);
    assert_eq!(cost(&stage).to_string(), "3");
    assert_eq!(stage.watermark().as_deref(), Some(day(&before)), "the watermark does not pass an open day");
}
