//! `ichido config`: values in effect, their origin, defaults and the schema.

use serde_json::Value;

use crate::{ichido, ok};

fn show(dir: &std::path::Path, variables: &[(&str, &str)]) -> Vec<Value> {
    let output = ichido(dir)
        .args(["config", "show", "--json", "--ledger", "redis://user:hunter2@db:6379/0"])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn values_are_shown_with_their_origin_and_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let settings = "[gateway]\nupstream = \"http://127.0.0.1:5000\"\n\n[[gateway.routes]]\nlease_ms = 5000\n";
    std::fs::write(dir.path().join("ichido.toml"), settings).unwrap();
    let shown = show(dir.path(), &[("EXTERNAL_API_TOKEN", "hunter2"), ("MAX_RETRIES", "7")]);
    for (setting, value, origin) in [
        ("gateway.upstream", "http://127.0.0.1:5000", "ichido.toml:2"),
        ("gateway.routes[0].lease_ms", "5000", "ichido.toml:5"),
        ("gateway.listen", "127.0.0.1:8080", "default"),
        ("ledger.url", "redis://db:6379/0", "--ledger"),
        ("delivery.token", "***", "environment variable EXTERNAL_API_TOKEN"),
        ("delivery.max_retries", "7", "environment variable MAX_RETRIES"),
        ("delivery.endpoint", "null", "default"),
    ] {
        let found = shown.iter().find(|one| one["setting"] == setting).unwrap_or_else(|| panic!("{setting}"));
        let text = found["value"].as_str().map_or_else(|| found["value"].to_string(), ToOwned::to_owned);
        assert_eq!((text.as_str(), found["origin"].as_str()), (value, Some(origin)), "{setting}");
    }
    let table = ok(dir.path(), &["config", "show"]);
    assert!(table.contains("gateway.upstream") && !table.contains("gateway.listen"), "{table}");
}

#[test]
fn default_file_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), &["config", "default"]);
    assert!(text.contains("#[gateway]") && !text.contains("admin_key"), "{text}");
    std::fs::write(dir.path().join("ichido.toml"), &text).unwrap();
    assert!(ok(dir.path(), &["config", "show"]).contains("default value"));
    let variables = ok(dir.path(), &["config", "default", "--env"]);
    assert!(variables.contains("#EXTERNAL_API_TIMEOUT_MS=30000"), "{variables}");
}

#[test]
fn schema_describes_every_section() {
    let dir = tempfile::tempdir().unwrap();
    let schema: Value = serde_json::from_str(&ok(dir.path(), &["config", "schema"])).unwrap();
    for section in ["ledger", "admin", "claims", "console", "gateway", "delivery", "meter", "export"] {
        assert!(schema["properties"][section].is_object(), "{section}");
    }
    assert_eq!(schema["properties"]["delivery"]["properties"]["max_retries"]["maximum"], 20);
}
