use ichido_testkit::required_env;

use super::Served;

async fn subject() -> Served {
    Served::at(format!("{}?cluster=true", required_env("ICHIDO_TEST_REDIS_CLUSTER_URL")))
}

ichido_ledger::conformance!(subject);
