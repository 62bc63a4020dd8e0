use ichido_testkit::ledger_server::open;

use super::Held;

async fn subject() -> Held {
    Held(open("memory:").await)
}

ichido_ledger::conformance!(subject);
