//! The admin port of `ichido claims`: access control, health checks, and operations on claims.

use std::io::{BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ledger;
use crate::packaging::repository_path;
use crate::serving::Serving;
use crate::{ichido, refused, stderr};
use ichido_testkit::http_client::{connect, head, read_response};
use ichido_testkit::ledger_server::LedgerServer;
use ichido_testkit::tcp_proxy::Fault;
use ichido_testkit::wait::eventually;

fn serving(dir: &tempfile::TempDir, token: Option<&str>) -> Serving {
    Serving::claims(dir.path(), "memory:", token)
}

#[test]
fn process_reports_health_and_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let claims = serving(&dir, None);
    let health = claims.get("/healthz");
    assert_eq!((health.status, health.text().as_str()), (200, r#"{"status":"ok"}"#));
    let ready = claims.get("/readyz");
    assert_eq!(ready.status, 200);
    assert_eq!(ready.text(), r#"{"checks":[{"name":"ledger","ok":true}],"status":"ready"}"#);
    claims.get("/v1/ledger/stats");
    let metrics = claims.get("/metrics");
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain"), "{metrics:?}");
    let metrics = metrics.text();
    for name in ["ichido_ledger_claims_total{", "ichido_ledger_seconds_bucket{"] {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    let build = format!("ichido_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    assert!(metrics.contains(&build), "{metrics}");
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        assert!(value.is_some_and(f64::is_finite), "{name} is not in {metrics}");
    }
    assert_eq!(claims.get("/v1/ledger/capabilities").json()["backend"], "memory");
    claims.says("loses everything");
    let log = claims.stderr();
    for text in [claims.address.to_string().as_str(), "memory", "survives nothing"] {
        assert!(log.contains(text), "{text:?} is not in {log}");
    }
    assert_eq!(log.matches("loses everything").count(), 1, "warned more than once: {log}");
}

/// Every metric that some crate records is described, so that a dashboard can say what it shows.
#[test]
fn every_metric_has_a_help_text() {
    let mut names = std::collections::BTreeSet::new();
    for file in source_files(&repository_path("crates")) {
        let text = std::fs::read_to_string(file).unwrap();
        for macro_call in ["counter!(", "gauge!(", "histogram!("] {
            for (at, _) in text.match_indices(macro_call) {
                let argument = text[at + macro_call.len()..].trim_start();
                let name = argument.strip_prefix('"').and_then(|rest| rest.split('"').next());
                names.extend(name.filter(|name| name.starts_with("ichido_")).map(str::to_owned));
            }
        }
    }
    assert!(names.len() > 30, "only {names:?} were found");
    let help = std::fs::read_to_string(repository_path("crates/serve/src/metrics/help.rs")).unwrap();
    let missing: Vec<_> = names.iter().filter(|name| !help.contains(&format!("\"{name}\""))).collect();
    assert!(missing.is_empty(), "crates/serve/src/metrics/help.rs does not describe {missing:?}");

    let dir = tempfile::tempdir().unwrap();
    let metrics = serving(&dir, None).get("/metrics").text();
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(metrics.contains(&format!("# HELP {name} ")), "{name} has no help text");
    }
}

fn source_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() && !entry.ends_with("tests") && !entry.ends_with("benches") {
            files.extend(source_files(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    files
}

#[test]
fn everything_but_health_checks_requires_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let claims = serving(&dir, Some("s3cret"));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(claims.get(path).status, 200, "{path}");
    }
    for path in ["/metrics", "/v1/claims", "/v1/ledger/stats", "/v1/ledger/capabilities", "/nowhere", "/"] {
        let response = claims.get(path);
        assert_eq!((response.status, response.problem().as_str()), (401, "token-refused"), "{path}");
        assert_eq!(response.header("www-authenticate"), Some("Bearer"), "{response:?}");
    }
    assert_eq!(claims.post("/v1/ledger/sweep", "").status, 401);
    for (authorization, status) in [("Bearer s3cret", 200), ("Bearer s3cre", 401), ("Basic s3cret", 401)] {
        let response = claims.call("GET", "/metrics", &[("authorization", authorization)], "");
        assert_eq!(response.status, status, "{authorization}");
    }
    assert!(!claims.stderr().contains("s3cret"));
}

#[test]
fn address_outside_loopback_requires_a_token() {
    let dir = tempfile::tempdir().unwrap();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let line = refused(dir.path(), &["claims", "--listen", listen, "--ledger", "memory:"], 2);
        assert!(line.contains("ICHIDO_ADMIN_TOKEN") && line.contains(listen), "{line}");
    }
    let empty = ichido(dir.path()).arg("claims").env("ICHIDO_ADMIN_TOKEN", "").output().unwrap();
    assert_eq!(empty.status.code(), Some(2));
    assert!(stderr(&empty).contains("admin.token: is empty; unset the variable or give it a value (environment variable ICHIDO_ADMIN_TOKEN)"), "{}", stderr(&empty));
    let short = ichido(dir.path())
        .args(["claims", "--listen", "0.0.0.0:0"])
        .env("ICHIDO_ADMIN_TOKEN", "hunter2")
        .output()
        .unwrap();
    let line = stderr(&short);
    assert_eq!(short.status.code(), Some(2), "{line}");
    assert!(line.contains("ICHIDO_ADMIN_TOKEN: is too short") && !line.contains("hunter2"), "{line}");
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none(), "a refused start must not create files");
}

#[test]
fn error_names_the_port_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let line = refused(dir.path(), &["claims", "--listen", &address, "--ledger", "memory:"], 2);
    assert!(line.contains(&address) && line.contains("in use"), "{line}");
}

