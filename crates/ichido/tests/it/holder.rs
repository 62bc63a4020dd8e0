//! `ichido ledger …` on a store that another process has open. The commands go through the admin port of that process,
//! and give the same results as on a free store.

use ichido_core::{Key, Outcome};
use ichido_ledger::{OpenOptions, Settings, open, open_backend};
use ichido_testkit::free_port;

use crate::ledger::{self, claim, operate};
use crate::serving::Serving;
use crate::{ichido, json, ok, refused, run, stderr, stdout};

/// A response as the HTTP layer stores it: magic, status, one header field, no trailers, body.
fn stored_response() -> Vec<u8> {
    let (name, value) = (b"content-type", b"application/json");
    let mut bytes = vec![0, b'i', b'a', 1];
    bytes.extend(201_u16.to_be_bytes());
    bytes.extend(1_u16.to_be_bytes());
    bytes.extend(12_u16.to_be_bytes());
    bytes.extend(name);
    bytes.extend(16_u32.to_be_bytes());
    bytes.extend(value);
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(br#"{"orderId":17}"#);
    bytes
}

/// Fills the store with claims that reopening it does not change: done, with and without an outcome, and declared in
/// doubt.
async fn fill(url: &str) {
    let ledger = open(url, Settings::default()).await.unwrap();
    for (text, outcome) in [
        ("json", Outcome::kept(r#"{"orderId":17}"#)),
        ("text", Outcome::kept("by hand")),
        ("bytes", Outcome::kept(vec![0xff, 0xfe])),
        ("response", Outcome::kept(stored_response())),
        ("lost", Outcome::Tombstone("too large".to_owned())),
    ] {
        let key = Key::unscoped(text).unwrap();
        let token = claim(&ledger, key.clone(), 600_000).await;
        assert_eq!(ledger.complete(&key, token, outcome).await.unwrap(), ichido_core::Settled::Applied);
    }
    for (tenant, text) in [("alice", "shared"), ("bob", "shared"), ("", "odd &=+%/ キー")] {
        let key = Key::new(ichido_core::Scope::new(tenant, "POST /orders"), text).unwrap();
        let token = claim(&ledger, key.clone(), 600_000).await;
        assert_eq!(
            ledger.declare_in_doubt(&key, token, "the connection was lost").await.unwrap(),
            ichido_core::Settled::Applied
        );
    }
    ledger.close().await.unwrap();
}

/// Commands that change nothing in a store that was [filled](fill).
const COMMANDS: [&[&str]; 22] = [
    &["list"],
    &["list", "--json"],
    &["list", "--state", "in-doubt"],
    &["list", "--prefix", "odd &", "--json"],
    &["list", "--limit", "3"],
    &["list", "--limit", "3", "--json"],
    &["show", "json"],
    &["show", "text", "--json"],
    &["show", "bytes"],
    &["show", "response"],
    &["show", "response", "--json"],
    &["show", "lost", "--json"],
    &["show", "odd &=+%/ キー"],
    &["show", "shared"],
    &["show", "none"],
    &["stats"],
    &["stats", "--json"],
    &["resolve", "shared", "--tenant", "carol", "--as", "done"],
    &["resolve", "shared", "--as", "done"],
    &["resolve", "json", "--as", "done"],
    &["release", "json"],
    &["release", "none"],
];

#[tokio::test(flavor = "multi_thread")]
async fn commands_give_the_same_result_through_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    fill(&url).await;
    let run_all = || {
        COMMANDS.map(|command| {
            let output = run(dir.path(), &[&["ledger"], command, &["--ledger", &url]].concat());
            (command, output.status.code(), stdout(&output), stderr(&output))
        })
    };
    let free = run_all();
    let claims = Serving::claims(dir.path(), &url, None);
    let held = run_all();
    for (free, held) in free.iter().zip(&held) {
        assert_eq!(free, held);
    }
    let shown = &free[9].2;
    for text in ["response status", "201", "response headers: content-type", "response body", "orderId"] {
        assert!(shown.contains(text), "{text:?} is not in {shown}");
    }
    assert!(claims.stderr().contains("claims") && free[13].1 == Some(2) && free[14].1 == Some(1));
    for (command, code, text) in [
        (18, 2, "2 claims have the key \"shared\"; select one with --tenant and --route"),
        (19, 1, "it is done, and a stored outcome cannot be changed"),
        (20, 1, "it is done, and a stored outcome cannot be changed"),
        (21, 1, "no claim has the key"),
    ] {
        let result = &free[command];
        assert!(result.1 == Some(code) && result.3.contains(text), "{result:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_through_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    ledger::fill(&url, "").await;
    let claims = Serving::claims(dir.path(), &url, None);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    operate(&url, "").await;
    for action in ["release by force", "resolve as done", "sweep"] {
        claims.says(action);
    }
    drop(claims);
    let shown = json(dir.path(), &["ledger", "show", "doubt", "--json", "--ledger", &url]);
    assert_eq!(shown["outcome"], "by hand", "what the holder wrote must be in the store");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_sent_to_the_holder_and_never_printed() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "file:ledger", Some("s3cret"));
    let list = |token: Option<&str>| {
        let mut command = ichido(dir.path());
        command.args(["ledger", "list", "--ledger", "file:ledger"]);
        if let Some(token) = token {
            command.env("ICHIDO_ADMIN_TOKEN", token);
        }
        let output = command.output().unwrap();
        let line = stderr(&output);
        assert!(!line.contains("s3cre"), "{line}");
        (output.status.code(), line)
    };
    assert_eq!(list(Some("s3cret")), (Some(0), String::new()));
    let checked = ichido(dir.path())
        .args(["check", "--ledger", "file:ledger"])
        .env("ICHIDO_ADMIN_TOKEN", "s3cret")
        .output()
        .unwrap();
    let (pid, printed) = (claims.pid().to_string(), stdout(&checked));
    assert!(printed.contains(&pid) && printed.contains("that process responds"), "{printed}");
    assert!(checked.status.success(), "{printed}");
    for (token, text) in [(None, "set ICHIDO_ADMIN_TOKEN"), (Some("s3cre!"), "refused the token")] {
        let (code, line) = list(token);
        assert_eq!(code, Some(2), "{line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert!(line.contains(text) && line.contains(&claims.pid().to_string()), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_names_a_holder_without_an_admin_port() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    let ledger = open(&url, Settings::default()).await.unwrap();
    for verb in [vec!["list"], vec!["show", "k"], vec!["sweep"], vec!["stats"], vec!["init"]] {
        let line = refused(dir.path(), &[&["ledger"], &verb[..], &["--ledger", &url]].concat(), 2);
        assert!(line.contains(&std::process::id().to_string()) && line.contains("no admin port"), "{line}");
    }
    ledger.close().await.unwrap();
    ok(dir.path(), &["ledger", "list", "--ledger", &url]);
}

/// Nothing listens on the address in the store, or a process that does not hold the store does.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_process_that_holds_the_store_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    let other = Serving::claims(dir.path(), "memory:", None);
    let free = format!("127.0.0.1:{}", free_port());
    for (admin, text) in
        [(other.address.to_string(), "not the process that holds the store"), (free, "cannot be reached")]
    {
        let settings = Settings::default();
        let options = OpenOptions { clock: settings.clock.clone(), admin: Some(admin) };
        let backend = open_backend(&url, &options).await.unwrap();
        let line = refused(dir.path(), &["ledger", "sweep", "--ledger", &url], 2);
        assert!(line.contains(text) && line.contains(&std::process::id().to_string()), "{line}");
        backend.close().await.unwrap();
    }
}
