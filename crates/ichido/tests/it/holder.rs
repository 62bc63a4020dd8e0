//! `ichido ledger …` on a store that another process holds: through its admin port, and as if it were not held.

use ichido_core::{Key, Outcome};
use ichido_ledger::{OpenOptions, Settings, open, open_backend};

use crate::ledger::{claim, operate, store};
use crate::serving::Serving;
use crate::{ichido, json, ok, refused, run, stderr, stdout};

/// An answer as the HTTP layer keeps it: magic, status, one field, no trailers, body.
fn packed() -> Vec<u8> {
    let (name, value) = (b"content-type", b"application/json");
    let mut packed = vec![0, b'i', b'a', 1];
    packed.extend(201_u16.to_be_bytes());
    packed.extend(1_u16.to_be_bytes());
    packed.extend(12_u16.to_be_bytes());
    packed.extend(name);
    packed.extend(16_u32.to_be_bytes());
    packed.extend(value);
    packed.extend(0_u16.to_be_bytes());
    packed.extend(br#"{"orderId":17}"#);
    packed
}

/// Claims that look the same at every opening: done, with and without an answer, and in doubt for good.
async fn fill(url: &str) {
    let ledger = open(url, Settings::default()).await.unwrap();
    for (text, outcome) in [
        ("json", Outcome::kept(r#"{"orderId":17}"#)),
        ("text", Outcome::kept("by hand")),
        ("bytes", Outcome::kept(vec![0xff, 0xfe])),
        ("packed", Outcome::kept(packed())),
        ("lost", Outcome::Tombstone("too large".to_owned())),
    ] {
        let key = Key::unscoped(text).unwrap();
        let token = claim(&ledger, key.clone(), 600_000).await;
        assert_eq!(ledger.complete(&key, token, outcome).await.unwrap(), ichido_core::Settled::Applied);
    }
    for (tenant, text) in [("alice", "twin"), ("bob", "twin"), ("", "odd &=+%/ キー")] {
        let key = Key::new(ichido_core::Scope::new(tenant, "POST /orders"), text).unwrap();
        let token = claim(&ledger, key.clone(), 600_000).await;
        assert_eq!(
            ledger.declare_in_doubt(&key, token, "the wire broke").await.unwrap(),
            ichido_core::Settled::Applied
        );
    }
    ledger.close().await.unwrap();
}

const LOOKS: [&[&str]; 22] = [
    &["list"],
    &["list", "--json"],
    &["list", "--state", "in-doubt"],
    &["list", "--prefix", "odd &", "--json"],
    &["list", "--limit", "3"],
    &["list", "--limit", "3", "--json"],
    &["show", "json"],
    &["show", "text", "--json"],
    &["show", "bytes"],
    &["show", "packed"],
    &["show", "packed", "--json"],
    &["show", "lost", "--json"],
    &["show", "odd &=+%/ キー"],
    &["show", "twin"],
    &["show", "none"],
    &["stats"],
    &["stats", "--json"],
    &["resolve", "twin", "--tenant", "carol", "--as", "done"],
    &["resolve", "twin", "--as", "done"],
    &["resolve", "json", "--as", "done"],
    &["release", "json"],
    &["release", "none"],
];

#[tokio::test(flavor = "multi_thread")]
async fn commands_give_the_same_result_through_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    fill(&url).await;
    let looks = || {
        LOOKS.map(|look| {
            let output = run(dir.path(), &[&["ledger"], look, &["--ledger", &url]].concat());
            (look, output.status.code(), stdout(&output), stderr(&output))
        })
    };
    let free = looks();
    let claims = Serving::claims(dir.path(), &url, None);
    let held = looks();
    for (free, held) in free.iter().zip(&held) {
        assert_eq!(free, held);
    }
    let shown = &free[9].2;
    for words in ["response status", "201", "response headers: content-type", "response body", "orderId"] {
        assert!(shown.contains(words), "{words:?} is not in {shown}");
    }
    assert!(claims.stderr().contains("claims") && free[13].1 == Some(2) && free[14].1 == Some(1));
    for (look, code, words) in [
        (18, 2, "2 claims have the key \"twin\"; select one with --tenant and --route"),
        (19, 1, "it is done, and a stored outcome cannot be changed"),
        (20, 1, "it is done, and a stored outcome cannot be changed"),
        (21, 1, "no claim has the key"),
    ] {
        assert!(free[look].1 == Some(code) && free[look].3.contains(words), "{:?}", free[look]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_through_the_holder() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    store(&url, "").await;
    let claims = Serving::claims(dir.path(), &url, None);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    operate(&url, "").await;
    for action in ["release by force", "resolve as done", "sweep"] {
        claims.says(action);
    }
    drop(claims);
    let shown = json(dir.path(), &["ledger", "show", "doubt", "--json", "--ledger", &url]);
    assert_eq!(shown["outcome"], "by hand", "what was said through the holder is in the store");
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
    for (token, words) in [(None, "set ICHIDO_ADMIN_TOKEN"), (Some("s3cre!"), "refused the token")] {
        let (code, line) = list(token);
        assert_eq!(code, Some(2), "{line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert!(line.contains(words) && line.contains(&claims.pid().to_string()), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_without_an_admin_port_is_named() {
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

/// The address in the store leads nowhere, or to a process that did not sign there.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_process_that_holds_the_store_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    let other = Serving::claims(dir.path(), "memory:", None);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (admin, words) in
        [(other.address.clone(), "not the process that holds the store"), (free, "cannot be reached")]
    {
        let settings = Settings::default();
        let options = OpenOptions { clock: settings.clock.clone(), admin: Some(admin) };
        let backend = open_backend(&url, &options).await.unwrap();
        let line = refused(dir.path(), &["ledger", "sweep", "--ledger", &url], 2);
        assert!(line.contains(words) && line.contains(&std::process::id().to_string()), "{line}");
        backend.close().await.unwrap();
    }
}
