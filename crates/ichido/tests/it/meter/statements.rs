//! `ichido report usage`: the statement of a month, its changes, and its verification, while the meter runs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::{Meter, command, postgres, record};
use crate::delivery::Run;

const MONTH: [&str; 4] = ["report", "usage", "--month", "2025-11"];

fn report(dir: &Path, db: &str, args: &[&str]) -> Run {
    Run::of(command(dir).args(MONTH).args(["--db", db]).args(args).output().unwrap())
}

fn statement(dir: &Path, db: &str, args: &[&str]) -> Value {
    let run = report(dir, db, &[&["--format", "json"], args].concat());
    run.exits_with(0);
    serde_json::from_str(&run.stdout).unwrap()
}

fn verify(dir: &Path, db: &str, file: &str, code: i32) -> Value {
    let run = Run::of(
        command(dir).args(["report", "usage", "--json", "--db", db, "--verify", file]).output().unwrap(),
    );
    run.exits_with(code);
    serde_json::from_str(&run.stdout).unwrap_or_default()
}

fn costing(id: usize, cost: &str) -> Value {
    let mut record = record(id);
    record["cost_actual"] = cost.into();
    record
}

/// The whole story of a month, on one database.
fn month_is_stated_changed_and_verified(dir: &Path, db: &str) {
    let meter = Meter::start_with(dir, &["--db", db], &[("METER_PROFILE", "upsert_by_event_id")]);
    std::fs::write(dir.join("ichido.toml"), "[meter]\nprofile = \"upsert_by_event_id\"\n").unwrap();
    let mut jpy = costing(4, "12.5");
    jpy["currency"] = "JPY".into();
    let first = json!({"records": [costing(0, "0.1"), costing(1, "0.20"), costing(2, "0.3"), jpy]});
    assert_eq!(meter.post(&first).status, 200);
    assert_eq!(meter.post(&first).status, 200, "a duplicate batch");

    let stated = statement(dir, db, &[]);
    assert_eq!(stated["changes"], Value::Null, "{stated}");
    let totals: Vec<_> =
        stated["totals"].as_array().unwrap().iter().map(|t| (&t["currency"], &t["cost"])).collect();
    assert_eq!(
        totals,
        [(&json!("JPY"), &json!("12.5")), (&json!("USD"), &json!("0.6"))],
        "never added together"
    );
    assert_eq!(stated["repeats"]["duplicates"], 4, "{stated}");
    assert_eq!(stated["reconciliation"], Value::Null);
    let one_app = statement(dir, db, &["--app", "app-1", "--preview"]);
    assert_eq!((&one_app["rows"].as_array().unwrap().len(), &one_app["app"]), (&1, &json!("app-1")));

    let kept = report(dir, db, &["--format", "json", "--output", "kept.json"]);
    kept.exits_with(0);
    let same: Value = serde_json::from_slice(&std::fs::read(dir.join("kept.json")).unwrap()).unwrap();
    assert_eq!((&same["digest"], &same["changes"]["rows"]), (&stated["digest"], &json!([])));
    assert_eq!(verify(dir, db, "kept.json", 0)["verified"], true);

    // One record is replaced and one is new.
    let mut replaced = costing(1, "0.25");
    replaced["request_count"] = 2.into();
    meter.post(&json!({"records": [replaced, costing(20, "0.001")]}));
    let verified = verify(dir, db, "kept.json", 1);
    assert_eq!((&verified["verified"], &verified["digest_of_file"]), (&json!(false), &same["digest"]));
    assert_eq!(verified["differences"].as_array().unwrap().len(), 2, "{verified}");
    let table = Run::of(
        command(dir).args(["report", "usage", "--db", db, "--verify", "kept.json"]).output().unwrap(),
    );
    assert!(table.exits_with(1).stdout.contains("+0.05"), "{}", table.stdout);

    let preview = report(dir, db, &["--preview"]);
    assert!(preview.exits_with(0).stdout.contains("counted later"), "{}", preview.stdout);
    let changed = statement(dir, db, &[]);
    let changes = &changed["changes"];
    assert_eq!(changes["previous_digest"], same["digest"]);
    let rows: Vec<_> = changes["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["counted_later"].as_i64().unwrap(),
                row["replaced"].as_i64().unwrap(),
                row["cost_difference"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(rows, [(1, 0, "0.001"), (0, 1, "0.05")], "{changes}");
    assert_eq!(statement(dir, db, &[])["changes"]["rows"], json!([]), "it is the last statement now");
}

#[test]
fn month_is_stated_changed_and_verified_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    month_is_stated_changed_and_verified(dir.path(), "sqlite:data/meter.db");
    let mode = |path: &str| std::fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("kept.json"), mode("data/statements")), (0o600, 0o700));
    for file in std::fs::read_dir(dir.path().join("data/statements")).unwrap() {
        assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn month_is_stated_changed_and_verified_on_postgres() {
    let dir = tempfile::tempdir().unwrap();
    month_is_stated_changed_and_verified(dir.path(), &postgres());
}

#[test]
fn changed_file_is_not_verified() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    meter.post(&json!({"records": [costing(0, "0.1")]}));
    let db = "sqlite:data/meter.db";
    let text = statement(dir.path(), db, &[]).to_string();
    std::fs::write(dir.path().join("forged.json"), text.replace("\"0.1\"", "\"0.2\"")).unwrap();
    let verified = verify(dir.path(), db, "forged.json", 1);
    assert_ne!(verified["digest_of_file"], verified["digest"]);
    assert_eq!(verified["digest_of_meter"], verified["digest"]);
    std::fs::write(dir.path().join("page.html"), "<!DOCTYPE html>").unwrap();
    let line = crate::refused(dir.path(), &["report", "usage", "--verify", "page.html"], 2);
    assert!(line.contains("not a statement in JSON"), "{line}");
}

