//! Notices to operators: log lines, Slack messages and the outbox.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;
use serde_json::json;

use super::Fixture;

#[test]
fn hanging_slack_webhook_does_not_delay_resends() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(503, String::new()));
    fixture.send(30, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    fixture.receiver.on_batch(|request| match request.ids[0].as_str() {
        "e0" => Reply::Status(422, "no date".to_owned()),
        _ => Reply::Accept,
    });
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let slack = format!("http://{}/services/x", silent.local_addr().unwrap());
    let mut command = fixture.command(&["run", "--admin", "off"]);
    let mut daemon =
        Process::start(command.env("SLACK_WEBHOOK_URL", slack).env("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "on"))
            .unwrap();
    let _connection = silent.accept().unwrap();
    eventually("the other batches", || (fixture.receiver.record_count() == 29).then_some(()));
    daemon.kill();
    // The notice was not sent yet. The next process sends it.
    let run = fixture.run(&["send", "/dev/null"], &[]);
    assert!(
        run.log("notice").iter().any(|line| line["subject"] == "ichido: 1 batch failed"),
        "{}",
        run.stderr
    );
    assert_eq!(fixture.files("notices").len(), 0);
}

#[test]
fn log_records_whether_each_failure_notice_was_sent() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|request| match request.ids.is_empty() {
        true => Reply::Status(200, "ok".to_owned()),
        false => Reply::Status(503, String::new()),
    });
    let slack = fixture.url("/services/x");
    let settings = [("SLACK_WEBHOOK_URL", slack.as_str()), ("MAX_RETRIES", "0"), ("MAX_SPOOL_RETRIES", "1")];
    fixture.send(2, &settings).exits_with(3);
    let run = fixture.run(&["spool", "resend"], &settings);
    run.exits_with(4);
    let (moved, sent) = (run.log("moved to failed"), run.log("notice of a failed batch sent"));
    let ([moved], [sent]) = (&moved[..], &sent[..]) else { panic!("{}", run.stderr) };
    assert_eq!(
        (&moved["notificationQueued"], &moved["notificationSent"]),
        (&json!(true), &json!(false)),
        "{moved}"
    );
    assert_eq!((&sent["notificationSent"], &sent["channel"]), (&json!(true), &json!("slack")), "{sent}");
    assert!(moved["noticeId"].is_string());
    for name in ["noticeId", "batchIdempotencyKey"] {
        assert_eq!(moved[name], sent[name]);
    }
    let context = &moved["context"];
    assert_eq!((&context["origin"], &context["records"]), (&json!("spool"), &json!(2)), "{moved}");
    assert_eq!(context["firstAttempt"], moved["firstAttempt"]);
    assert!(context["destination"].as_str().unwrap().starts_with("https://"), "{moved}");
    assert_eq!(run.log("run finished")[0]["metrics"]["failedMoved"], 1);
    assert!(!run.stderr.contains("no notification channel"), "{}", run.stderr);
}

#[test]
fn missing_notification_channel_is_a_warning() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|_| Reply::Status(422, String::new()));
    let run = fixture.send(1, &[]);
    run.exits_with(4);
    assert!(run.stderr.contains("no notification channel is configured"), "{}", run.stderr);
    let sent = &run.log("notice of a failed batch sent")[0];
    assert_eq!((&sent["notificationSent"], &sent["channel"]), (&json!(false), &json!("log")), "{sent}");
    let check = fixture.run(&["check"], &[]);
    let line = check.stdout.lines().find(|line| line.contains("notices")).unwrap_or_default().to_owned();
    assert!(line.starts_with("warning") && line.contains("SLACK_WEBHOOK_URL"), "{}", check.stdout);
}

#[test]
fn slack_uses_the_same_ca_file_as_the_receiver() {
    let fixture = Fixture::new();
    fixture.receiver.on_batch(|request| match request.ids.first() {
        Some(_) => Reply::Status(422, "no date".to_owned()),
        None => Reply::Status(200, "ok".to_owned()),
    });
    let slack = fixture.url("/services/hunter2");
    let run = fixture.send(1, &[("SLACK_WEBHOOK_URL", &slack)]);
    run.exits_with(4);
    let requests = fixture.receiver.batches();
    let text = String::from_utf8(requests.last().unwrap().bytes.to_vec()).unwrap();
    assert!(text.contains("1 batch failed"), "{text} {}", run.stderr);
    assert!(!run.stderr.contains("hunter2"), "{}", run.stderr);
    std::fs::write(fixture.path().join("none.pem"), "no certificate").unwrap();
    for settings in [&[][..], &[("SLACK_WEBHOOK_URL", slack.as_str())]] {
        let mut settings = settings.to_vec();
        settings.push(("EXTERNAL_API_CA_FILE", "none.pem"));
        let run = fixture.send(1, &settings);
        run.exits_with(2);
        let line = "ichido: delivery.ca_file: none.pem contains no certificate (environment variable EXTERNAL_API_CA_FILE)";
        assert_eq!(run.stderr.trim_end(), line);
    }
}

