//! Runs `sdk_consumer.js`, a consumer that uses the AWS SDK instead of ichido.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::json_lines_process::JsonLinesProcess;
use ichido_testkit::required_env;

pub(super) struct Consumer(JsonLinesProcess);

impl Consumer {
    pub(super) fn start(environment: &[(&str, &str)]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/events/sdk_consumer.js");
        let mut command = Command::new(required_env("ICHIDO_TEST_NODE"));
        command.arg(script).env("NODE_PATH", required_env("ICHIDO_TEST_NODE_MODULES"));
        command.env_remove("DEDUP_TABLE_NAME").envs(environment.iter().copied());
        Self(JsonLinesProcess::start(&mut command))
    }

    fn call(&mut self, request: &Value) -> Value {
        let response = self.0.call(request);
        assert_eq!(response["error"], Value::Null, "{request}");
        response["result"].clone()
    }

    /// Whether an event is new to the consumer.
    pub(super) fn check(&mut self, key: &str, metadata: &Value) -> bool {
        self.call(&json!({ "check": key, "metadata": metadata }))["isNew"].as_bool().unwrap()
    }

    /// Reads an item through the AWS SDK.
    pub(super) fn read(&mut self, key: &str) -> Value {
        self.call(&json!({ "read": key }))
    }

    pub(super) fn put(&mut self, item: &Value) {
        self.call(&json!({ "put": item }));
    }

    /// Checks all keys concurrently and returns those that were new.
    pub(super) fn race(&mut self, keys: &[String]) -> Vec<String> {
        serde_json::from_value(self.call(&json!({ "race": keys }))).unwrap()
    }
}
