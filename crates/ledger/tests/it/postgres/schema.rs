//! Tables that exist already, or belong to something else.

use ichido_ledger::postgres::Postgres;
use ichido_ledger::{Kind, Maintain};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;

use super::TestSchema;
use crate::support::{granted, key};

async fn refusal(url: &str) -> String {
    let error = Postgres::connect(url).await.unwrap_err();
    let Kind::Schema(text) = error.kind() else { panic!("{error:?}") };
    text.clone()
}

#[tokio::test]
async fn twenty_processes_may_start_at_once() {
    let test_schema = TestSchema::new();
    let start = |url: String| tokio::spawn(async move { Postgres::connect(&url).await });
    let starts: Vec<_> = (0..20).map(|_| start(test_schema.url())).collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
    assert_eq!(test_schema.count("SELECT count(*) FROM ichido.layout").await, 1);
    test_schema.ledger().await.init().await.unwrap();
}

#[tokio::test]
async fn newer_layout_is_refused_and_left_alone() {
    let test_schema = TestSchema::new();
    test_schema.ledger().await;
    test_schema.execute("UPDATE ichido.layout SET version = 3").await;
    let text = refusal(&test_schema.url()).await;
    assert!(text.contains("newer ichido (version 3"), "{text}");
    assert_eq!(test_schema.count("SELECT version::bigint FROM ichido.layout").await, 3);
}

/// The layout of version 1.
const BEFORE_CALLERS: &str =
    "ALTER TABLE ichido.claims DROP COLUMN caller; UPDATE ichido.layout SET version = 1";

#[tokio::test]
async fn version_1_is_upgraded_and_its_claims_are_readable() {
    let (test_schema, key) = (TestSchema::new(), key("before"));
    let token = granted(&test_schema.ledger().await, &key).await.token;
    test_schema.execute(BEFORE_CALLERS).await;
    let starts: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let url = test_schema.url();
                async move { Postgres::connect(&url).await }
            })
        })
        .collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
    assert_eq!(test_schema.count("SELECT version::bigint FROM ichido.layout").await, 2);
    let record = test_schema.ledger().await.get(&key).await.unwrap().unwrap();
    assert_eq!((record.token, record.caller), (token, None));
}

#[tokio::test]
async fn role_that_may_not_upgrade_the_layout_gets_instructions() {
    let (test_schema, role) = (TestSchema::new(), format!("r_{}", unique()));
    test_schema.ledger().await;
    test_schema.execute(BEFORE_CALLERS).await;
    let schema = &test_schema.schema;
    test_schema
        .execute(&format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
        ))
        .await;
    let url = required_env("ICHIDO_TEST_POSTGRES_URL").replace("postgres@", &format!("{role}@"));
    let error = Postgres::connect(&format!("{url}?schema={schema}")).await.unwrap_err();
    let Kind::Denied(text) = error.kind() else { panic!("{error:?}") };
    assert!(text.contains("older ichido") && text.contains("ichido ledger init"), "{text}");
    assert_eq!(test_schema.count("SELECT version::bigint FROM ichido.layout").await, 1);
}

#[tokio::test]
async fn foreign_table_is_refused_and_left_alone() {
    let test_schema = TestSchema::new();
    test_schema
        .execute(&format!("CREATE SCHEMA {0}; CREATE TABLE {0}.claims (id bigint)", test_schema.schema))
        .await;
    let text = refusal(&test_schema.url()).await;
    assert!(text.contains("is not an ichido table"), "{text}");
    let tables = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{}'", test_schema.schema);
    assert_eq!(test_schema.count(&tables).await, 1);
}

#[tokio::test]
async fn table_without_a_column_is_refused() {
    let test_schema = TestSchema::new();
    test_schema.ledger().await;
    test_schema.execute("ALTER TABLE ichido.claims DROP COLUMN over_at").await;
    let text = refusal(&test_schema.url()).await;
    assert!(text.contains("no column over_at of type bigint"), "{text}");
}

#[tokio::test]
async fn role_without_create_privilege_gets_instructions() {
    let (test_schema, role) = (TestSchema::new(), format!("r_{}", unique()));
    test_schema.execute(&format!("CREATE ROLE {role} LOGIN")).await;
    let url = required_env("ICHIDO_TEST_POSTGRES_URL").replace("postgres@", &format!("{role}@"));
    let url = format!("{url}?schema={}", test_schema.schema);
    let error = Postgres::connect(&url).await.unwrap_err();
    let Kind::Denied(text) = error.kind() else { panic!("{error:?}") };
    assert!(text.contains("CREATE on the database") && text.contains("ichido ledger init"), "{text}");

    // The privileges in the text are sufficient.
    test_schema.ledger().await;
    let schema = &test_schema.schema;
    let grants = format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
    );
    test_schema.execute(&grants).await;
    granted(&Postgres::connect(&url).await.unwrap(), &key("granted")).await;
}

#[tokio::test]
async fn dropped_table_is_a_schema_error() {
    let test_schema = TestSchema::new();
    let ledger = test_schema.ledger().await;
    test_schema.execute("DROP TABLE ichido.claims").await;
    let error = ledger.get(&key("k")).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Schema(text) if text.contains("ichido ledger init")), "{error:?}");
}
