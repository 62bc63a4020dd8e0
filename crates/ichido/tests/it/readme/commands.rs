//! Every command of the documents, and how to test it. A command that is missing here fails the tests.

use ichido_testkit::http_client::{get, post};

use super::markdown::page;
use super::shell::{Finished, Shell};

/// How to test a command.
pub(super) enum Action {
    /// Sets variables for the following commands.
    Export,
    /// Starts a server. `flags` select free ports; the address that the server then listens on replaces `address` in
    /// the following commands.
    Serve { flags: &'static str, address: &'static str, check: fn(&Shell) },
    /// Runs to its end and must succeed.
    Run(fn(&Shell, &Finished)),
    /// Runs to its end, must succeed, and prints these texts.
    Prints(&'static [&'static str]),
    /// Is not run here.
    CoveredElsewhere(fn()),
}

pub(super) const ANY_PORT: &str = "--listen 127.0.0.1:0 --admin 127.0.0.1:0";

pub(super) const COMMANDS: &[(&str, Action)] = &[
    // README.
    ("cargo run --release -- demo", Action::Run(demo)),
    ("cargo xtask test", Action::CoveredElsewhere(xtask)),
    ("python3 examples/orders.py &", serve("", "127.0.0.1:5000")),
    ("cargo run --release -- gateway --upstream http://127.0.0.1:5000", serve(ANY_PORT, "127.0.0.1:8080")),
    (
        r#"curl -X POST -H 'Idempotency-Key: "k1"' -d '{"qty":1}' http://127.0.0.1:8080/orders"#,
        Action::Run(responds_as_commented),
    ),
    (
        r#"curl -X POST -H 'Idempotency-Key: "k1"' -d '{"qty":2}' http://127.0.0.1:8080/orders"#,
        Action::Run(responds_as_commented),
    ),
    (
        "curl http://127.0.0.1:5000/orders",
        Action::Run(|_, finished| assert_eq!(finished.body().trim(), r#"{"created": 1}"#)),
    ),
    // The gateway.
    ("node server.js &", serve("", "127.0.0.1:3000")),
    ("uvicorn app:app --port 8000 &", serve("", "127.0.0.1:8000")),
    (
        "ichido gateway --upstream http://127.0.0.1:3000 --listen 0.0.0.0:8080",
        Action::Serve { flags: "--admin 127.0.0.1:0", address: "127.0.0.1:8080", check: express },
    ),
    // Events.
    ("ichido claims --ledger dynamodb: &", serve("--listen 127.0.0.1:0", "127.0.0.1:8070")),
    (
        r#"curl -H 'Content-Type: application/json' -d '{"events":[{"key":"Ev07"}]}' http://127.0.0.1:8070/v1/events/check"#,
        Action::Run(responds_as_commented),
    ),
    ("ichido ledger list --state in-doubt", Action::Prints(&["Ev07A", "Ev07B"])),
    ("ichido ledger resolve Ev07… --as done", Action::Prints(&[])),
    ("ichido ledger resolve Ev07… --as absent", Action::Prints(&[])),
    (
        "ichido ledger forget Ev07… --reason 'the bot answered 200 and did nothing' --yes",
        Action::Prints(&["forgotten"]),
    ),
    ("ichido events list --prefix Ev07", Action::Prints(&["Ev07D", "1 event"])),
    ("ichido events show Ev07…", Action::Prints(&["bot-1"])),
    ("ichido events forget Ev07… --yes", Action::Prints(&["forgotten"])),
    ("ichido events history", Action::Prints(&["new", "decisions in 7 days"])),
    ("ichido events history --by source --days 30", Action::Prints(&["decisions in 30 days"])),
    ("ichido events history --by hour --csv", Action::Prints(&["new,1,0,"])),
    (
        "ichido events anomalies",
        Action::Prints(&["0 anomalies in 7 days", "a source is judged after a week"]),
    ),
    ("ichido events anomalies --days 1 --json", Action::Prints(&["\"anomalies\": []", "known_hours"])),
    ("ichido events timeline Ev07…", Action::Prints(&["new", "0 repeats"])),
    ("ichido events timeline 5feceb66ffc86f38", Action::Prints(&["new"])),
    // Delivery.
    (
        "export EXTERNAL_API_ENDPOINT=https://api.example.com/v1/usage EXTERNAL_API_TOKEN_FILE=/run/secrets/token",
        Action::Export,
    ),
    ("ichido send usage.jsonl", Action::Prints(&["1 batch delivered (3 records"])),
    ("ichido run", Action::Serve { flags: "--admin 127.0.0.1:0", address: "127.0.0.1:9090", check: ready }),
    ("ichido spool list", Action::Prints(&["503"])),
    ("ichido spool resend", Action::Prints(&["1 batch delivered"])),
    ("ichido failed list --error 422", Action::Run(names_the_batch)),
    ("ichido failed show a3f2e1b9c4d5", Action::Prints(&["e0"])),
    ("ichido failed resend a3f2e1b9c4d5", Action::Prints(&["1 batch delivered"])),
    ("ichido trace e0", Action::Prints(&["failed", "delivered", "looked into:"])),
    ("ichido report slo --month 2025-01", Action::Prints(&["deliveries that succeed", "no data"])),
    // DynamoDB. The tests of `deploy/aws` lint the template and try its policies.
    (
        "aws cloudformation deploy --stack-name ichido --template-file deploy/aws/ichido.yaml --capabilities CAPABILITY_IAM",
        Action::CoveredElsewhere(|| assert!(page("deploy/aws/ichido.yaml").contains("AWS::DynamoDB::Table"))),
    ),
    ("ichido check --ledger dynamodb:", Action::Prints(&["dynamodb responds"])),
    // Usage.
    ("export DIFY_DATABASE_URL=postgres://readonly@dify-db/dify", Action::Export),
    (
        "export EXTERNAL_API_ENDPOINT=http://127.0.0.1:8090/v1/usage EXTERNAL_API_ALLOW_HTTP_LOOPBACK=on EXTERNAL_API_TOKEN=none",
        Action::Export,
    ),
    ("export EXTERNAL_API_ENVELOPE=api_meter EXTERNAL_API_TENANT_ID=default", Action::Export),
    ("ichido meter &", serve(ANY_PORT, "127.0.0.1:8090")),
    ("ichido export dify --yesterday --dry-run", Action::Run(previews_and_sends_nothing)),
    ("ichido export dify --yesterday", Action::Run(is_counted)),
    ("ichido reconcile --from 2026-11-01 --to 2026-11-15", Action::Run(reconciles)),
    ("cat > ichido.toml <<'END'", Action::Run(|shell, _| shell.has("ichido.toml"))),
    ("export DIFY_DATABASE_URL=postgres://reader:…@db/dify", Action::Export),
    (
        "export EXTERNAL_API_ENDPOINT=https://meter.example.com/v1/usage EXTERNAL_API_TOKEN_FILE=/run/secrets/token",
        Action::Export,
    ),
    ("export EXTERNAL_API_ENVELOPE=api_meter EXTERNAL_API_TENANT_ID=acme", Action::Export),
    ("ichido check", Action::Prints(&["Asia/Tokyo"])),
    ("ichido export dify --dry-run --month 2025-11", Action::Prints(&["gpt-4o"])),
    ("ichido export dify --month 2025-11", Action::Prints(&[])),
    ("ichido reconcile", Action::Prints(&[])),
    // The meter.
    ("ichido meter", serve(ANY_PORT, "127.0.0.1:8090")),
    (
        "METER_TOKENS=acme=s3cret-1 ichido meter --listen 0.0.0.0:8090 --db postgres://meter@db/usage",
        serve("--admin 127.0.0.1:0", "acme.example"),
    ),
    // Operations. The build of this test is the first command; the Dockerfile runs the same.
    (
        "cargo install --locked --path crates/ichido",
        Action::CoveredElsewhere(|| {
            assert!(page("Dockerfile").contains("--locked") && !page("Cargo.lock").is_empty());
        }),
    ),
    ("ichido man /usr/local/share/man/man1", Action::Run(|shell, _| shell.has("man1/ichido-demo.1"))),
    (
        "ichido completions bash > /etc/bash_completion.d/ichido",
        Action::Run(|shell, _| shell.has("ichido.bash")),
    ),
    (
        "install -m 0644 deploy/systemd/ichido.service /etc/systemd/system/",
        Action::Run(|shell, _| shell.has("ichido.service")),
    ),
    ("ichido ledger backup /var/backups/ichido/2026-01-31", Action::Prints(&["backed up to "])),
    (
        "ichido ledger verify --ledger file:/var/backups/ichido/2026-01-31",
        Action::Prints(&["checked 1 segment"]),
    ),
    ("mv data/ledger data/ledger.damaged", Action::Prints(&[])),
    (
        "ichido ledger restore /var/backups/ichido/2026-01-31 --yes",
        Action::Prints(&["are unknown", "in doubt"]),
    ),
];

const fn serve(flags: &'static str, address: &'static str) -> Action {
    Action::Serve { flags, address, check: |_| {} }
}

/// How to test a command, if it is known.
pub(super) fn action(command: &str) -> Option<&'static Action> {
    COMMANDS.iter().find(|(known, _)| command.lines().next() == Some(*known)).map(|(_, action)| action)
}

fn demo(_: &Shell, finished: &Finished) {
    assert!(finished.stdout.contains("no effect ran twice"), "{}", finished.stdout);
    let cargo = page("Cargo.toml");
    let default = "default-members = [\"crates/ichido\"]";
    assert!(cargo.contains(default), "`cargo run` needs a default member");
}

/// `cargo xtask test` runs this test: nothing else starts the servers.
fn xtask() {
    ichido_testkit::required_env("ICHIDO_TEST_POSTGRES_URL");
    assert!(page(".cargo/config.toml").contains("xtask = "));
}

/// A comment that begins with a number gives the status. "The same order" is the same body, marked as a replay.
fn responds_as_commented(shell: &Shell, finished: &Finished) {
    let Finished { comment, stdout } = finished;
    let status = comment.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let expected = if status.is_empty() { "200" } else { status };
    assert_eq!(finished.status(), expected, "{comment}: {stdout}");
    if comment.contains("the same order") {
        assert_eq!(finished.body(), shell.finished.last().unwrap().body());
        assert_eq!(finished.replayed(), "true", "{stdout}");
    } else {
        assert_eq!(finished.replayed(), "", "{stdout}");
    }
}

fn express(shell: &Shell) {
    let gateway = shell.address("127.0.0.1:8080");
    let first = post(gateway, "/orders", "\"k1\"", "{\"qty\":1}");
    let retry = post(gateway, "/orders", "\"k1\"", "{\"qty\":1}");
    assert_eq!((first.status, retry.status, retry.is_replay()), (201, 201, true), "{first:?} {retry:?}");
    assert_eq!(first.body, retry.body);
    assert_eq!(get(shell.address("127.0.0.1:3000"), "/orders").json()["made"], 1);
    assert_eq!(post(shell.address("127.0.0.1:8000"), "/orders", "\"k1\"", "{\"qty\":1}").status, 201);
}

fn ready(shell: &Shell) {
    let response = get(shell.address("127.0.0.1:9090"), "/readyz");
    assert_eq!(response.status, 200, "{}", response.text());
}

fn names_the_batch(shell: &Shell, finished: &Finished) {
    assert!(finished.stdout.contains(&shell.replacement("a3f2e1b9c4d5")), "{}", finished.stdout);
}

fn previews_and_sends_nothing(shell: &Shell, finished: &Finished) {
    assert!(finished.stdout.contains("gpt-4o"), "{}", finished.stdout);
    assert_eq!(counted_usage(shell), serde_json::json!([]), "a dry run sent something");
}

fn is_counted(shell: &Shell, _: &Finished) {
    assert_eq!(counted_usage(shell)[0]["total_tokens"], 1234);
}

fn reconciles(_: &Shell, finished: &Finished) {
    let stdout = &finished.stdout;
    assert!(stdout.contains("1234") || stdout.contains("1,234"), "{stdout}");
}

fn counted_usage(shell: &Shell) -> serde_json::Value {
    get(shell.address("127.0.0.1:8090"), "/v1/usage?group_by=").json()["rows"].take()
}
