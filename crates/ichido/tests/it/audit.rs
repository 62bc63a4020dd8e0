//! The audit log: who did what through the API, the console and the command line, and whether the log was changed since.

mod proxy;
mod tls;

use std::path::Path;

use ichido_testkit::http_client::Response;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;
use serde_json::Value;

use crate::delivery::Fixture;
use crate::ledger;
use crate::serving::Serving;
use crate::{ichido, json, ok, refused, run, stderr};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const PAGE: (&str, &str) = ("accept", "text/html");
const TOKENS: (&str, &str) = ("ICHIDO_ADMIN_TOKENS", "alice=t0ken-alice,bob:read=t0ken-bob");

/// The CSRF token in the forms of a page.
fn csrf_token(page: &Response) -> String {
    let page = page.text();
    let rest = page.split_once("name=\"csrf\" value=\"").unwrap_or_else(|| panic!("{page}")).1;
    rest.split('"').next().unwrap().to_owned()
}

/// Signs in, and returns the response and the session's cookie.
fn sign_in(serving: &Serving, token: &str) -> (Response, String) {
    let csrf = csrf_token(&serving.call("GET", "/sign-in", &[PAGE], ""));
    let response = serving.call("POST", "/sign-in", &[FORM], &format!("csrf={csrf}&token={token}"));
    let cookie = response.header("set-cookie").unwrap_or_default().split(';').next().unwrap().to_owned();
    (response, cookie)
}

/// The entries of the log, with the first verified.
#[track_caller]
fn entries(dir: &Path) -> Vec<Value> {
    let intact = ok(dir, &["audit", "verify"]);
    assert!(intact.starts_with("intact: "), "{intact}");
    let listed = json(dir, &["audit", "list", "--json"]);
    assert_eq!(listed["unreadable"], 0);
    listed["entries"].as_array().unwrap().clone()
}

/// The given fields of each entry; an absent one is `-`.
fn fields(entries: &[Value], names: &[&str]) -> Vec<String> {
    let field = |entry: &Value, name: &str| match &entry[name] {
        Value::Null => "-".to_owned(),
        value => value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned),
    };
    let line = |entry| names.iter().map(|name| field(entry, name)).collect::<Vec<_>>().join(" | ");
    entries.iter().map(line).collect()
}