#[test]
fn statement_is_a_page_without_scripts_and_a_table_for_spreadsheets() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    let mut hostile = costing(0, "1234.5");
    hostile["metadata"]["source_app_name"] = "<script>alert(1)</script>".into();
    hostile["metadata"]["source_user_id"] = "=cmd()".into();
    meter.post(&json!({"records": [hostile, costing(1, "0.1")]}));
    let db = "sqlite:data/meter.db";
    for (lang, title) in [("en", "Usage statement 2025-11"), ("ja", "使用量明細書 2025-11")] {
        report(dir.path(), db, &["--format", "html", "--lang", lang, "--output", "a.html"]).exits_with(0);
        let page = std::fs::read_to_string(dir.path().join("a.html")).unwrap();
        assert!(page.contains(title) && page.contains("1234.5 USD") && page.contains("sha256:"), "{page}");
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
        assert!(
            !page.contains("http://") && !page.contains("https://") && page.contains("@media print"),
            "{page}"
        );
    }
    let csv = report(dir.path(), db, &["--format", "csv"]);
    let lines: Vec<&str> = csv.exits_with(0).stdout.lines().collect();
    assert_eq!(lines[0].split(',').next_back(), Some("cost"));
    assert!(lines.iter().any(|line| line.contains(",'=cmd(),") && line.ends_with(",1234.5")), "{lines:?}");
    let empty =
        Run::of(command(dir.path()).args(["report", "usage", "--month", "2024-01"]).output().unwrap());
    assert!(empty.exits_with(0).stdout.contains("nothing was counted"), "{}", empty.stdout);
}

#[test]
fn what_cannot_be_stated_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let line = crate::refused(dir.path(), &["report", "usage", "--month", "2025-11"], 2);
    assert!(line.contains("data/meter.db does not exist"), "{line}");
    assert!(!dir.path().join("data").exists(), "nothing is created");
    let line = crate::refused(dir.path(), &["report", "usage", "--month", "2025-13"], 2);
    assert!(line.contains("must be a month in the form YYYY-MM"), "{line}");
    let mut several = command(dir.path());
    several.args(MONTH).env("METER_TOKENS", "acme=s3cret-1,beta=s3cret-2");
    let run = Run::of(several.output().unwrap());
    assert!(run.exits_with(2).stderr.contains("set --tenant to one of acme, beta"), "{}", run.stderr);
}
