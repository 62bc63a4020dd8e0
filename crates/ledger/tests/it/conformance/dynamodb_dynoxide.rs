use tokio::sync::OnceCell;

use super::Served;

async fn subject() -> Served {
    static TABLE: OnceCell<()> = OnceCell::const_new();
    Served::dynamodb("ICHIDO_TEST_DYNAMODB_URL", &TABLE).await
}

ichido_ledger::conformance!(subject);
