//! The consumer of `sdk_consumer.js`, as a process.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::json_lines_process::Lines;
use super::require_env;

pub(super) struct Consumer(Lines);

impl Consumer {
    pub(super) fn start(environment: &[(&str, &str)]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/events/sdk_consumer.js");
        let mut command = Command::new(require_env("ICHIDO_TEST_NODE"));
        command.arg(script).env("NODE_PATH", require_env("ICHIDO_TEST_NODE_MODULES"));
        command.env_remove("DEDUP_TABLE_NAME").envs(environment.iter().copied());
        Self(Lines::start(&mut command))
    }

    fn ask(&mut self, request: &Value) -> Value {
        let said = self.0.ask(request);
        assert_eq!(said["error"], Value::Null, "{request}");
        said["answer"].clone()
    }

    /// Whether an event is new to it.
    pub(super) fn check(&mut self, key: &str, metadata: &Value) -> bool {
        self.ask(&json!({ "check": key, "metadata": metadata }))["isNew"].as_bool().unwrap()
    }

    /// An item as Amazon's client reads it.
    pub(super) fn read(&mut self, key: &str) -> Value {
        self.ask(&json!({ "read": key }))
    }

    pub(super) fn put(&mut self, item: &Value) {
        self.ask(&json!({ "put": item }));
    }

    /// Asks for all of them at once: those that were new.
    pub(super) fn race(&mut self, keys: &[String]) -> Vec<String> {
        serde_json::from_value(self.ask(&json!({ "race": keys }))).unwrap()
    }
}
