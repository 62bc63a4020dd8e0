//! Usage read over HTTP from a console that behaves as Dify's.

use std::path::Path;

use serde_json::{Value, json};

use super::dify::TENANT;
use super::fake_console::{Console, EMAIL, Generation, Knobs, PASSWORD, SECRETS};
use super::receiver::{Habit, Receiver, TOKEN};
use super::{Run, bare};

/// Noon of a day in November 2025.
fn noon(day: i64) -> i64 {
    1_762_084_800 + (day - 2) * 86_400
}

/// Two apps: a chat with so many conversations of one message each, and a workflow with one run. All on 2 November.
fn usage(knobs: &mut Knobs, conversations: usize) {
    knobs.apps = vec![
        json!({"id": "app-chat", "name": "Chat", "mode": "chat"}),
        json!({"id": "app-flow", "name": "Flow", "mode": "workflow"}),
    ];
    let list = (0..conversations).rev().map(|n| {
        json!({"id": format!("c{n:04}"), "from_source": "api", "from_end_user_id": format!("eu{n}"), "from_end_user_session_id":
            format!("user-{n}"), "created_at": noon(2), "updated_at": noon(2),
            "model_config": {"model": {"provider": "langgenius/openai/openai", "name": "gpt-4o"}}})
    });
    knobs.conversations.insert("app-chat".to_owned(), list.collect());
    for n in 0..conversations {
        let message = json!({"id": format!("m{n:04}"), "message_tokens": 10, "answer_tokens": 1, "created_at": noon(2),
            "metadata": {"usage": {"total_price": "0.0100000", "currency": "USD"}}});
        knobs.messages.insert(format!("c{n:04}"), vec![message]);
    }
    let log = json!({"id": "log1", "workflow_run": {"id": "run1", "created_at": noon(2)}, "created_at": noon(3),
        "created_by_role": "end_user", "created_by_end_user": {"id": "eu1", "session_id": "user-1"}});
    knobs.logs.insert("app-flow".to_owned(), vec![log]);
    let node = |id: &str, kind: &str, data: Value, metadata: Value| json!({"id": id, "node_type": kind, "process_data": data, "outputs": {"text": "hi"}, "execution_metadata": metadata});
    let data = json!({"model_provider": "openai", "model_name": "gpt-4o", "usage": {"prompt_tokens": 100, "completion_tokens": 20,
        "total_tokens": 120, "total_price": "0.5", "currency": "USD"}});
    let sum = json!({"total_tokens": 120, "total_price": "0.5", "currency": "USD"});
    knobs.nodes.insert(
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
    console: Console,
    receiver: Receiver,
}

impl Stage {
    fn new(tls: bool, knobs: Knobs) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let receiver = Receiver::start(dir.path(), Habit::FirstWins);
        let console = Console::start(dir.path(), tls, knobs);
        Self { dir, console, receiver }
    }

    fn settings(&self, text: &str) {
        std::fs::write(self.dir.path().join("ichido.toml"), format!("[export.dify]\n{text}\n")).unwrap();
    }

    /// Exports 2 November with a login; no secret is seen anywhere.
    fn export(&self, changes: &[(&str, &str)]) -> Run {
        let args = ["export", "dify", "--json", "--from", "2025-11-02", "--to", "2025-11-02"];
        let mut command = bare(self.dir.path(), &args);
        command
            .env(
                "EXTERNAL_API_ENDPOINT",
                format!("https://localhost:{}/v1/usage", self.receiver.address.port()),
            )
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
            assert!(!holds(self.dir.path(), secret), "{secret} is in a file");
        }
        run
    }

    fn counted(&self) -> (u64, String) {
        let requests = self.receiver.books().values().map(|sum| sum.requests).sum();
        (requests, self.receiver.cost().normalize().to_string())
    }
}

fn holds(dir: &Path, secret: &str) -> bool {
    std::fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.path() {
        path if path.is_dir() => holds(&path, secret),
        path => String::from_utf8_lossy(&std::fs::read(path).unwrap()).contains(secret),
    })
}

#[test]
fn each_generation_of_the_login_lets_us_in_over_http_and_https() {
    for (generation, version) in
        [(Generation::Tokens, "1.9.1"), (Generation::Cookies, "1.10.0"), (Generation::Base64, "1.11.2")]
    {
        for tls in [false, true] {
            let mut knobs = Knobs::new(generation);
            usage(&mut knobs, 3);
            let stage = Stage::new(tls, knobs);
            stage.settings(&format!("dify_version = \"{version}\"\nrate_per_second = 500"));
            stage.export(&[]).ends_with(0);
            assert_eq!(stage.counted(), (4, "0.53".to_owned()), "{generation:?} {tls}");
            assert_eq!(stage.console.entries(), (1, 0, 0));
        }
    }
}

