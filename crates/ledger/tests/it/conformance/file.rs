use ichido_testkit::ledger_server::open;

use super::Held;

/// The directory lives as long as the subject.
struct Stored {
    held: Held,
    _dir: tempfile::TempDir,
}

#[async_trait::async_trait]
impl ichido_ledger::conformance::Subject for Stored {
    async fn instance(&self, clock: std::sync::Arc<dyn ichido_core::Clock>) -> ichido_ledger::Ledger {
        self.held.instance(clock).await
    }
}

async fn subject() -> Stored {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file:{}", dir.path().join("ledger").display());
    Stored { held: Held(open(&url).await), _dir: dir }
}

ichido_ledger::conformance!(subject);
