//! A log with group commit and nothing else: the least that must be written to keep the same promise.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use tokio::sync::oneshot;

/// As long as the ledger's records: a claim, an outcome with the upstream's headers, and a mark.
pub const CLAIM: [u8; 200] = [1; 200];
pub const OUTCOME: [u8; 520] = [2; 520];
pub const MARK: [u8; 150] = [3; 150];

type Call = (&'static [u8], oneshot::Sender<()>);

/// A handle to the thread that writes.
#[derive(Clone)]
pub struct Log(Arc<(Mutex<Vec<Call>>, Condvar)>);

impl Log {
    pub fn start(path: &Path) -> Self {
        let log = Self(Arc::default());
        let (mut file, shared) = (File::create(path).unwrap(), log.0.clone());
        std::thread::spawn(move || {
            let mut buffer = Vec::new();
            loop {
                let calls = shared.1.wait_while(shared.0.lock().unwrap(), |calls| calls.is_empty());
                let calls = std::mem::take(&mut *calls.unwrap());
                buffer.clear();
                calls.iter().for_each(|(record, _)| buffer.extend(*record));
                file.write_all(&buffer).unwrap();
                file.sync_data().unwrap();
                calls.into_iter().for_each(|(_, written)| {
                    let _ = written.send(());
                });
            }
        });
        log
    }

    /// Returns when the record is on the disk.
    pub async fn commit(&self, record: &'static [u8]) {
        let (written, synced) = oneshot::channel();
        self.0.0.lock().unwrap().push((record, written));
        self.0.1.notify_one();
        synced.await.unwrap();
    }
}
