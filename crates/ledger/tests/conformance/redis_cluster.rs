use crate::{Served, server};

async fn subject() -> Served {
    Served {
        url: format!("{}?cluster=true", server("ICHIDO_TEST_REDIS_CLUSTER_URL")),
        mark_granularity_ms: 1,
    }
}

ichido_ledger::conformance!(subject);
