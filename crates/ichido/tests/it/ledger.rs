//! `ichido ledger …` on the embedded ledger and on servers, and the sweeps of the daemons.

use ichido_core::{Holder, Key, MarkKey, Outcome, Scope, mark};
use ichido_ledger::{Ledger, Settings, open};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::process::Process;
use ichido_testkit::required_env;
use ichido_testkit::wait::eventually;

use crate::serving::Serving;
use crate::support::gateway_command;
use crate::{json, ok, refused};

/// Fills a ledger with a claim in each state.
pub(crate) async fn fill(url: &str, prefix: &str) {
    let ledger = open(url, Settings::default()).await.unwrap();
    claim(&ledger, Key::unscoped(format!("{prefix}running")).unwrap(), 600_000).await;
    let key = Key::new(Scope::new("alice", "POST /orders"), format!("{prefix}doubt")).unwrap();
    let token = claim(&ledger, key.clone(), 1).await;
    // On a server, the lapsed lease puts the claim in doubt. The embedded store renews leases when it is opened.
    if url.starts_with("file:") {
        let settled = ledger.declare_in_doubt(&key, token, "the connection was lost").await.unwrap();
        assert_eq!(settled, ichido_core::Settled::Applied);
    }
    let key = Key::unscoped(format!("{prefix}done")).unwrap();
    let token = claim(&ledger, key.clone(), 600_000).await;
    let settled = ledger.complete(&key, token, Outcome::kept(r#"{"orderId":17}"#)).await.unwrap();
    assert_eq!(settled, ichido_core::Settled::Applied);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    ledger.close().await.unwrap();
}

/// Claims for a remote holder, so that the claim outlives the process that granted it.
pub(crate) async fn claim(ledger: &Ledger, key: Key, lease_ms: u64) -> ichido_core::Token {
    let request = ichido_core::ClaimRequest { lease_ms, holder: Holder::Remote, ..ledger.request(key) };
    match ledger.claim(&request).await.unwrap().claim {
        ichido_core::Claim::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    }
}

/// Runs the operator's commands on a ledger that was [filled](fill).
pub(crate) async fn operate(url: &str, prefix: &str) {
    let dir = tempfile::tempdir().unwrap();
    let key = |name: &str| format!("{prefix}{name}");
    let with = |args: &[&str]| {
        [args, &["--ledger", url]].concat().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let ok = |args: &[&str]| ok(dir.path(), &with(args).iter().map(String::as_str).collect::<Vec<_>>());
    let json = |args: &[&str]| json(dir.path(), &with(args).iter().map(String::as_str).collect::<Vec<_>>());
    let refused = |args: &[&str], code| {
        refused(dir.path(), &with(args).iter().map(String::as_str).collect::<Vec<_>>(), code)
    };

    let listed = json(&["ledger", "list", "--json", "--prefix", prefix]);
    assert_eq!(listed["claims"].as_array().unwrap().len(), 3, "{listed}");
    assert!(!listed.to_string().contains("token"), "a list must not show tokens: {listed}");
    let doubts = ok(&["ledger", "list", "--state", "in-doubt", "--prefix", prefix]);
    assert!(doubts.contains(&key("doubt")) && !doubts.contains(&key("done")), "{doubts}");

    let shown = json(&["ledger", "show", &key("done"), "--json"]);
    assert_eq!(shown["outcome"]["orderId"], 17);
    assert_eq!(shown["state"], "done");
    assert!(ok(&["ledger", "show", &key("doubt")]).contains("alice"));

    let running = refused(&["ledger", "resolve", &key("running"), "--as", "done"], 1);
    assert!(running.contains("it is running with a valid lease"), "{running}");
    for open in ["running", "doubt"] {
        let line = refused(&["ledger", "forget", &key(open), "--reason", "x", "--yes"], 1);
        assert!(line.contains("only a completed claim") && line.contains("ledger resolve"), "{line}");
    }
    assert!(refused(&["ledger", "release", &key("running")], 1).contains("--force"));
    assert!(ok(&["ledger", "release", &key("running"), "--force"]).contains("released"));
    assert!(refused(&["ledger", "show", &key("running")], 1).contains("no claim has the key"));

    for command in [&["resolve", &key("done"), "--as", "absent"][..], &["release", &key("done"), "--force"]] {
        let done = refused(&[&["ledger"], command].concat(), 1);
        assert!(done.contains("it is done, and a stored outcome cannot be changed"), "{done}");
    }
    assert!(
        refused(&["ledger", "resolve", &key("doubt"), "--as", "absent", "--outcome", "x"], 2)
            .contains("--outcome")
    );
    ok(&["ledger", "resolve", &key("doubt"), "--as", "done", "--outcome", "by hand"]);
    assert_eq!(json(&["ledger", "show", &key("doubt"), "--json"])["outcome"], "by hand");
    ok(&["ledger", "sweep"]);
    ok(&["ledger", "stats"]);
    assert!(ok(&["ledger", "show", &key("done")]).contains("orderId"));

    let forget = ["ledger", "forget", &key("done"), "--reason", "the bot answered 200 and did nothing"];
    let unconfirmed = refused(&forget, 2);
    assert!(unconfirmed.contains("runs the effect") && unconfirmed.contains("--yes"), "{unconfirmed}");
    assert!(ok(&[&forget[..], &["--yes"]].concat()).contains("forgotten"));
    assert!(refused(&["ledger", "show", &key("done")], 1).contains("no claim has the key"));
    assert!(refused(&[&forget[..], &["--yes"]].concat(), 1).contains("no claim has the key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_on_the_embedded_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    fill(&url, "").await;
    operate(&url, "").await;
}

/// An open ledger sweeps in the background, and a short command closes it during the sweep.
#[test]
fn sweep_interrupted_by_close_is_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["ledger", "init"]);
    for _ in 0..30 {
        assert!(refused(dir.path(), &["ledger", "release", "none"], 1).contains("no claim has the key"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_work_on_servers() {
    for name in ["ICHIDO_TEST_POSTGRES_URL", "ICHIDO_TEST_REDIS_URL"] {
        let url = required_env(name);
        let prefix = format!("cli-{}-", std::process::id());
        fill(&url, &prefix).await;
        operate(&url, &prefix).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn init_creates_the_table_on_dynamodb() {
    let dir = tempfile::tempdir().unwrap();
    let server = required_env("ICHIDO_TEST_DYNAMODB_URL");
    let url = format!("dynamodb://cli-{}?region=us-east-1&endpoint={server}", std::process::id());
    assert!(refused(dir.path(), &["ledger", "list", "--ledger", &url], 2).contains("ichido ledger init"));
    ok(dir.path(), &["ledger", "init", "--ledger", &url]);
    ok(dir.path(), &["ledger", "init", "--ledger", &url]);
    fill(&url, "k-").await;
    operate(&url, "k-").await;
}

/// PostgreSQL does not expire rows, so each kind of daemon must sweep the ledger that it serves.
#[test]
fn every_daemon_removes_expired_records() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = required_env("ICHIDO_TEST_POSTGRES_URL");
    let schemas = ["claims", "run", "gateway"].map(|daemon| format!("sweep_{daemon}_{}", unique()));
    let urls = schemas.each_ref().map(|schema| format!("{server}?schema={schema}&pool=2"));
    for url in &urls {
        runtime.block_on(expired_mark(url));
    }
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let _claims = Serving::claims(dirs[0].path(), &urls[0], None);
    std::fs::write(dirs[1].path().join("ichido.toml"), "[meter]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let _run = Serving::daemon(dirs[1].path(), &urls[1], &[]);
    let unused = "127.0.0.1:9".parse().unwrap();
    let _gateway = Process::start(&mut gateway_command(dirs[2].path(), unused, &urls[2], "")).unwrap();
    let client = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    });
    for schema in &schemas {
        let count = format!("SELECT count(*) FROM {schema}.marks");
        eventually(&count, || {
            let marks: i64 = runtime.block_on(client.query_one(&count, &[])).unwrap().get(0);
            (marks == 0).then_some(())
        });
    }
}

async fn expired_mark(url: &str) {
    let ledger = open(url, Settings::default()).await.unwrap();
    let request = ledger.mark_request(MarkKey::new("expired").unwrap());
    ledger.mark(&[mark::Request { retention_ms: 1, ..request }]).await.unwrap();
    ledger.close().await.unwrap();
}
