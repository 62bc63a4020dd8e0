//! What is specific to one database.

use std::os::unix::fs::PermissionsExt;

use ichido_core::{Nonce, SystemEntropy};
use ichido_meter::repeats::RepeatsQuery;
use ichido_meter::{Error, Options, open};
use ichido_testkit::free_port;
use ichido_usage::Profile;

use crate::support::{Database, record};

async fn refusal(url: &str) -> String {
    match open(url, Options::default()).await {
        Err(Error::Settings(line)) => line,
        other => panic!("{other:?}"),
    }
}

fn file(database: &Database) -> std::path::PathBuf {
    database.dir.as_ref().unwrap().path().join("data/meter.db")
}

#[tokio::test]
async fn file_is_readable_by_its_owner_only() {
    let database = Database::sqlite();
    let meter = database.open(Profile::FirstWins).await;
    meter.count("k", &[record("e", 1, 1, "1")]).await;
    for name in ["meter.db", "meter.db-wal", "meter.db-shm"] {
        let file = file(&database).with_file_name(name);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let dir = file(&database).parent().unwrap().to_owned();
    assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn file_of_a_newer_version_is_refused_and_left_unchanged() {
    let database = Database::sqlite();
    database.open(Profile::FirstWins).await.store.close().await;
    let change = |sql: &str| {
        let connection = rusqlite::Connection::open(file(&database)).unwrap();
        connection.execute_batch(sql).unwrap();
    };
    change("PRAGMA user_version = 2");
    let line = refusal(&database.url).await;
    assert!(line.contains("newer ichido (version 2; this one supports 1)"), "{line}");
    change("PRAGMA user_version = 1");
    database.open(Profile::FirstWins).await;
}

#[tokio::test]
async fn database_of_an_earlier_version_is_extended_and_says_since_when_repeats_are_counted() {
    let repeats = |meter: &crate::support::Meter| {
        let query = RepeatsQuery { tenant: "t".to_owned(), month: "2025-11".to_owned(), app: None };
        let store = meter.store.clone();
        async move { store.repeats(&query).await.unwrap() }
    };
    for database in [Database::sqlite(), Database::postgres()] {
        let meter = database.open(Profile::FirstWins).await;
        meter.count("k", &[record("e", 1, 1, "1")]).await;
        assert_eq!(repeats(&meter).await.since, None, "a new database counts from its beginning");
        meter.store.close().await;
        match database.dir {
            Some(_) => rusqlite::Connection::open(file(&database))
                .unwrap()
                .execute_batch("DROP TABLE repeats; DROP TABLE budget_notices")
                .unwrap(),
            None => {
                let (schema, client) = database.client().await;
                let sql = format!("DROP TABLE \"{schema}\".repeats, \"{schema}\".budget_notices");
                client.batch_execute(&sql).await.unwrap();
            }
        }
        let meter = database.open(Profile::FirstWins).await;
        assert_eq!(meter.count("k", &[record("e", 1, 1, "1")]).await, ["duplicate"]);
        let counted = repeats(&meter).await;
        assert!(
            counted.duplicates == 1 && counted.since.is_some_and(|at| at > 1_700_000_000_000),
            "{counted:?}"
        );
    }
}

#[tokio::test]
async fn foreign_file_is_refused_and_left_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE orders (id INTEGER)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let line = refusal(&format!("sqlite:{}", path.display())).await;
    assert!(line.contains("was not created by a meter"), "{line}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "buy milk\n".repeat(200)).unwrap();
    let line = refusal(&format!("sqlite:{}", text.display())).await;
    assert!(line.contains("was not created by a meter"), "{line}");
    assert!(refusal(&format!("sqlite:{}", dir.path().display())).await.contains("cannot be created"));
    assert!(refusal("sqlite:").await.contains("needs a file name"));
}

#[tokio::test]
async fn foreign_tables_and_tables_of_a_newer_version_are_refused() {
    let database = Database::postgres();
    database.open(Profile::FirstWins).await;
    let (schema, client) = database.client().await;
    client.batch_execute(&format!("UPDATE {schema}.meter_layout SET version = 2")).await.unwrap();
    let line = refusal(&database.url).await;
    assert!(line.contains("newer ichido (version 2; this one supports 1)"), "{line}");
    let other = format!("m_{}", Nonce::draw(&SystemEntropy));
    client
        .batch_execute(&format!("CREATE SCHEMA {other}; CREATE TABLE {other}.records (id int)"))
        .await
        .unwrap();
    let line = refusal(&database.url.replace(&schema, &other)).await;
    assert!(line.contains("tables that no meter created"), "{line}");
}

#[tokio::test]
async fn twenty_meters_can_start_concurrently() {
    for database in [Database::sqlite(), Database::postgres()] {
        let starts: Vec<_> = (0..20)
            .map(|_| {
                let url = database.url.clone();
                tokio::spawn(async move { open(&url, Options::default()).await })
            })
            .collect();
        for start in starts {
            start.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn no_error_contains_a_password() {
    for url in
        ["mysql://u:hunter2@h/d", "postgres://u:hunter2@h:x/d", "postgres://u:hunter2@h/d?pool=hunter2"]
    {
        assert!(!refusal(url).await.contains("hunter2"));
    }
    let url = format!("postgres://u:hunter2@127.0.0.1:{}/d", free_port());
    let error = open(&url, Options::default()).await.unwrap_err();
    assert!(
        matches!(error, Error::Unavailable { .. }) && !format!("{error:?}").contains("hunter2"),
        "{error:?}"
    );
}
