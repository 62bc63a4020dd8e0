use crate::{Served, server};

async fn subject() -> Served {
    Served { url: server("ICHIDO_TEST_POSTGRES_URL"), mark_granularity_ms: 1 }
}

ichido_ledger::conformance!(subject);
