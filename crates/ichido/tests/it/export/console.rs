//! Reads usage over HTTP from a fake Dify console.

use std::path::Path;

use serde_json::{Value, json};

use super::dify::TENANT;
use super::fake_console::{Config, EMAIL, FakeConsole, Generation, PASSWORD, SECRETS};
use super::receiver::{Receiver, ReceiverKind, TOKEN};
use super::{Run, export_command};

/// Noon UTC of a day in November 2025, in Unix seconds.
fn noon(day: i64) -> i64 {
    1_762_084_800 + (day - 2) * 86_400
}

/// Adds two apps with usage on 2 November: a chat with `conversations` of one message each, and a workflow with one run.
fn add_usage(config: &mut Config, conversations: usize) {
    config.apps = vec![
        json!({"id": "app-chat", "name": "Chat", "mode": "chat"}),
        json!({"id": "app-flow", "name": "Flow", "mode": "workflow"}),
    ];
    let list = (0..conversations).rev().map(|n| {
        json!({"id": format!("c{n:04}"), "from_source": "api", "from_end_user_id": format!("eu{n}"), "from_end_user_session_id":
            format!("user-{n}"), "created_at": noon(2), "updated_at": noon(2),
            "model_config": {"model": {"provider": "langgenius/openai/openai", "name": "gpt-4o"}}})
    });
    config.conversations.insert("app-chat".to_owned(), list.collect());
    for n in 0..conversations {
        let message = json!({"id": format!("m{n:04}"), "message_tokens": 10, "answer_tokens": 1, "created_at": noon(2),
            "metadata": {"usage": {"total_price": "0.0100000", "currency": "USD"}}});
        config.messages.insert(format!("c{n:04}"), vec![message]);
    }
    let log = json!({"id": "log1", "workflow_run": {"id": "run1", "created_at": noon(2)}, "created_at": noon(3),
        "created_by_role": "end_user", "created_by_end_user": {"id": "eu1", "session_id": "user-1"}});
    config.logs.insert("app-flow".to_owned(), vec![log]);
    let node = |id: &str, kind: &str, data: Value, metadata: Value| json!({"id": id, "node_type": kind, "process_data": data, "outputs": {"text": "hi"}, "execution_metadata": metadata});
    let data = json!({"model_provider": "openai", "model_name": "gpt-4o", "usage": {"prompt_tokens": 100, "completion_tokens": 20,
        "total_tokens": 120, "total_price": "0.5", "currency": "USD"}});
    let sum = json!({"total_tokens": 120, "total_price": "0.5", "currency": "USD"});
    config.nodes.insert(
        "run1".to_owned(),
        vec![
            node("n0", "start", json!(null), json!(null)),
            node("n1", "llm", data, sum.clone()),
            node("n2", "loop", json!({}), sum),
        ],
    );
}

struct Stage {
    dir: tempfile::TempDir,
    console: FakeConsole,
    receiver: Receiver,
}

impl Stage {
    fn new(tls: bool, config: Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let receiver = Receiver::start(dir.path(), ReceiverKind::FirstWins);
        let console = FakeConsole::start(dir.path(), tls, config);
        Self { dir, console, receiver }
    }

    fn settings(&self, text: &str) {
        std::fs::write(self.dir.path().join("ichido.toml"), format!("[export.dify]\n{text}\n")).unwrap();
    }

    /// Exports 2 November with a login, and asserts that no secret appears in the output or in a file.
    fn export(&self, changes: &[(&str, &str)]) -> Run {
        let args = ["export", "dify", "--json", "--from", "2025-11-02", "--to", "2025-11-02"];
        let mut command = export_command(self.dir.path(), &args);
        command
            .env("EXTERNAL_API_ENDPOINT", self.receiver.endpoint())
            .env("EXTERNAL_API_TOKEN", TOKEN)
            .env("EXTERNAL_API_CA_FILE", &self.receiver.ca)
            .env("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "on")
            .env("LOG_LEVEL", "trace")
            .env("DIFY_CONSOLE_URL", self.console.url())
            .env("DIFY_CA_FILE", &self.console.ca)
            .env("DIFY_EMAIL", EMAIL)
            .env("DIFY_PASSWORD", PASSWORD)
            .envs(changes.iter().copied());
        let run = Run::of(command.output().unwrap());
        for secret in SECRETS {
            assert!(!run.stderr.contains(secret) && !run.stdout.contains(secret), "{secret}: {}", run.stderr);
            assert!(!contains_secret(self.dir.path(), secret), "{secret} is in a file");
        }
        run
    }

    fn counted(&self) -> (u64, String) {
        let requests = self.receiver.totals().values().map(|sum| sum.requests).sum();
        (requests, self.receiver.cost().normalize().to_string())
    }
}

fn contains_secret(dir: &Path, secret: &str) -> bool {
    std::fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.path() {
        path if path.is_dir() => contains_secret(&path, secret),
        path => String::from_utf8_lossy(&std::fs::read(path).unwrap()).contains(secret),
    })
}

