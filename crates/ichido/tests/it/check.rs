//! `ichido check`: each thing with its verdict.

use crate::{json, ok, refused, run, stdout};

#[test]
fn a_fresh_machine_is_told_what_will_be_created() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["check"]);
    assert!(text.contains("does not exist yet; it will be created"), "{text}");
    assert!(!dir.path().join("data").exists());
}

#[test]
fn the_embedded_ledger_tells_what_it_promises() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["ledger", "init"]);
    let text = ok(dir.path(), &["check"]);
    assert!(text.contains("file answers") && text.contains("survives process kill, power loss"), "{text}");
    let report = json(dir.path(), &["check", "--json"]);
    assert_eq!(report["capabilities"]["backend"], "file");
}

#[test]
fn a_memory_ledger_is_warned_about() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["check", "--ledger", "memory:"]);
    assert!(text.contains("warning") && text.contains("forgets everything"), "{text}");
}

#[test]
fn a_failed_check_exits_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("redis://127.0.0.1:{port}");
    let output = run(dir.path(), &["check", "--ledger", &url]);
    assert!(stdout(&output).contains("FAILED"), "{}", stdout(&output));
    let line = refused(dir.path(), &["check", "--ledger", &url], 1);
    assert!(line.contains("1 of 3 checks failed"), "{line}");
}

#[test]
fn real_servers_answer() {
    let dir = tempfile::tempdir().unwrap();
    for (name, backend) in [("ICHIDO_TEST_POSTGRES_URL", "postgres"), ("ICHIDO_TEST_REDIS_URL", "redis")] {
        let url = std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test`"));
        let report = json(dir.path(), &["check", "--json", "--ledger", &url]);
        assert_eq!(report["capabilities"]["backend"], backend);
    }
}

#[test]
fn an_upstream_of_the_environment_is_checked_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = taken.local_addr().unwrap();
    for section in ["[gateway]\n", ""] {
        std::fs::write(dir.path().join("ichido.toml"), format!("[ledger]\nurl = \"memory:\"\n{section}"))
            .unwrap();
        let mut check = crate::ichido(dir.path());
        check.arg("check").env("ICHIDO_GATEWAY_UPSTREAM", format!("http://{there}"));
        let output = check.output().unwrap();
        assert!(output.status.success(), "{}", stdout(&output));
        assert!(stdout(&output).contains(&format!("{there} answers")), "{}", stdout(&output));
    }
}

#[test]
fn the_gateways_section_is_checked_too() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = taken.local_addr().unwrap();
    std::fs::write(
        dir.path().join("ichido.toml"),
        format!("[ledger]\nurl = \"memory:\"\n[gateway]\nupstream = \"http://{there}\"\n"),
    )
    .unwrap();
    let text = crate::ok(dir.path(), &["check"]);
    assert!(text.contains("POST,PATCH /**") && text.contains(&format!("{there} answers")), "{text}");
    std::fs::write(
        dir.path().join("ichido.toml"),
        format!(
            "[ledger]\nurl = \"memory:\"\n[gateway]\nupstream = \"http://{there}\"\n\
             [[gateway.routes]]\npreset = \"slack-events\"\nmatch = \"POST /a\"\nslack_signing_secret = \"hunter2\"\n\
             [[gateway.routes]]\npreset = \"github\"\nmatch = \"POST /b\"\n"
        ),
    )
    .unwrap();
    let text = crate::ok(dir.path(), &["check"]);
    assert!(text.contains("POST /a (slack-events); POST /b (github)") && !text.contains("hunter2"), "{text}");
    assert!(text.contains("X-Slack-Signature is checked"), "{text}");
    let warned = text.lines().find(|line| line.starts_with("warning") && line.contains("POST /b (github)"));
    assert!(
        warned.is_some_and(|line| line.contains("set github_webhook_secret or GITHUB_WEBHOOK_SECRET")),
        "{text}"
    );
    std::fs::write(
        dir.path().join("ichido.toml"),
        "[ledger]\nurl = \"memory:\"\n[gateway]\nupstream = \"http://h\"\ntenant = \"ip\"\n",
    )
    .unwrap();
    let output = crate::run(dir.path(), &["check"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(crate::stdout(&output).contains("gateway.tenant"), "{}", crate::stdout(&output));
}
