//! `ichido check`: each thing with its verdict.

use crate::support::certificate;
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
    assert!(text.contains("file responds") && text.contains("survives process kill, power loss"), "{text}");
    let report = json(dir.path(), &["check", "--json"]);
    assert_eq!(report["capabilities"]["backend"], "file");
}

#[test]
fn a_memory_ledger_is_warned_about() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["check", "--ledger", "memory:"]);
    assert!(text.contains("warning") && text.contains("loses everything"), "{text}");
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

/// A file of authorities is no reason to distrust those of the system. Here the system knows the server's, and the file has
/// another one.
#[test]
fn a_ca_file_adds_to_the_authorities_of_the_system() {
    let dir = tempfile::tempdir().unwrap();
    certificate(dir.path());
    let other = dir.path().join("cert.pem");
    let given = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name}: run `cargo xtask test`"));
    let ledger = format!("{}?ca_file={}", given("ICHIDO_TEST_REDIS_TLS_URL"), other.display());
    let check = |system: &std::path::Path| {
        let mut check = crate::ichido(dir.path());
        check.args(["check", "--ledger", &ledger]).env("SSL_CERT_FILE", system).env_remove("SSL_CERT_DIR");
        check.output().unwrap()
    };
    let output = check(given("ICHIDO_TEST_CA_FILE").as_ref());
    assert!(output.status.success(), "{}", stdout(&output));
    assert_eq!(check(&other).status.code(), Some(1), "nobody knows the server");
}

/// What is said must be true: behind a pooler in transaction mode the ledger works, and other than before a server.
#[test]
fn a_pooler_before_postgres_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let pooler = crate::pgbouncer::PgBouncer::start("transaction", 2);
    let url = pooler.url(&format!("check_{}", std::process::id()));
    let text = crate::ok(dir.path(), &["check", "--ledger", &url]);
    assert!(text.contains("behind a pooler in transaction mode"), "{text}");
    for args in [&["ledger", "init"][..], &["ledger", "list"], &["ledger", "stats"], &["ledger", "sweep"]] {
        crate::ok(dir.path(), &[args, &["--ledger", &url]].concat());
    }
    // Whether a name is known there is chance; that it was asked for is said in any case.
    let output = run(dir.path(), &["check", "--ledger", &format!("{url}&prepared=on")]);
    assert!(stdout(&output).contains("remove prepared=on"), "{}", stdout(&output));
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
        assert!(stdout(&output).contains(&format!("{there} accepts connections")), "{}", stdout(&output));
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
    assert!(
        text.contains("POST,PATCH /**") && text.contains(&format!("{there} accepts connections")),
        "{text}"
    );
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