#[test]
fn login_works_with_every_dify_generation_over_http_and_https() {
    for (generation, version) in
        [(Generation::Tokens, "1.9.1"), (Generation::Cookies, "1.10.0"), (Generation::Base64, "1.11.2")]
    {
        for tls in [false, true] {
            let mut config = Config::new(generation);
            add_usage(&mut config, 3);
            let stage = Stage::new(tls, config);
            stage.settings(&format!("dify_version = \"{version}\"\nrate_per_second = 500"));
            stage.export(&[]).exits_with(0);
            assert_eq!(stage.counted(), (4, "0.53".to_owned()), "{generation:?} {tls}");
            assert_eq!(stage.console.login_counts(), (1, 0, 0));
        }
    }
}

#[test]
fn admin_key_needs_no_login() {
    let mut config = Config::new(Generation::Base64);
    add_usage(&mut config, 1);
    let stage = Stage::new(true, config);
    stage.settings("rate_per_second = 500");
    let run = stage.export(&[("DIFY_ADMIN_KEY", "admin-hunter2")]);
    assert!(run.exits_with(2).last_line().contains("export.dify.workspace"), "{}", run.last_line());
    stage.settings(&format!("workspace = \"{TENANT}\"\nrate_per_second = 500"));
    stage.export(&[("DIFY_ADMIN_KEY", "admin-hunter2")]).exits_with(0);
    assert_eq!((stage.counted(), stage.console.login_counts()), ((2, "0.51".to_owned()), (0, 0, 0)));
    let run = stage.export(&[("DIFY_ADMIN_KEY", "another-hunter2")]);
    assert!(run.exits_with(2).last_line().contains("DIFY_ADMIN_KEY"), "{}", run.last_line());
}

#[test]
fn expired_session_is_refreshed_or_replaced_by_a_new_login() {
    for (generation, version) in [(Generation::Tokens, "1.9.1"), (Generation::Base64, "1.16.1")] {
        for allows_refresh in [true, false] {
            let mut config = Config::new(generation);
            (config.requests_per_session, config.allows_refresh) = (3, allows_refresh);
            add_usage(&mut config, 7);
            let stage = Stage::new(false, config);
            stage.settings(&format!("dify_version = \"{version}\"\nrate_per_second = 500"));
            stage.export(&[]).exits_with(0);
            assert_eq!(stage.counted(), (8, "0.57".to_owned()));
            let (logins, bad_logins, refreshed) = stage.console.login_counts();
            assert_eq!(bad_logins, 0);
            assert_eq!(logins > 1, !allows_refresh, "{logins} logins, {refreshed} refreshes");
            assert!(refreshed > 1);
        }
    }
}

#[test]
fn refused_login_is_never_retried() {
    let mut config = Config::new(Generation::Base64);
    add_usage(&mut config, 1);
    let stage = Stage::new(false, config);
    stage.settings("rate_per_second = 500");
    let run = stage.export(&[("DIFY_PASSWORD", "wrong-hunter2")]);
    run.exits_with(2);
    assert!(run.last_line().contains("refuses the login"), "{}", run.last_line());
    assert_eq!(stage.console.login_counts(), (0, 1, 0));
    assert!(stage.receiver.counted().bodies.is_empty());
}

#[test]
fn listing_ends_even_if_every_page_is_the_first_one() {
    let mut config = Config::new(Generation::Base64);
    add_usage(&mut config, 2);
    config.repeats_first_page = true;
    let stage = Stage::new(false, config);
    stage.settings("rate_per_second = 500");
    stage.export(&[]).exits_with(0);
    assert_eq!(stage.counted(), (3, "0.52".to_owned()));
    assert!(stage.console.requests().len() < 60, "{:?}", stage.console.requests());
}

#[test]
fn list_that_is_reordered_while_being_read_loses_and_duplicates_nothing() {
    let mut config = Config::new(Generation::Base64);
    add_usage(&mut config, 130);
    config.reorders_while_read = true;
    let stage = Stage::new(false, config);
    stage.settings("rate_per_second = 1000");
    stage.export(&[]).exits_with(0);
    assert_eq!(stage.counted(), (131, "1.8".to_owned()));
    assert_eq!(stage.receiver.counted().duplicates, 0);
}

#[test]
fn brief_console_outage_is_retried() {
    let mut config = Config::new(Generation::Base64);
    add_usage(&mut config, 1);
    let stage = Stage::new(false, config);
    stage.settings("rate_per_second = 500");
    stage.console.fail_next(1);
    // The login may be retried: the console was unavailable and did not refuse it.
    stage.export(&[]).exits_with(0);
    assert_eq!(stage.counted(), (2, "0.51".to_owned()));
}

#[test]
fn workspace_without_apps_has_no_usage() {
    let stage = Stage::new(false, Config::new(Generation::Base64));
    stage.settings("rate_per_second = 500");
    let run = stage.export(&[]);
    run.exits_with(0);
    assert_eq!(run.sum("rows"), 0);
}
