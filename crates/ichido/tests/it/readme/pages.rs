//! The commands of the pages under `docs`.

use super::commands::{ANY_PORT, Way, serve, way};
use super::markdown::{Block, page};
use super::shell::{Ran, Scene};
use super::{play_of, scenes, with_a_table};
use crate::delivery::Stage;
use crate::delivery::receiver::Reply;
use crate::serving::Serving;

/// The pages, with the first command of each block that is typed; each has a test.
const PAGES: [(&str, &[&str]); 8] = [
    ("docs/console.md", &[]),
    (
        "docs/delivery.md",
        &["export EXTERNAL_API_ENDPOINT=https://api.example.com/v1/usage", "ichido spool list"],
    ),
    ("docs/dynamodb.md", &["aws cloudformation deploy"]),
    ("docs/events.md", &["ichido ledger list --state in-doubt"]),
    ("docs/keys.md", &[]),
    ("docs/meter.md", &["ichido meter"]),
    ("docs/operations.md", &["cargo install --locked"]),
    ("docs/usage.md", &["cat > ichido.toml"]),
];

pub(super) const TABLE: &[(&str, Way)] = &[
    // Delivery.
    ("ichido spool list", Way::Run(|_, ran| assert!(ran.out.contains("503"), "{}", ran.out))),
    ("ichido spool resend", Way::Run(|_, ran| assert!(ran.out.contains("1 batch arrived"), "{}", ran.out))),
    ("ichido failed list --error 422", Way::Run(names_the_batch)),
    ("ichido failed show a3f2e1b9c4d5", Way::Run(|_, ran| assert!(ran.out.contains("e0"), "{}", ran.out))),
    (
        "ichido failed resend a3f2e1b9c4d5",
        Way::Run(|_, ran| assert!(ran.out.contains("1 batch arrived"), "{}", ran.out)),
    ),
    // DynamoDB. The template is read by its linter, and the rights in it are tried, in the tests of `deploy/aws`.
    (
        "aws cloudformation deploy --stack-name ichido --template-file deploy/aws/ichido.yaml --capabilities CAPABILITY_IAM",
        Way::Elsewhere(|| assert!(page("deploy/aws/ichido.yaml").contains("AWS::DynamoDB::Table"))),
    ),
    (
        "ichido check --ledger dynamodb:",
        Way::Run(|_, ran| assert!(ran.out.contains("dynamodb answers"), "{}", ran.out)),
    ),
    // Events.
    (
        "ichido ledger list --state in-doubt",
        Way::Run(|_, ran| assert!(ran.out.contains("Ev07A") && ran.out.contains("Ev07B"), "{}", ran.out)),
    ),
    ("ichido ledger resolve Ev07… --as done", Way::Run(|_, _| {})),
    ("ichido ledger resolve Ev07… --as absent", Way::Run(|_, _| {})),
    // The meter.
    ("ichido meter", serve(ANY_PORT, "127.0.0.1:8090")),
    (
        "METER_TOKENS=acme=s3cret-1 ichido meter --listen 0.0.0.0:8090 --db postgres://meter@db/usage",
        serve("--admin 127.0.0.1:0", "acme.example"),
    ),
    // Installing. The first is the build of this very test; the Dockerfile says the same.
    (
        "cargo install --locked --path crates/ichido",
        Way::Elsewhere(|| assert!(page("Dockerfile").contains("--locked") && !page("Cargo.lock").is_empty())),
    ),
    ("ichido man /usr/local/share/man/man1", Way::Run(|scene, _| scene.has("man1/ichido-demo.1"))),
    (
        "ichido completions bash > /etc/bash_completion.d/ichido",
        Way::Run(|scene, _| scene.has("ichido.bash")),
    ),
    (
        "install -m 0644 deploy/systemd/ichido.service /etc/systemd/system/",
        Way::Run(|scene, _| scene.has("ichido.service")),
    ),
    // Usage.
    ("cat > ichido.toml <<'END'", Way::Run(|scene, _| scene.has("ichido.toml"))),
    ("export DIFY_DATABASE_URL=postgres://reader:…@db/dify", Way::Export),
    (
        "export EXTERNAL_API_ENDPOINT=https://meter.example.com/v1/usage EXTERNAL_API_TOKEN_FILE=/run/secrets/token",
        Way::Export,
    ),
    ("export EXTERNAL_API_ENVELOPE=api_meter EXTERNAL_API_TENANT_ID=acme", Way::Export),
    ("ichido check", Way::Run(|_, ran| assert!(ran.out.contains("Asia/Tokyo"), "{}", ran.out))),
    (
        "ichido export dify --dry-run --month 2025-11",
        Way::Run(|_, ran| assert!(ran.out.contains("gpt-4o"), "{}", ran.out)),
    ),
    ("ichido export dify --month 2025-11", Way::Run(|_, _| {})),
    ("ichido reconcile", Way::Run(|_, _| {})),
];

