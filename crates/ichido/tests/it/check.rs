//! `ichido check` reports on the settings and on every connection.

use ichido_testkit::certificates::write_self_signed;
use ichido_testkit::pgbouncer::PgBouncer;
use ichido_testkit::{free_port, required_env, tcp_server};

use crate::{json, ok, refused, run, stdout};

#[test]
fn missing_ledger_is_reported_and_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["check"]);
    assert!(text.contains("does not exist yet; it will be created"), "{text}");
    assert!(!dir.path().join("data").exists());
}

#[test]
fn capabilities_of_the_embedded_ledger_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["ledger", "init"]);
    let text = ok(dir.path(), &["check"]);
    assert!(text.contains("file responds") && text.contains("survives process kill, power loss"), "{text}");
    let report = json(dir.path(), &["check", "--json"]);
    assert_eq!(report["capabilities"]["backend"], "file");
}

#[test]
fn memory_ledger_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["check", "--ledger", "memory:"]);
    assert!(text.contains("warning") && text.contains("loses everything"), "{text}");
}

#[test]
fn failed_check_exits_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("redis://127.0.0.1:{}", free_port());
    let output = run(dir.path(), &["check", "--ledger", &url]);
    assert!(stdout(&output).contains("FAILED"), "{}", stdout(&output));
    let line = refused(dir.path(), &["check", "--ledger", &url], 1);
    assert!(line.contains("1 of 3 checks failed"), "{line}");
}

/// What `ichido run` would refuse, `ichido check` reports.
#[test]
fn admin_port_that_everyone_could_reach_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ichido.toml"), "[admin]\nlisten = \"0.0.0.0:9090\"\n").unwrap();
    let output = run(dir.path(), &["check", "--ledger", "memory:"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("0.0.0.0:9090 is not on loopback and requires a token"),
        "{}",
        stdout(&output)
    );
    let text = crate::ichido(dir.path())
        .args(["check", "--ledger", "memory:"])
        .env("ICHIDO_ADMIN_TOKEN", "at-least-16-characters")
        .output()
        .unwrap();
    assert!(text.status.success(), "{}", stdout(&text));
}

#[test]
fn servers_are_reached() {
    let dir = tempfile::tempdir().unwrap();
    for (name, backend) in [("ICHIDO_TEST_POSTGRES_URL", "postgres"), ("ICHIDO_TEST_REDIS_URL", "redis")] {
        let report = json(dir.path(), &["check", "--json", "--ledger", &required_env(name)]);
        assert_eq!(report["capabilities"]["backend"], backend);
    }
}

/// The system trusts the CA of the server; the file contains a different one.
#[test]
fn ca_file_adds_to_the_system_authorities() {
    let dir = tempfile::tempdir().unwrap();
    write_self_signed(dir.path());
    let other = dir.path().join("cert.pem");
    let ledger = format!("{}?ca_file={}", required_env("ICHIDO_TEST_REDIS_TLS_URL"), other.display());
    let check = |system: &std::path::Path| {
        let mut check = crate::ichido(dir.path());
        check.args(["check", "--ledger", &ledger]).env("SSL_CERT_FILE", system).env_remove("SSL_CERT_DIR");
        check.output().unwrap()
    };
    let output = check(required_env("ICHIDO_TEST_CA_FILE").as_ref());
    assert!(output.status.success(), "{}", stdout(&output));
    assert_eq!(check(&other).status.code(), Some(1), "the CA of the server is not trusted");
}

/// Behind a pooler in transaction mode the ledger works, but differently from a direct connection.
#[test]
fn pooler_in_front_of_postgres_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let pooler = PgBouncer::start("transaction", 2);
    let url = pooler.url(&format!("check_{}", std::process::id()));
    let text = crate::ok(dir.path(), &["check", "--ledger", &url]);
    assert!(text.contains("behind a pooler in transaction mode"), "{text}");
    for args in [&["ledger", "init"][..], &["ledger", "list"], &["ledger", "stats"], &["ledger", "sweep"]] {
        crate::ok(dir.path(), &[args, &["--ledger", &url]].concat());
    }
    // Whether the pooler knows a prepared statement is a matter of chance. The setting is reported in any case.
    let output = run(dir.path(), &["check", "--ledger", &format!("{url}&prepared=on")]);
    assert!(stdout(&output).contains("remove prepared=on"), "{}", stdout(&output));
}

#[test]
fn upstream_from_the_environment_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let address = tcp_server::start(drop);
    for section in ["[gateway]\n", ""] {
        std::fs::write(dir.path().join("ichido.toml"), format!("[ledger]\nurl = \"memory:\"\n{section}"))
            .unwrap();
        let mut check = crate::ichido(dir.path());
        check.arg("check").env("ICHIDO_GATEWAY_UPSTREAM", format!("http://{address}"));
        let output = check.output().unwrap();
        assert!(output.status.success(), "{}", stdout(&output));
        assert!(stdout(&output).contains(&format!("{address} accepts connections")), "{}", stdout(&output));
    }
}

#[test]
fn gateway_section_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let address = tcp_server::start(drop);
    std::fs::write(
        dir.path().join("ichido.toml"),
        format!("[ledger]\nurl = \"memory:\"\n[gateway]\nupstream = \"http://{address}\"\n"),
    )
    .unwrap();
    let text = crate::ok(dir.path(), &["check"]);
    assert!(
        text.contains("POST,PATCH /**") && text.contains(&format!("{address} accepts connections")),
        "{text}"
    );
    std::fs::write(
        dir.path().join("ichido.toml"),
        format!(
            "[ledger]\nurl = \"memory:\"\n[gateway]\nupstream = \"http://{address}\"\n\
             [[gateway.routes]]\npreset = \"slack-events\"\nmatch = \"POST /a\"\nslack_signing_secret = \"hunter2\"\n\
             [[gateway.routes]]\npreset = \"github\"\nmatch = \"POST /b\"\n"
        ),
    )
    .unwrap();
    let text = crate::ok(dir.path(), &["check"]);
    assert!(text.contains("POST /a (slack-events); POST /b (github)") && !text.contains("hunter2"), "{text}");
    assert!(text.contains("X-Slack-Signature is verified"), "{text}");
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
