//! Runs the export as a user does: PostgreSQL with Dify's tables, real processes, and a receiver behind TLS.

mod aggregation;
mod bad_input;
mod changed_totals;
mod concurrency;
mod console;
mod delivery_failures;
mod dify;
mod fake_console;
mod meter_end_to_end;
mod receiver;
mod reconcile;
mod schedule;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ichido_testkit::process::Process;
use serde_json::Value;

use self::dify::Dify;
use self::receiver::{Action, Receiver, ReceiverKind, TOKEN};
use crate::delivery::Run;

/// Covers the days of the generated usage and at least one day on each side.
const ALL_DAYS: [&str; 7] = ["export", "dify", "--json", "--from", "2025-11-01", "--to", "2025-11-08"];

/// Creates a Dify database with one model call on `day` and returns its URL.
pub(crate) fn dify_with_one_call_on(day: &str) -> String {
    let mut dify = Dify::new();
    let (app, user) = (dify.app("chat", "Help desk"), dify.end_user("user-1"));
    let model = Some(("langgenius/openai/openai", "gpt-4o"));
    dify.plain(&app, &format!("{day} 12:00:00"), model, (1200, 34), Some("0.0042000"), &user);
    dify.url.clone()
}

/// A working directory, a Dify database, a receiver, and the settings that connect them.
struct Stage {
    dir: tempfile::TempDir,
    dify: Dify,
    receiver: Receiver,
    profile: &'static str,
}

impl Stage {
    fn new(kind: ReceiverKind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let receiver = Receiver::start(dir.path(), kind);
        let profile = match kind {
            ReceiverKind::FirstWins | ReceiverKind::Meter(_) => "first_wins",
            ReceiverKind::Upsert => "upsert_by_event_id",
        };
        let stage = Self { dir, dify: Dify::new(), receiver, profile };
        stage.settings("");
        stage
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes the export settings: the profile, and `more`.
    fn settings(&self, more: &str) {
        let text = format!("[export.dify]\nprofile = \"{}\"\n{more}\n", self.profile);
        std::fs::write(self.path().join("ichido.toml"), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = export_command(self.path(), args);
        command
            .env("DIFY_DATABASE_URL", &self.dify.url)
            .env("EXTERNAL_API_ENDPOINT", self.receiver.endpoint())
            .env("EXTERNAL_API_TOKEN", TOKEN)
            .env("EXTERNAL_API_CA_FILE", &self.receiver.ca);
        command
    }

    fn run(&self, args: &[&str], settings: &[(&str, &str)]) -> Run {
        Run::of(self.command(args).envs(settings.iter().copied()).output().unwrap())
    }

    fn export(&self, args: &[&str]) -> Run {
        self.run(&[&["export", "dify", "--json"], args].concat(), &[])
    }

    /// Kills ten exports, each a little later in its work, while the receiver fails in various ways. Then runs complete
    /// exports until nothing new is left to send, and returns the last of them.
    fn export_despite_kills(&self) -> Run {
        self.receiver.set_script(|request_number| match request_number % 7 {
            0 | 3 => Action::Respond(503),
            1 => Action::CountAndHangUp,
            5 => Action::HangUp,
            _ => Action::Count,
        });
        let settings = [("BATCH_SIZE", "5"), ("RETRY_BACKOFF_MS", "1")];
        for round in 0..10u64 {
            let mut process = Process::start(self.command(&ALL_DAYS).envs(settings)).unwrap();
            std::thread::sleep(Duration::from_millis(20 + 31 * round));
            process.kill();
        }
        self.receiver.set_script(|_| Action::Count);
        // Batches that a killed process left in the spool are sent first; a newer total is withheld until then.
        for _ in 0..2 {
            self.run(&ALL_DAYS, &settings);
        }
        let final_run = self.run(&ALL_DAYS, &settings);
        final_run.exits_with(0);
        assert_eq!(final_run.sum("new"), 0);
        final_run
    }

    fn files(&self, directory: &str) -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(self.path().join("data").join(directory)).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        paths
    }

    fn watermark(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.path().join("data/export/watermark.json")).ok()?;
        let value: Value = serde_json::from_str(&text).unwrap();
        value["through"].as_str().map(str::to_owned)
    }
}

/// Prepares `ichido` in a directory, with a short backoff and the envelope that the receiver expects.
fn export_command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    command.current_dir(dir).args(args);
    crate::without_settings(|name| {
        command.env_remove(name);
    });
    command
        .env("EXTERNAL_API_ENVELOPE", "api_meter")
        .env("EXTERNAL_API_TENANT_ID", "acme")
        .env("EXTERNAL_API_CONFLICT", "record")
        .env("RETRY_BACKOFF_MS", "20")
        .env("LOG_LEVEL", "info");
    command
}

impl Run {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{} {}", self.stdout, self.stderr))
    }

    /// The sum of one figure over all periods.
    #[track_caller]
    fn sum(&self, name: &str) -> u64 {
        self.json()["periods"].as_array().unwrap().iter().map(|period| period[name].as_u64().unwrap()).sum()
    }

    /// The last line of stderr, which states the result.
    fn last_line(&self) -> &str {
        self.stderr.lines().last().unwrap_or_default()
    }
}