fn names_the_batch(scene: &Scene, ran: &Ran) {
    assert!(ran.out.contains(&scene.stands_for("a3f2e1b9c4d5")), "{}", ran.out);
}

#[test]
fn every_command_of_the_documentation_is_known_to_these_tests() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for entry in std::fs::read_dir(dir).unwrap() {
        let name = format!("docs/{}", entry.unwrap().file_name().into_string().unwrap());
        let known = !name.ends_with(".md") || PAGES.iter().any(|(page, _)| *page == name);
        assert!(known, "no test runs the commands of {name}");
    }
    for (name, first) in PAGES {
        let found = scenes(name);
        assert_eq!(found.len(), first.len(), "{name} has a block that no test runs");
        for (block, first) in found.iter().zip(first) {
            assert!(block.typed()[0].command.starts_with(first), "{name}: {block:?}");
        }
        for typed in found.iter().flat_map(Block::typed) {
            assert!(way(&typed.command).is_some(), "{name}: no test knows this command: {}", typed.command);
        }
    }
}

#[test]
fn what_waits_and_what_failed_is_looked_after_as_the_page_says() {
    let (page, first) = PAGES[1];
    super::records_are_sent(page, first[0]);
    let stage = Stage::new();
    stage.receiver.does(|_| Reply::Say(422, "no".to_owned()));
    stage.send(1, &[("MAX_RETRIES", "0")]).ends_with(4);
    stage.receiver.does(|_| Reply::Say(503, String::new()));
    stage.send(2, &[("MAX_RETRIES", "0")]).ends_with(3);
    stage.receiver.does(|_| Reply::Take);
    let (failed, _) = stage.files("failed").remove(0);
    let name = failed.file_stem().unwrap().to_str().unwrap().to_owned();
    let mut scene = Scene::new();
    scene.stands("a3f2e1b9c4d5", name.rsplit('_').next().unwrap());
    let (receiver, authority) = stage.way();
    scene.variable("EXTERNAL_API_ENDPOINT", format!("{receiver}/v1/usage"));
    scene.variable("EXTERNAL_API_TOKEN", "of-the-docs");
    scene.variable("EXTERNAL_API_CA_FILE", authority.display().to_string());
    scene.variable("DATA_DIR", stage.path().join("data").display().to_string());
    play_of(page, scene, first[1]);
    assert_eq!((stage.files("spool").len(), stage.files("failed").len()), (0, 0));
}

#[test]
fn a_table_is_checked_as_the_page_says() {
    play_of("docs/dynamodb.md", with_a_table(), "aws ");
}

#[test]
fn events_in_doubt_are_resolved_as_the_page_says() {
    let mut scene = Scene::new();
    let mut claims = Serving::claims(scene.dir.path(), "file:data/ledger", None);
    for key in ["Ev07A", "Ev07B"] {
        let granted = claims.post("/v1/claims", &serde_json::json!({ "key": key }).to_string());
        let body = serde_json::json!({ "key": key, "token": granted.json()["token"], "reason": "timeout" });
        assert_eq!(claims.post("/v1/claims/doubt", &body.to_string()).status, 200);
    }
    claims.signal();
    assert_eq!(claims.ended(), 0);
    scene.stands("Ev07… --as done", "Ev07A --as done");
    scene.stands("Ev07… --as absent", "Ev07B --as absent");
    play_of("docs/events.md", scene, "ichido ledger list");
}

#[test]
fn a_meter_is_started_as_the_page_says() {
    let mut scene = Scene::new();
    scene.stands("postgres://meter@db/usage", format!("'{}'", crate::meter::postgres()));
    scene.stands("0.0.0.0:8090", "127.0.0.1:0");
    play_of("docs/meter.md", scene, "ichido meter");
}

#[test]
fn it_is_installed_as_the_page_says() {
    let mut scene = Scene::new();
    let unit = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd/ichido.service");
    scene.stands("deploy/systemd/ichido.service", unit.display().to_string());
    scene.stands("/etc/systemd/system/", "./");
    scene.stands("/etc/bash_completion.d/ichido", "ichido.bash");
    scene.stands("/usr/local/share/man/man1", "man1");
    play_of("docs/operations.md", scene, "cargo install");
}

#[test]
fn usage_is_exported_as_the_page_says() {
    let mut scene = Scene::new();
    scene.variable("METER_TOKENS", "acme=of-the-docs");
    let meter = scene.serve(&format!("ichido meter {ANY_PORT}"));
    scene.file("token", "of-the-docs\n");
    scene.variable("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "on");
    scene.stands("https://meter.example.com", format!("http://{meter}"));
    scene.stands("/run/secrets/token", scene.dir.path().join("token").display().to_string());
    scene.stands("postgres://reader:…@db/dify", crate::export::dify_with_a_call_on("2025-11-10"));
    play_of("docs/usage.md", scene, "cat > ichido.toml");
}
