//! The API conforms to its OpenAPI document: Schemathesis sends requests that match the document and requests that do not.

use std::process::Command;

use crate::serving::Serving;
use ichido_testkit::required_env;

/// Operations that may refuse a request that matches the document: a cursor is a string, but not every string is a valid
/// cursor, a key may have been used before, the key of an erased claim is reserved, no service can be asked about a claim of this API, and only a file: ledger can be verified and compacted.
const SETTINGS: &str = r#"
[[operations]]
include-name = ["GET /v1/claims", "GET /v1/events"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400"]

[[operations]]
include-name = ["POST /v1/claims/ask", "POST /v1/claims/resolve-all"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "404", "409", "422"]

[[operations]]
include-name = "POST /v1/claims"
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "409", "422"]

[[operations]]
include-name = ["POST /v1/claims/complete", "POST /v1/claims/doubt", "POST /v1/claims/renew", "POST /v1/claims/release", "POST /v1/events/check"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "404", "409"]

[[operations]]
include-name = ["POST /v1/ledger/verify", "POST /v1/ledger/compact"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "501"]
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", "501"]
"#;

fn assert_matches_document(ledger: &str) {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims_with(dir.path(), ledger, &[("LOG_LEVEL", "warn")]);
    let settings = dir.path().join("schemathesis.toml");
    std::fs::write(&settings, SETTINGS).unwrap();
    let output = Command::new(required_env("ICHIDO_TEST_SCHEMATHESIS"))
        .current_dir(dir.path())
        .env("HYPOTHESIS_STORAGE_DIRECTORY", dir.path().join("hypothesis"))
        .args(["--config-file"])
        .arg(&settings)
        .args(["run", &format!("http://{}/openapi.json", claims.address)])
        .args(["--checks", "all", "--mode", "all", "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", "20", "--seed", "17", "--workers", "1", "--no-color"])
        // It would create directories with random names anywhere on this machine.
        .args(["--exclude-path", "/v1/ledger/backup"])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(report.contains("No issues found") || report.contains("passed"), "{report}");
    assert_eq!(claims.get("/healthz").status, 200, "{}", claims.stderr());
}

#[test]
fn api_on_a_memory_ledger_matches_its_openapi_document() {
    assert_matches_document("memory:");
}

#[test]
fn api_on_a_file_ledger_matches_its_openapi_document() {
    assert_matches_document("file:ledger");
}

#[test]
fn document_has_the_version_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    let response = claims.get("/openapi.json");
    assert!(response.header("content-type").unwrap().starts_with("application/json"), "{response:?}");
    let document = response.json();
    assert_eq!(
        (document["openapi"].as_str(), document["info"]["version"].as_str()),
        (Some("3.1.0"), Some(env!("CARGO_PKG_VERSION")))
    );
}
