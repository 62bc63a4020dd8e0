use crate::{Served, options, server};

async fn subject() -> Served {
    let url =
        format!("dynamodb://conformance?region=us-east-1&endpoint={}", server("ICHIDO_TEST_DYNAMODB_URL"));
    static TABLE: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    TABLE
        .get_or_init(async || {
            let backend = ichido_ledger::open_backend(&url, &options()).await.expect("the server is up");
            backend.init().await.expect("the table is created");
        })
        .await;
    Served { url, mark_granularity_ms: 1000 }
}

ichido_ledger::conformance!(subject);
