//! Tables that are there already, or are somebody else's.

use ichido_ledger::postgres::Postgres;
use ichido_ledger::{Kind, Maintain};

use crate::Place;
use crate::requests::{granted, key, server, unique};

async fn refusal(url: &str) -> String {
    let error = Postgres::connect(url).await.unwrap_err();
    let Kind::Schema(text) = error.kind() else { panic!("{error:?}") };
    text.clone()
}

#[tokio::test]
async fn twenty_processes_may_start_at_once() {
    let place = Place::new();
    let start = |url: String| tokio::spawn(async move { Postgres::connect(&url).await });
    let starts: Vec<_> = (0..20).map(|_| start(place.url())).collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
    assert_eq!(place.count("SELECT count(*) FROM ichido.layout").await, 1);
    place.ledger().await.init().await.unwrap();
}

#[tokio::test]
async fn a_newer_layout_is_refused_and_left_alone() {
    let place = Place::new();
    place.ledger().await;
    place.execute("UPDATE ichido.layout SET version = 3").await;
    let text = refusal(&place.url()).await;
    assert!(text.contains("newer ichido (version 3"), "{text}");
    assert_eq!(place.count("SELECT version::bigint FROM ichido.layout").await, 3);
}

/// As version 1 left it.
const BEFORE_CALLERS: &str =
    "ALTER TABLE ichido.claims DROP COLUMN caller; UPDATE ichido.layout SET version = 1";

#[tokio::test]
async fn the_layout_before_is_raised_and_its_claims_are_read() {
    let (place, key) = (Place::new(), key("before"));
    let token = granted(&place.ledger().await, &key).await.token;
    place.execute(BEFORE_CALLERS).await;
    let starts: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn({
                let url = place.url();
                async move { Postgres::connect(&url).await }
            })
        })
        .collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
    assert_eq!(place.count("SELECT version::bigint FROM ichido.layout").await, 2);
    let record = place.ledger().await.get(&key).await.unwrap().unwrap();
    assert_eq!((record.token, record.caller), (token, None));
}

#[tokio::test]
async fn a_role_that_may_not_raise_the_layout_is_told_who_may() {
    let (place, role) = (Place::new(), format!("r_{}", unique()));
    place.ledger().await;
    place.execute(BEFORE_CALLERS).await;
    let schema = &place.schema;
    place
        .execute(&format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
        ))
        .await;
    let url = server("ICHIDO_TEST_POSTGRES_URL").replace("postgres@", &format!("{role}@"));
    let error = Postgres::connect(&format!("{url}?schema={schema}")).await.unwrap_err();
    let Kind::Denied(text) = error.kind() else { panic!("{error:?}") };
    assert!(text.contains("older ichido") && text.contains("ichido ledger init"), "{text}");
    assert_eq!(place.count("SELECT version::bigint FROM ichido.layout").await, 1);
}

#[tokio::test]
async fn a_table_of_somebody_else_is_refused_and_left_alone() {
    let place = Place::new();
    place.execute(&format!("CREATE SCHEMA {0}; CREATE TABLE {0}.claims (id bigint)", place.schema)).await;
    let text = refusal(&place.url()).await;
    assert!(text.contains("is not an ichido table"), "{text}");
    let tables = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{}'", place.schema);
    assert_eq!(place.count(&tables).await, 1);
}

#[tokio::test]
async fn a_table_that_lost_a_column_is_refused() {
    let place = Place::new();
    place.ledger().await;
    place.execute("ALTER TABLE ichido.claims DROP COLUMN over_at").await;
    let text = refusal(&place.url()).await;
    assert!(text.contains("no column over_at of type bigint"), "{text}");
}

#[tokio::test]
async fn a_role_that_may_not_create_is_told_what_it_lacks() {
    let (place, role) = (Place::new(), format!("r_{}", unique()));
    place.execute(&format!("CREATE ROLE {role} LOGIN")).await;
    let url = server("ICHIDO_TEST_POSTGRES_URL").replace("postgres@", &format!("{role}@"));
    let url = format!("{url}?schema={}", place.schema);
    let error = Postgres::connect(&url).await.unwrap_err();
    let Kind::Denied(text) = error.kind() else { panic!("{error:?}") };
    assert!(text.contains("CREATE on the database") && text.contains("ichido ledger init"), "{text}");

    // What the text says is enough.
    place.ledger().await;
    let schema = &place.schema;
    let grants = format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"
    );
    place.execute(&grants).await;
    granted(&Postgres::connect(&url).await.unwrap(), &key("granted")).await;
}

#[tokio::test]
async fn tables_that_vanish_are_a_matter_of_layout() {
    let place = Place::new();
    let ledger = place.ledger().await;
    place.execute("DROP TABLE ichido.claims").await;
    let error = ledger.get(&key("k")).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Schema(text) if text.contains("ichido ledger init")), "{error:?}");
}
