//! The API does what its description says: Schemathesis tries it, with calls that fit the description and calls that do
//! not.

use std::process::Command;

use crate::serving::Serving;

/// Where a call that fits the description may be refused all the same: a cursor is text, but not any text; a key may have
/// been used before.
const SETTINGS: &str = r#"
[[operations]]
include-name = "GET /v1/claims"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400"]

[[operations]]
include-name = "POST /v1/claims"
checks.positive_data_acceptance.expected-statuses = ["2xx", "409", "422"]
"#;

fn behaves_as_described(ledger: &str) {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims_with(dir.path(), ledger, &[("LOG_LEVEL", "warn")]);
    let settings = dir.path().join("schemathesis.toml");
    std::fs::write(&settings, SETTINGS).unwrap();
    let program =
        std::env::var("ICHIDO_TEST_SCHEMATHESIS").expect("ICHIDO_TEST_SCHEMATHESIS: run `cargo xtask test`");
    let output = Command::new(program)
        .current_dir(dir.path())
        .env("HYPOTHESIS_STORAGE_DIRECTORY", dir.path().join("hypothesis"))
        .args(["--config-file"])
        .arg(&settings)
        .args(["run", &format!("http://{}/openapi.json", claims.address)])
        .args(["--checks", "all", "--mode", "all", "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", "20", "--seed", "17", "--workers", "1", "--no-color"])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(report.contains("No issues found") || report.contains("passed"), "{report}");
    assert_eq!(claims.get("/healthz").status, 200, "{}", claims.stderr());
}

#[test]
fn memory_ledger_behaves_as_described() {
    behaves_as_described("memory:");
}

#[test]
fn file_ledger_behaves_as_described() {
    behaves_as_described("file:ledger");
}

#[test]
fn document_has_this_version() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    let answer = claims.get("/openapi.json");
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    let text = answer.json();
    assert_eq!(
        (text["openapi"].as_str(), text["info"]["version"].as_str()),
        (Some("3.1.0"), Some(env!("CARGO_PKG_VERSION")))
    );
}
