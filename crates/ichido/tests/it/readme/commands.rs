//! Every command of the README, and how it is run here. What is not in this table is not run, and fails the tests.

use super::shell::{Ran, Scene};
use crate::support::http::{get, post};

/// How a command is run.
pub(super) enum Way {
    /// Sets variables for what follows.
    Export,
    /// Starts something that stays. Flags of the test's own choose free ports; what it then listens on stands for the
    /// address of the text.
    Serve { flags: &'static str, stands_for: &'static str, check: fn(&Scene) },
    /// Runs to its end, which must be a success.
    Run(fn(&Scene, &Ran)),
    /// Is not run by this test, because: …
    Elsewhere(fn()),
}

pub(super) const ANY_PORT: &str = "--listen 127.0.0.1:0 --admin 127.0.0.1:0";

pub(super) const TABLE: &[(&str, Way)] = &[
    ("cargo run --release -- demo", Way::Run(demo)),
    ("cargo xtask test", Way::Elsewhere(xtask)),
    // The gateway.
    ("ichido gateway --upstream http://127.0.0.1:5000", serve(ANY_PORT, "127.0.0.1:8080")),
    (
        r#"curl -X POST -H 'Idempotency-Key: "k1"' -d '{"qty":1}' http://127.0.0.1:8080/orders"#,
        Way::Run(as_the_comment_says),
    ),
    (
        r#"curl -X POST -H 'Idempotency-Key: "k1"' -d '{"qty":2}' http://127.0.0.1:8080/orders"#,
        Way::Run(as_the_comment_says),
    ),
    // Express and FastAPI.
    ("node server.js &", serve("", "127.0.0.1:3000")),
    ("uvicorn app:app --port 8000 &", serve("", "127.0.0.1:8000")),
    (
        "ichido gateway --upstream http://127.0.0.1:3000 --listen 0.0.0.0:8080",
        Way::Serve { flags: "--admin 127.0.0.1:0", stands_for: "127.0.0.1:8080", check: express },
    ),
    // Events.
    ("ichido claims --ledger dynamodb:", serve("--listen 127.0.0.1:0", "127.0.0.1:8070")),
    (
        r#"curl -H 'Content-Type: application/json' -d '{"events":[{"key":"Ev07"}]}' http://127.0.0.1:8070/v1/events/check"#,
        Way::Run(as_the_comment_says),
    ),
    // Delivery.
    (
        "export EXTERNAL_API_ENDPOINT=https://api.example.com/v1/usage EXTERNAL_API_TOKEN_FILE=/run/secrets/token",
        Way::Export,
    ),
    ("ichido send usage.jsonl", Way::Run(sent)),
    ("ichido run", Way::Serve { flags: "--admin 127.0.0.1:0", stands_for: "127.0.0.1:9090", check: ready }),
    // Dify.
    ("export DIFY_DATABASE_URL=postgres://readonly@dify-db/dify", Way::Export),
    (
        "export EXTERNAL_API_ENDPOINT=http://127.0.0.1:8090/v1/usage EXTERNAL_API_ALLOW_HTTP_LOOPBACK=on EXTERNAL_API_TOKEN=none",
        Way::Export,
    ),
    ("export EXTERNAL_API_ENVELOPE=api_meter EXTERNAL_API_TENANT_ID=default", Way::Export),
    ("ichido meter &", serve(ANY_PORT, "127.0.0.1:8090")),
    ("ichido export dify --yesterday --dry-run", Way::Run(previewed)),
    ("ichido export dify --yesterday", Way::Run(counted)),
    ("ichido reconcile --from 2026-11-01 --to 2026-11-15", Way::Run(reconciled)),
];

pub(super) const fn serve(flags: &'static str, stands_for: &'static str) -> Way {
    Way::Serve { flags, stands_for, check: |_| {} }
}

/// How a command is run, if it is known.
pub(super) fn way(command: &str) -> Option<&'static Way> {
    let all = TABLE.iter().chain(super::pages::TABLE);
    all.into_iter().find(|(known, _)| command.lines().next() == Some(*known)).map(|(_, way)| way)
}

fn demo(_: &Scene, ran: &Ran) {
    assert!(ran.out.contains("No effect ran twice"), "{}", ran.out);
    let cargo = super::markdown::page("Cargo.toml");
    assert!(
        cargo.contains("default-members = [\"crates/ichido\"]"),
        "`cargo run` would not know what to run"
    );
}

/// It is what runs this test: it alone starts the servers.
fn xtask() {
    crate::events::given("ICHIDO_TEST_POSTGRES_URL");
    assert!(super::markdown::page(".cargo/config.toml").contains("xtask = "));
}

/// A comment that begins with a number tells the status; the same order is the same answer, and is marked as a replay.
pub(super) fn as_the_comment_says(scene: &Scene, ran: &Ran) {
    let status = ran.comment.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let expected = if status.is_empty() { "200" } else { status };
    assert_eq!(ran.status(), expected, "{}: {}", ran.comment, ran.out);
    if ran.comment.contains("the same order") {
        assert_eq!(ran.body(), scene.ran.last().unwrap().body());
        assert_eq!(ran.replayed(), "true", "{}", ran.out);
    } else {
        assert_eq!(ran.replayed(), "", "{}", ran.out);
    }
}

fn express(scene: &Scene) {
    let gateway = scene.address("127.0.0.1:8080");
    let first = post(gateway, "/orders", "\"k1\"", "{\"qty\":1}");
    let again = post(gateway, "/orders", "\"k1\"", "{\"qty\":1}");
    assert_eq!((first.status, again.status, again.is_replay()), (201, 201, true), "{first:?} {again:?}");
    assert_eq!(first.body, again.body);
    assert_eq!(get(scene.address("127.0.0.1:3000"), "/orders").json()["made"], 1);
    assert_eq!(post(scene.address("127.0.0.1:8000"), "/orders", "\"k1\"", "{\"qty\":1}").status, 201);
}

fn sent(_: &Scene, ran: &Ran) {
    assert!(ran.out.contains("1 batch arrived (3 records"), "{}", ran.out);
}

fn ready(scene: &Scene) {
    let answer = get(scene.address("127.0.0.1:9090"), "/readyz");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn previewed(scene: &Scene, ran: &Ran) {
    assert!(ran.out.contains("gpt-4o"), "{}", ran.out);
    assert_eq!(usage(scene), serde_json::json!([]), "nothing was sent");
}

fn counted(scene: &Scene, _: &Ran) {
    assert_eq!(usage(scene)[0]["total_tokens"], 1234);
}

fn reconciled(_: &Scene, ran: &Ran) {
    assert!(ran.out.contains("1234") || ran.out.contains("1,234"), "{}", ran.out);
}

fn usage(scene: &Scene) -> serde_json::Value {
    get(scene.address("127.0.0.1:8090"), "/v1/usage?group_by=").json()["rows"].take()
}