/// The user who runs this test, as the system knows them.
fn os_user() -> String {
    let output = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_are_recorded_with_the_name_of_the_person() {
    let dir = tempfile::tempdir().unwrap();
    ledger::fill(&format!("file:{}", dir.path().join("data/ledger").display()), "").await;
    let serving = Serving::claims_with(dir.path(), "file:data/ledger", &[TOKENS]);
    let bearer = [("authorization", "Bearer t0ken-alice"), ("content-type", "application/json")];
    let index = serving.call("GET", "/v1/claims/one?key=doubt", &bearer, "").json()["index"].clone();
    let resolved =
        serving.call("POST", "/v1/claims/resolve", &bearer, r#"{"key":"doubt","as":"done","outcome":1}"#);
    assert_eq!(resolved.status, 200, "{}", resolved.text());
    assert_eq!(serving.call("POST", "/v1/ledger/sweep", &bearer, "").status, 200);
    let again = serving.call("POST", "/v1/claims/resolve", &bearer, r#"{"key":"doubt","as":"absent"}"#);
    assert_eq!(again.status, 409);

    assert_eq!(sign_in(&serving, "t0ken-mallory").0.status, 401);
    let (_, bob) = sign_in(&serving, "t0ken-bob");
    let page = serving.call("GET", "/", &[PAGE, ("cookie", &bob)], "").text();
    assert!(page.contains(">bob</span>") && page.contains("read-only"), "{page}");
    let (_, alice) = sign_in(&serving, "t0ken-alice");
    let page = serving.call("GET", "/claims/one?key=running", &[PAGE, ("cookie", &alice)], "");
    assert!(page.text().contains(">alice</span>"), "{}", page.text());
    let form = format!("key=running&tenant=&route=&as=release&attempt=1&csrf={}", csrf_token(&page));
    assert_eq!(serving.call("POST", "/claims/resolve", &[FORM, ("cookie", &alice)], &form).status, 303);
    let form = format!("csrf={}", csrf_token(&page));
    assert_eq!(serving.call("POST", "/sign-out", &[FORM, ("cookie", &alice)], &form).status, 303);
    drop(serving);

    ok(dir.path(), &["ledger", "sweep"]);
    assert!(refused(dir.path(), &["ledger", "release", "none"], 1).contains("no claim has the key"));
    refused(dir.path(), &["ledger", "resolve", "done", "--as", "done"], 1);

    let entries = entries(dir.path());
    let me = os_user();
    let expected = [
        "alice | token | intent | resolve as done | - | in-doubt | -",
        "alice | token | result | resolve as done | applied | in-doubt | done",
        "alice | token | intent | sweep | - | - | -",
        "alice | token | result | sweep | applied | - | -",
        "alice | token | intent | resolve as absent | - | done | -",
        "alice | token | result | resolve as absent | left-as-it-is | done | done",
        "anonymous | session | event | sign in | refused | - | -",
        "bob | session | event | sign in | read-only | - | -",
        "alice | session | event | sign in | full | - | -",
        "alice | session | intent | release by force | - | running | -",
        "alice | session | result | release by force | applied | running | released",
        "alice | session | event | sign out | applied | - | -",
        &format!("{me} | cli | intent | sweep | - | - | -"),
        &format!("{me} | cli | result | sweep | applied | - | -"),
        &format!("{me} | cli | event | release | no-such-claim | - | -"),
        &format!("{me} | cli | intent | resolve as done | - | done | -"),
        &format!("{me} | cli | result | resolve as done | left-as-it-is | done | done"),
    ];
    assert_eq!(fields(&entries, &["who", "via", "step", "action", "result", "before", "after"]), expected);
    assert!(entries[0]["from"].as_str().unwrap().starts_with("127.0.0.1:") && entries[12]["from"] == "cli");
    assert_eq!((&entries[0]["index"], &entries[1]["intent"]), (&index, &1.into()));

    let file = std::fs::read_to_string(dir.path().join("data/audit/audit.jsonl")).unwrap();
    assert!(!file.contains("t0ken") && !file.contains("\"doubt\""), "a token or a key is in the log: {file}");
    let list = |args: &[&str]| ok(dir.path(), &[&["audit", "list"], args].concat());
    assert!(list(&["--who", "bob"]).contains("1 entry"), "{}", list(&["--who", "bob"]));
    // People see the result of an action, without its intent.
    assert!(list(&["--action", "resolve", "--who", "alice"]).contains("2 entries"));
    assert!(list(&["--since", "2999-01-01"]).contains("0 entries"));
    assert!(list(&["--since", "2020-01-01T00:00:00Z", "--limit", "3"]).contains("3 entries"));
}

#[test]
fn batches_that_operators_resend_or_accept_are_recorded() {
    let stage = Fixture::new();
    stage.receiver.on_batch(|_| Reply::Status(503, String::new()));
    stage.send(1, &[("MAX_RETRIES", "0")]).exits_with(3);
    stage.run(&["spool", "resend", "--force"], &[("MAX_RETRIES", "0")]).exits_with(3);
    stage.receiver.on_batch(|_| Reply::Status(409, String::new()));
    stage.run(&["spool", "resend", "--force"], &[]).exits_with(4);
    let key = stage.files("failed")[0].1["batchIdempotencyKey"].as_str().unwrap().to_owned();
    stage.run(&["failed", "accept", &key[..12]], &[]).exits_with(0);
    let entries = entries(stage.path());
    assert_eq!(
        fields(&entries, &["step", "action", "place", "result", "after", "arrived"]),
        [
            "intent | resend all | spool | - | - | -",
            "result | resend all | spool | not-arrived | - | 0",
            "intent | resend all | spool | - | - | -",
            "result | resend all | spool | not-arrived | - | 0",
            "intent | accept | failed | - | - | -",
            "result | accept | failed | applied | accepted | -",
        ]
    );
    assert_eq!(entries[5]["batches"], serde_json::json!([key]));
}

#[test]
fn changed_log_is_detected_and_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    ok(dir.path(), &["ledger", "init"]);
    let missing = refused(dir.path(), &["audit", "verify"], 1);
    assert!(missing.contains("there is no audit log in data/audit"), "{missing}");
    for _ in 0..5 {
        refused(dir.path(), &["ledger", "release", "none"], 1);
    }
    let file = dir.path().join("data/audit/audit.jsonl");
    let intact = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = intact.lines().collect();
    assert_eq!(lines.len(), 5);
    let joined = |lines: &[&str]| lines.join("\n") + "\n";
    for (changed, place) in [
        (intact.replacen("no-such-claim", "no-such-crime", 1), "audit.jsonl:1: edited"),
        (joined(&[lines[0], lines[1], lines[3], lines[4]]), "audit.jsonl:3: removed: entry 3 is missing"),
        (joined(&[lines[0], lines[2], lines[1], lines[3], lines[4]]), "audit.jsonl:2: reordered"),
        (joined(&lines[..4]), "audit.jsonl: cut: the log ends with entry 4, but 5 were written"),
        (intact[..intact.len() - 100].to_owned(), "audit.jsonl:5: cut"),
        (String::new(), "audit.jsonl: cut: the log ends with entry 0"),
    ] {
        std::fs::write(&file, &changed).unwrap();
        let line = refused(dir.path(), &["audit", "verify"], 1);
        assert!(line.contains("not intact: data/audit/") && line.contains(place), "{place}: {line}");
        assert_eq!(run(dir.path(), &["audit", "verify", "--json"]).status.code(), Some(1));
    }
    let damaged = refused(dir.path(), &["ledger", "release", "none"], 2);
    assert!(damaged.contains("damaged") && damaged.contains("Move the directory away"), "{damaged}");
    std::fs::write(&file, &intact).unwrap();
    let hash =
        json(dir.path(), &["audit", "verify", "--json"])["log"]["last_hash"].as_str().unwrap().to_owned();
    ok(dir.path(), &["audit", "verify", "--contains", &hash]);
    // The chain of another log is intact in itself, but does not contain the known entry.
    std::fs::rename(dir.path().join("data/audit"), dir.path().join("data/old")).unwrap();
    refused(dir.path(), &["ledger", "release", "none"], 1);
    ok(dir.path(), &["audit", "verify"]);
    let rewritten = refused(dir.path(), &["audit", "verify", "--contains", &hash], 1);
    assert!(rewritten.contains("no entry with the given hash"), "{rewritten}");
    ok(dir.path(), &["audit", "verify", "--dir", "data/old", "--contains", &hash]);
}

/// Two processes record in one directory; one of them is killed while it does.
#[test]
fn killed_process_leaves_an_intact_log() {
    let dir = tempfile::tempdir().unwrap();
    let variables = [("ICHIDO_ADMIN_AUDIT_FILE_MAX_BYTES", "8192")];
    let killed = Serving::claims_with(dir.path(), "memory:", &variables);
    let survivor = Serving::claims_with(dir.path(), "memory:", &variables);
    let address = killed.address;
    std::thread::scope(|scope| {
        // Dropped before the scope waits for the callers, even if an assertion fails.
        let mut killed = killed;
        for _ in 0..3 {
            scope.spawn(move || {
                let sweep = || {
                    ichido_testkit::http_client::try_send(
                        address,
                        "POST",
                        "/v1/ledger/sweep",
                        &[("host", "localhost")],
                        b"",
                    )
                };
                while sweep().is_ok() {}
            });
        }
        for _ in 0..10 {
            assert_eq!(survivor.post("/v1/ledger/sweep", "").status, 200);
        }
        eventually("a second file", || {
            std::fs::read_dir(dir.path().join("data/audit"))
                .unwrap()
                .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("audit-"))
                .then_some(())
        });
        killed.kill();
    });
    ok(dir.path(), &["audit", "verify"]);
    assert_eq!(survivor.post("/v1/ledger/sweep", "").status, 200);
    let verified = json(dir.path(), &["audit", "verify", "--json"]);
    assert!(verified["log"]["files"].as_u64().unwrap() > 1, "{verified}");
    assert_eq!(verified["log"]["notes"], serde_json::json!([]), "the next entry repairs the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn action_that_cannot_be_recorded_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    ledger::fill(&url, "").await;
    std::fs::create_dir(dir.path().join("data")).unwrap();
    std::fs::write(dir.path().join("data/audit"), "a file").unwrap();
    let resolve = |args: &[&str]| {
        let mut command = ichido(dir.path());
        command.args(["ledger", "resolve", "doubt", "--as", "done", "--ledger", &url]).args(args);
        let output = command.output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, line) = resolve(&[]);
    assert!(code == Some(2) && line.contains("cannot use the audit log data/audit"), "{line}");
    assert!(line.contains("nothing was done"), "{line}");

    let serving = Serving::claims(dir.path(), &url, Some("s3cret"));
    let bearer = [("authorization", "Bearer s3cret"), ("content-type", "application/json")];
    let refused = serving.call("POST", "/v1/claims/resolve", &bearer, r#"{"key":"doubt","as":"done"}"#);
    assert_eq!((refused.status, refused.problem().as_str()), (503, "audit-unavailable"));
    assert_eq!(serving.call("GET", "/v1/claims/one?key=doubt", &bearer, "").json()["state"], "in-doubt");
    let (signed_in, cookie) = sign_in(&serving, "s3cret");
    assert_eq!((signed_in.status, cookie.as_str()), (503, ""));
    drop(serving);

    // Without an audit log, only the log line remains.
    let off = [("ICHIDO_ADMIN_AUDIT_DIR", "off")];
    let serving = Serving::claims_with(dir.path(), &url, &off);
    let resolved = serving.post("/v1/claims/resolve", r#"{"key":"doubt","as":"done"}"#);
    assert_eq!(resolved.status, 200, "{}", resolved.text());
    serving.says("resolve as done");
}

#[test]
fn invalid_tokens_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (tokens, listen, error) in [
        (
            "hunter2",
            "127.0.0.1:0",
            "ICHIDO_ADMIN_TOKENS: entry 1 is not of the form name=token or name:read=token",
        ),
        ("alice=hunter2", "0.0.0.0:0", "ICHIDO_ADMIN_TOKENS: the token of alice is too short"),
        ("a=hunter2,b=hunter2", "127.0.0.1:0", "ICHIDO_ADMIN_TOKENS: b has the token of a"),
    ] {
        let mut command = ichido(dir.path());
        command
            .args(["claims", "--listen", listen, "--ledger", "memory:"])
            .env("ICHIDO_ADMIN_TOKENS", tokens);
        let output = command.output().unwrap();
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains(error) && !line.contains("hunter2"), "{line}");
        let check = ichido(dir.path()).arg("check").env("ICHIDO_ADMIN_TOKENS", tokens).output().unwrap();
        assert_eq!(check.status.code() == Some(1), listen == "127.0.0.1:0", "{tokens}");
    }
}
