use crate::{Held, options};

async fn subject() -> Held {
    Held(ichido_ledger::open_backend("memory:", &options()).await.unwrap())
}

ichido_ledger::conformance!(subject);