/// With DNS rebinding, a page resolves its own host name to this machine, and its requests carry that name as Host.
#[test]
fn foreign_pages_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let claims = serving(&dir, None);
    let port = claims.address.port();
    for host in
        ["evil.example".to_owned(), format!("evil.example:{port}"), format!("127.0.0.1.nip.io:{port}")]
    {
        for path in ["/healthz", "/v1/claims"] {
            let response = claims.call("GET", path, &[("host", &host)], "");
            assert_eq!((response.status, response.problem().as_str()), (421, "foreign-host"), "{host}");
        }
    }
    for host in [format!("localhost:{port}"), format!("[::1]:{port}"), "127.0.0.1".to_owned()] {
        assert_eq!(claims.call("GET", "/v1/claims", &[("host", &host)], "").status, 200, "{host}");
    }
    let foreign = claims.call("POST", "/v1/ledger/sweep", &[("origin", "https://evil.example")], "");
    assert_eq!((foreign.status, foreign.problem().as_str()), (403, "foreign-origin"));
    let own = format!("http://{}", claims.address);
    assert_eq!(claims.call("POST", "/v1/ledger/sweep", &[("origin", &own)], "").status, 200);
}

#[test]
fn invalid_requests_get_problem_details() {
    let dir = tempfile::tempdir().unwrap();
    let claims = serving(&dir, None);
    let resolve = "/v1/claims/resolve";
    for (body, status) in [
        ("{", 400),
        ("", 400),
        ("[]", 422),
        (r#"{"key":"k"}"#, 422),
        (r#"{"key":"k","as":"maybe"}"#, 422),
        (r#"{"key":"k","as":"done","tenent":"t"}"#, 422),
        (r#"{"key":"k","as":"absent","outcome":1}"#, 422),
    ] {
        let response = claims.post(resolve, body);
        assert_eq!((response.status, response.problem().as_str()), (status, "invalid"), "{body}");
    }
    assert_eq!(claims.call("POST", resolve, &[], r#"{"key":"k","as":"done"}"#).status, 415);
    let large = format!(r#"{{"key":"k","as":"done","outcome":"{}"}}"#, "x".repeat(1024 * 1024));
    assert_eq!(claims.post(resolve, &large).status, 413);
    for query in ["limit=0", "limit=1001", "limit=x", "state=lost", "stat=done"] {
        let response = claims.get(&format!("/v1/claims?{query}"));
        assert_eq!((response.status, response.problem().as_str()), (400, "invalid"), "{query}");
    }
    assert_eq!(claims.get("/v1/claims/one").status, 400);
    let oversized = format!("/v1/claims/one?key={}&tenant=&route=", "k".repeat(1025));
    let oversized = claims.get(&oversized);
    assert_eq!((oversized.status, oversized.problem().as_str()), (422, "outside-limits"));
    let unknown = claims.get("/v1/claims/two");
    assert_eq!((unknown.status, unknown.problem().as_str()), (404, "no-such-page"));
    let method = claims.get(resolve);
    assert_eq!((method.status, method.problem().as_str()), (405, "no-such-method"));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_find_and_resolve_claims_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    ledger::fill(&url, "").await;
    let mut claims = Serving::claims(dir.path(), &url, None);
    tokio::time::sleep(Duration::from_millis(20)).await;

    let page = claims.get("/v1/claims?limit=2").json();
    assert_eq!(page["claims"].as_array().unwrap().len(), 2, "{page}");
    let rest = claims.get(&format!("/v1/claims?cursor={}", page["cursor"].as_str().unwrap())).json();
    assert_eq!(rest["claims"].as_array().unwrap().len(), 1, "{rest}");
    let doubt = claims.get("/v1/claims?state=in-doubt&prefix=do").json();
    assert_eq!(doubt["claims"][0]["key"], "doubt", "{doubt}");

    let missing = claims.get("/v1/claims/one?key=none");
    assert_eq!((missing.status, missing.problem().as_str()), (404, "no-such-claim"));
    let other_tenant = claims.get("/v1/claims/one?key=doubt&tenant=bob&route=POST%20/orders");
    assert_eq!(other_tenant.status, 404);
    let running = claims.post("/v1/claims/release-by-operator", r#"{"key":"running"}"#);
    assert_eq!((running.status, running.problem().as_str()), (409, "claim-running"));
    let done = claims.post("/v1/claims/resolve", r#"{"key":"done","tenant":"","route":"","as":"absent"}"#);
    assert_eq!((done.status, done.problem().as_str()), (409, "left-as-it-is"));
    assert_eq!(done.json()["state"], "done");
    let unscoped = claims.post("/v1/claims/release-by-operator", r#"{"key":"done","force":true}"#);
    assert_eq!((unscoped.status, unscoped.problem().as_str()), (409, "left-as-it-is"));
    let running = claims.post("/v1/claims/resolve", r#"{"key":"running","as":"done"}"#);
    assert_eq!((running.status, &running.json()["state"]), (409, &"running".into()), "{running:?}");
    let index = claims.get("/v1/claims/one?key=doubt").json()["index"].as_str().unwrap().to_owned();

    let resolved =
        claims.post("/v1/claims/resolve", r#"{"key":"doubt","as":"done","outcome":{"b":1, "a":[]}}"#);
    assert_eq!((resolved.status, &resolved.json()["state"]), (200, &"done".into()), "{resolved:?}");
    let shown = claims.get("/v1/claims/one?key=doubt&tenant=alice").json();
    assert_eq!(shown["outcome"], serde_json::json!({ "a": [], "b": 1 }), "{shown}");
    assert!(!shown.to_string().contains("token"), "{shown}");

    let again = claims.post("/v1/claims/resolve", r#"{"key":"doubt","as":"absent"}"#);
    assert_eq!((again.status, &again.json()["state"]), (409, &"done".into()), "{again:?}");

    claims.signal();
    assert_eq!(claims.exit_code(), 0, "{}", claims.stderr());
    claims.says("resolve as done");
    let log = claims.stderr();
    let audit: Vec<_> = log.lines().filter(|line| line.contains("operator action")).collect();
    assert_eq!(audit.len(), 6, "{log}");
    for (line, texts) in audit.iter().zip([
        ["\"release\"", "claim-running"],
        ["resolve as absent", "left-as-it-is"],
        ["release by force", "left-as-it-is"],
        ["resolve as done", "left-as-it-is"],
        ["resolve as done", "applied"],
        ["resolve as absent", "left-as-it-is"],
    ]) {
        assert!(
            texts.iter().all(|text| line.contains(text)) && line.contains(r#""who":"127.0.0.1:"#),
            "{line}"
        );
        assert!(
            !line.contains("doubt") && !line.contains("alice"),
            "the audit log must name a claim by its index only: {line}"
        );
    }
    for line in &audit[4..] {
        assert!(line.contains(&index), "the audit log must name the index that the API shows: {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn process_is_not_ready_while_its_ledger_is_unreachable() {
    let redis = LedgerServer::redis().await;
    let proxy = redis.proxy();
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), &redis.url_through(&proxy), None);
    assert_eq!(claims.get("/readyz").status, 200);
    proxy.set(Fault::Refuse);
    // The result of a check is cached for half a second.
    let ready = eventually("the process is not ready", || {
        Some(claims.get("/readyz")).filter(|ready| ready.status == 503)
    });
    assert_eq!(ready.json()["status"], "not-ready", "{ready:?}");
    let check = &ready.json()["checks"][0];
    assert_eq!((&check["name"], &check["ok"]), (&"ledger".into(), &false.into()));
    assert!(check["detail"].is_string(), "{check}");
    assert_eq!(claims.get("/healthz").status, 200);
    let list = claims.get("/v1/claims");
    assert_eq!((list.status, list.problem().as_str()), (503, "ledger-unavailable"));
}

#[test]
fn first_signal_drains_and_second_exits_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut claims = Serving::claims(dir.path(), "file:ledger", None);
    assert_eq!(claims.get("/healthz").status, 200);
    claims.signal();
    assert_eq!(claims.exit_code(), 0, "{}", claims.stderr());
    assert!(!dir.path().join("ledger/holder").exists(), "a clean exit must remove the holder file");

    let mut claims = Serving::claims(dir.path(), "file:ledger", None);
    let mut caller = connect(claims.address).unwrap();
    let head = format!(
        "POST /v1/claims/resolve HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{{",
        claims.address
    );
    caller.write_all(head.as_bytes()).unwrap();
    assert_eq!(claims.get("/healthz").status, 200);
    claims.signal();
    claims.says("a second signal exits at once");
    claims.signal();
    assert_eq!(claims.exit_code(), 1, "{}", claims.stderr());
}

/// Requests whose bodies never arrive occupy every connection.
#[test]
fn health_checks_work_while_all_connections_are_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let claims = serving(&dir, None);
    let mut held: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = connect(claims.address).unwrap();
            let json = [("Content-Type", "application/json")];
            stream.write_all(&head("POST", "/v1/claims", &json, Some(9))).unwrap();
            stream
        })
        .collect();
    let last = read_response(&mut BufReader::new(held.pop().unwrap())).unwrap();
    assert_eq!(last.status, 503, "a connection beyond the limit is refused");
    for path in ["/healthz", "/readyz"].iter().cycle().take(100) {
        assert_eq!(claims.get(path).status, 200, "{path}");
    }
    assert_eq!(claims.get("/metrics").status, 503);
    held[0].set_nonblocking(true).unwrap();
    let pending = held[0].read(&mut [0]).unwrap_err();
    assert_eq!(pending.kind(), std::io::ErrorKind::WouldBlock, "a health check must not close a connection");
    drop(held);
    eventually("a free connection", || (claims.get("/metrics").status == 200).then_some(()));
}
