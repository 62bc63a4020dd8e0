//! A log with group commit and nothing else: the least that must be written to keep the same promise.
//!
//! As in the ledger, a caller wakes the writer only if it sleeps.

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

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    asleep: bool,
}

/// A handle to the thread that writes.
#[derive(Clone)]
pub struct Log(Arc<(Mutex<State>, Condvar)>);

impl Log {
    pub fn start(path: &Path) -> Self {
        let log = Self(Arc::default());
        let (mut file, shared) = (File::create(path).unwrap(), log.0.clone());
        std::thread::spawn(move || {
            let mut buffer = Vec::new();
            loop {
                let calls = wait_for_calls(&shared);
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
        self.push((record, written));
        synced.await.unwrap();
    }

    fn push(&self, call: Call) {
        let mut state = self.0.0.lock().unwrap();
        state.calls.push(call);
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.0.1.notify_one();
        }
    }
}

fn wait_for_calls((state, called): &(Mutex<State>, Condvar)) -> Vec<Call> {
    let mut state = state.lock().unwrap();
    state.asleep = true;
    state = called.wait_while(state, |state| state.calls.is_empty()).unwrap();
    state.asleep = false;
    std::mem::take(&mut state.calls)
}
