//! `ichido run` exports on a cron schedule.

use ichido_testkit::process::Process;
use ichido_testkit::wait::eventually;

use super::Stage;
use super::receiver::ReceiverKind;

#[test]
fn daemon_exports_on_schedule_through_its_own_sender() {
    let mut stage = Stage::new(ReceiverKind::FirstWins);
    stage.settings("cron = \"* * * * *\"\nsettle_minutes = 0");
    let (app, user) = (stage.dify.app("chat", "a"), stage.dify.end_user("u"));
    stage.dify.sql(&format!(
        "INSERT INTO messages VALUES (gen_random_uuid(), '{app}', 'openai', 'gpt-4o', 10, 1, 1, 'USD', NULL, '{user}', NULL, \
         (now() AT TIME ZONE 'utc')::date - interval '12 hours', now() AT TIME ZONE 'utc')"
    ));
    let mut daemon = Process::start(&mut stage.command(&["run", "--admin", "off"])).unwrap();
    eventually("the export", || (stage.receiver.counted().records.len() == 1).then_some(()));
    eventually("the watermark", || stage.watermark());
    daemon.signal("TERM");
    assert_eq!(daemon.exit_code(), 0, "{}", daemon.stderr());
    assert_eq!(stage.receiver.cost().normalize().to_string(), "1");
}