#[test]
fn invalid_lines_share_one_notice() {
    let fixture = Fixture::new();
    let path = fixture.path().join("broken.jsonl");
    std::fs::write(&path, "{\"source_event_id\":\"e1\"}\n".to_owned() + &"{torn\n".repeat(200)).unwrap();
    // The webhook rejects notices, so they stay in the outbox.
    fixture.receiver.on_batch(|request| {
        if request.ids.is_empty() { Reply::Status(404, String::new()) } else { Reply::Accept }
    });
    let slack = fixture.url("/services/x");
    fixture.run(&["send", path.to_str().unwrap()], &[("SLACK_WEBHOOK_URL", &slack)]).exits_with(4);
    fixture.receiver.assert_each_record_once(1);
    assert_eq!(fixture.files("failed").len(), 200);
    assert_eq!(fixture.files("notices").len(), 2, "one notice for the first line, one for all others");
    let run = fixture.run(&["send", "/dev/null"], &[]);
    let notices = run.log("notice");
    assert_eq!(notices.len(), 1, "{}", run.stderr);
    assert_eq!(notices[0]["subject"], "ichido: 200 invalid input items");
    let text = notices[0]["text"].as_str().unwrap();
    assert!(text.contains("line 2:") && text.contains("line 201:"), "{text}");
}

#[test]
fn check_names_the_channels_and_tries_them_on_request() {
    let fixture = Fixture::new();
    let script = fixture.path().join("notify.sh");
    std::fs::write(&script, "#!/bin/sh\ncat > got.json\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let (hook, slack) = (fixture.url("/hook/hunter2hunter2"), fixture.url("/services/hunter2hunter2"));
    let settings = [
        ("NOTIFY_COMMAND", "./notify.sh"),
        ("NOTIFY_WEBHOOK_URL", hook.as_str()),
        ("NOTIFY_WEBHOOK_TOKEN", "hunter2"),
        ("SLACK_WEBHOOK_URL", slack.as_str()),
    ];
    let check = fixture.run(&["check"], &settings);
    let line = check.exits_with(0).stdout.lines().find(|line| line.contains("notices")).unwrap();
    let origin = fixture.url("");
    assert!(
        line.starts_with("ok") && line.contains(&format!("Slack, webhook at {origin}, command ./notify.sh")),
        "{line}"
    );
    assert!(
        fixture.receiver.batches().is_empty() && !fixture.path().join("got.json").exists(),
        "nothing is sent"
    );

    // Slack refuses; the others get the test notice all the same.
    fixture.receiver.on_batch(|request| {
        match serde_json::from_slice::<serde_json::Value>(&request.bytes).unwrap() {
            body if body["schema"] == 1 => Reply::Status(200, String::new()),
            _ => Reply::Status(404, "no_service".to_owned()),
        }
    });
    let tried = fixture.run(&["check", "--notify"], &settings);
    tried.exits_with(1);
    let lines: Vec<&str> = tried.stdout.lines().filter(|line| line.contains("notify ")).collect();
    assert_eq!(lines.len(), 3, "{}", tried.stdout);
    assert!(lines[0].starts_with("FAILED") && lines[0].contains("Slack: HTTP 404"), "{lines:?}");
    assert!(lines[1].starts_with("ok") && lines[2].starts_with("ok"), "{lines:?}");
    let got: serde_json::Value =
        serde_json::from_slice(&std::fs::read(fixture.path().join("got.json")).unwrap()).unwrap();
    assert_eq!(got["notices"][0]["event"], "test", "{got}");
    assert!(!format!("{}{}", tried.stdout, tried.stderr).contains("hunter2"), "{}", tried.stdout);
    let none = fixture.run(&["check", "--notify"], &[]);
    assert!(none.exits_with(1).stdout.contains("no notification channel is configured"), "{}", none.stdout);
}

/// One process finds a channel down and ends; the next one sends only to that channel.
#[test]
fn channel_that_was_down_gets_the_notice_from_the_next_process_alone() {
    let fixture = Fixture::new();
    let script = fixture.path().join("notify.sh");
    std::fs::write(&script, "#!/bin/sh\n(cat; echo) >> got\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let down = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fixture.receiver.on_batch(|request| match request.ids.is_empty() {
        true => Reply::Status(200, String::new()),
        false => Reply::Status(422, "no date".to_owned()),
    });
    let (hook, broken) = (fixture.url("/hook"), format!("https://{down}/hook"));
    let settings = |hook| [("NOTIFY_COMMAND", "./notify.sh"), ("NOTIFY_WEBHOOK_URL", hook)];
    let run = fixture.send(1, &settings(&broken));
    run.exits_with(4);
    let sent = run.log("notice of a failed batch sent");
    assert_eq!((sent.len(), &sent[0]["channel"]), (1, &json!("command")), "{}", run.stderr);
    let [name] =
        &fixture.file_names("notices").into_iter().filter(|name| !name.starts_with('.')).collect::<Vec<_>>()
            [..]
    else {
        panic!("{:?}", fixture.file_names("notices"))
    };
    assert!(name.contains(".sent-command.json"), "{name}");
    let run = fixture.run(&["send", "/dev/null"], &settings(&hook));
    let sent = run.exits_with(0).log("notice of a failed batch sent");
    assert_eq!((sent.len(), &sent[0]["channel"]), (1, &json!("webhook")), "{}", run.stderr);
    assert!(fixture.files("notices").is_empty());
    let got = std::fs::read_to_string(fixture.path().join("got")).unwrap();
    assert_eq!(got.lines().filter(|line| !line.is_empty()).count(), 1, "{got}");
}
