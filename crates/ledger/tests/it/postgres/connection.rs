//! Servers that refuse, do not exist, or are not trusted.

use std::io::{Read, Write};

use ichido_ledger::postgres::Postgres;
use ichido_ledger::{Backend, Effect, Error, Kind, Maintain, Survives};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::{free_port, required_env, tcp_server};

use super::TestSchema;
use crate::support::full_text;

async fn failure(url: &str) -> Error {
    let error = Postgres::connect(url).await.unwrap_err();
    assert!(!full_text(&error).contains("hunter2"), "{error:?}");
    assert_eq!(error.effect(), Effect::None);
    error
}

/// A server that sends one message to every client that logs in.
fn server_that_sends(message: Vec<u8>) -> String {
    let address = tcp_server::start(move |mut client| {
        let mut startup = [0; 1024];
        let _ = client.read(&mut startup);
        let _ = client.write_all(&message);
        let _ = client.read(&mut startup);
    });
    format!("postgres://user:hunter2@{address}/db?sslmode=disable")
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag], &length[..], body].concat()
}

#[tokio::test]
async fn wrong_password_is_denied_and_not_echoed() {
    let told = b"SFATAL\0C28P01\0Mpassword authentication failed for user \"user\"\0\0";
    let error = failure(&server_that_sends(message(b'E', told))).await;
    assert!(matches!(error.kind(), Kind::Denied(text) if text.contains("password authentication failed")));
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_missing_password_is_denied() {
    let url = server_that_sends(message(b'R', &3_u32.to_be_bytes())).replace(":hunter2", "");
    let error = failure(&url).await;
    assert!(matches!(error.kind(), Kind::Denied(text) if text.contains("requires a password")), "{error:?}");
}

#[tokio::test]
async fn server_without_free_connections_throttles() {
    let told = b"SFATAL\0C53300\0Msorry, too many clients already\0\0";
    let error = failure(&server_that_sends(message(b'E', told))).await;
    assert_eq!(*error.kind(), Kind::Throttled);
}

#[tokio::test]
async fn unreachable_server_is_unavailable() {
    let error = failure(&format!("postgres://user:hunter2@127.0.0.1:{}/db", free_port())).await;
    assert_eq!(*error.kind(), Kind::Unavailable);
}

#[tokio::test]
async fn missing_database_is_a_settings_error() {
    let url = required_env("ICHIDO_TEST_POSTGRES_URL");
    let (server, _database) = url.rsplit_once('/').unwrap();
    let error = failure(&format!("{server}/nowhere")).await;
    assert!(matches!(error.kind(), Kind::Settings(text) if text.contains("nowhere")), "{error:?}");
}

/// Whether the server reports TLS for a ledger's connections.
async fn is_encrypted(parameters: &str) -> bool {
    let (test_schema, name) = (TestSchema::new(), format!("tls-{}", unique()));
    let host = if parameters.contains("sslrootcert") { "localhost" } else { "127.0.0.1" };
    let url = test_schema.url().replace("127.0.0.1", host);
    let _ledger = Postgres::connect(&format!("{url}&application_name={name}&{parameters}")).await.unwrap();
    let sql =
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1";
    test_schema.client().await.query_one(sql, &[&name]).await.unwrap().get(0)
}

#[tokio::test]
async fn tls_is_used_as_the_url_says() {
    let authority = format!("sslrootcert={}", required_env("ICHIDO_TEST_CA_FILE"));
    assert!(is_encrypted(&format!("sslmode=require&{authority}")).await);
    assert!(is_encrypted(&format!("sslmode=verify-full&{authority}")).await);
    assert!(is_encrypted(&format!("sslmode=prefer&{authority}")).await);
    assert!(is_encrypted("sslmode=prefer").await);
    assert!(!is_encrypted("sslmode=disable").await);
}

#[tokio::test]
async fn untrusted_server_is_refused() {
    let error = failure(&format!("{}&sslmode=require", TestSchema::new().url())).await;
    assert!(matches!(error.kind(), Kind::Settings(_)), "{error:?}");
    let error = failure(&format!("{}&sslmode=require&sslrootcert=/dev/null", TestSchema::new().url())).await;
    assert!(matches!(error.kind(), Kind::Settings(text) if text.contains("no certificate")), "{error:?}");
    let error = failure(&server_that_sends(b"N".to_vec()).replace("disable", "require")).await;
    assert!(matches!(error.kind(), Kind::Settings(_)), "{error:?}");
}

#[tokio::test]
async fn weak_settings_cause_warnings_and_weaker_guarantees() {
    let test_schema = TestSchema::new();
    let strong = test_schema.ledger().await;
    assert_eq!(strong.check().await.unwrap(), Vec::<String>::new());
    assert!(strong.capabilities().survives.contains(&Survives::PowerLoss));
    let url = format!("{}&options=-c%20synchronous_commit%3Doff", test_schema.url());
    let weak = Postgres::connect(&url).await.unwrap();
    let warnings = weak.check().await.unwrap();
    assert!(warnings.iter().any(|warning| warning.contains("synchronous_commit")), "{warnings:?}");
    assert!(!weak.capabilities().survives.contains(&Survives::PowerLoss));
    let url = format!("{}&options=-c%20default_transaction_read_only%3Don", test_schema.url());
    let error = Postgres::connect(&url).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Settings(text) if text.contains("read-only")), "{error:?}");
}

#[tokio::test]
async fn closed_ledger_returns_closed_and_shows_no_password() {
    let url = TestSchema::new().url().replace("postgres@", "postgres:hunter2@");
    let ledger = Postgres::connect(&url).await.unwrap();
    assert!(!format!("{ledger:?}").contains("hunter2"));
    ledger.close().await.unwrap();
    assert_eq!(*ledger.check().await.unwrap_err().kind(), Kind::Closed);
}
