//! The settings files in the documents.

use super::markdown::{blocks, page, pages};
use crate::{ichido, stderr};

#[test]
fn every_settings_file_is_accepted() {
    let mut checked = 0;
    for name in pages() {
        for block in blocks(&page(&name)).into_iter().filter(|block| block.language == "toml") {
            // Keep only one of two settings that exclude each other.
            let lines = block.lines.into_iter().filter(|line| !line.starts_with("console = "));
            let settings = lines.collect::<Vec<_>>().join("\n");
            accept(&name, &settings);
            checked += 1;
        }
    }
    assert!(checked >= 6, "{checked}");
}

fn accept(name: &str, settings: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("settings.toml"), settings).unwrap();
    let checked = ichido(dir.path())
        .args(["check", "--json", "--config", "settings.toml", "--ledger", "memory:"])
        .env("DIFY_DATABASE_URL", "postgres://nobody@127.0.0.1:1/dify")
        .env("ICHIDO_GATEWAY_UPSTREAM", "http://127.0.0.1:1")
        .env("EXTERNAL_API_TOKEN", "instead-of-a-file")
        .output()
        .unwrap();
    assert!(checked.status.code() < Some(2), "{name}: {settings}\n{}", stderr(&checked));
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    for check in report["checks"].as_array().unwrap() {
        // There is no Dify to connect to.
        let accepted = check["verdict"] != "failed" || check["what"] == "dify";
        assert!(accepted, "{name}: {settings}\n{check}");
    }
}
