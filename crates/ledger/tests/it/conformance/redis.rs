use ichido_testkit::required_env;

use super::Served;

async fn subject() -> Served {
    Served::at(required_env("ICHIDO_TEST_REDIS_URL"))
}

ichido_ledger::conformance!(subject);