#[test]
fn an_admin_key_needs_no_login() {
    let mut knobs = Knobs::new(Generation::Base64);
    usage(&mut knobs, 1);
    let stage = Stage::new(true, knobs);
    stage.settings("rate_per_second = 500");
    let run = stage.export(&[("DIFY_ADMIN_KEY", "admin-hunter2")]);
    assert!(run.ends_with(2).last().contains("export.dify.workspace"), "{}", run.last());
    stage.settings(&format!("workspace = \"{TENANT}\"\nrate_per_second = 500"));
    stage.export(&[("DIFY_ADMIN_KEY", "admin-hunter2")]).ends_with(0);
    assert_eq!((stage.counted(), stage.console.entries()), ((2, "0.51".to_owned()), (0, 0, 0)));
    let run = stage.export(&[("DIFY_ADMIN_KEY", "another-hunter2")]);
    assert!(run.ends_with(2).last().contains("DIFY_ADMIN_KEY"), "{}", run.last());
}

#[test]
fn old_mistake_6_a_session_that_is_over_is_refreshed_or_begun_again() {
    for (generation, version) in [(Generation::Tokens, "1.9.1"), (Generation::Base64, "1.16.1")] {
        for refreshes in [true, false] {
            let mut knobs = Knobs::new(generation);
            (knobs.session, knobs.refreshes) = (3, refreshes);
            usage(&mut knobs, 7);
            let stage = Stage::new(false, knobs);
            stage.settings(&format!("dify_version = \"{version}\"\nrate_per_second = 500"));
            stage.export(&[]).ends_with(0);
            assert_eq!(stage.counted(), (8, "0.57".to_owned()));
            let (logins, bad, refreshed) = stage.console.entries();
            assert_eq!(bad, 0);
            assert_eq!(logins > 1, !refreshes, "{logins} logins, {refreshed} refreshes");
            assert!(refreshed > 1);
        }
    }
}

#[test]
fn a_login_that_is_refused_is_tried_once_and_never_again() {
    let mut knobs = Knobs::new(Generation::Base64);
    usage(&mut knobs, 1);
    let stage = Stage::new(false, knobs);
    stage.settings("rate_per_second = 500");
    let run = stage.export(&[("DIFY_PASSWORD", "wrong-hunter2")]);
    run.ends_with(2);
    assert!(run.last().contains("refuses the login"), "{}", run.last());
    assert_eq!(stage.console.entries(), (0, 1, 0));
    assert!(stage.receiver.counted().bodies.is_empty());
}

#[test]
fn old_mistake_6_lists_end_also_where_each_page_is_the_first() {
    let mut knobs = Knobs::new(Generation::Base64);
    usage(&mut knobs, 2);
    knobs.endless = true;
    let stage = Stage::new(false, knobs);
    stage.settings("rate_per_second = 500");
    stage.export(&[]).ends_with(0);
    assert_eq!(stage.counted(), (3, "0.52".to_owned()));
    assert!(stage.console.requests().len() < 60, "{:?}", stage.console.requests());
}

#[test]
fn lists_that_move_while_they_are_read_lose_nothing_and_double_nothing() {
    let mut knobs = Knobs::new(Generation::Base64);
    usage(&mut knobs, 130);
    knobs.drifts = true;
    let stage = Stage::new(false, knobs);
    stage.settings("rate_per_second = 1000");
    stage.export(&[]).ends_with(0);
    assert_eq!(stage.counted(), (131, "1.8".to_owned()));
    assert_eq!(stage.receiver.counted().duplicates, 0);
}

#[test]
fn a_console_that_is_out_for_a_moment_is_asked_again() {
    let mut knobs = Knobs::new(Generation::Base64);
    usage(&mut knobs, 1);
    let stage = Stage::new(false, knobs);
    stage.settings("rate_per_second = 500");
    stage.console.is_out(1);
    // A login without an answer that counts may be tried again; the console was out, and nothing was refused.
    stage.export(&[]).ends_with(0);
    assert_eq!(stage.counted(), (2, "0.51".to_owned()));
}

#[test]
fn a_workspace_without_apps_has_no_usage() {
    let stage = Stage::new(false, Knobs::new(Generation::Base64));
    stage.settings("rate_per_second = 500");
    let run = stage.export(&[]);
    run.ends_with(0);
    assert_eq!(run.sum("rows"), 0);
}
