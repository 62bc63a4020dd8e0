//! The physical reference: an append-only log with group commit and an index in memory, and nothing else.
//!
//! Its calls reach the writer and return as in the ledger: a queue that is drained at once, and a oneshot reply.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use bytes::Bytes;
use ichido_core::{ClaimRequest, Index, Token};
use tokio::sync::oneshot;

use crate::records::{CLAIM_BYTES, completion_bytes};

struct Call {
    request: ClaimRequest,
    /// Absent for a claim.
    outcome: Option<Bytes>,
    /// Receives whether the key was new.
    reply: oneshot::Sender<bool>,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    asleep: bool,
    closed: bool,
}

/// The log.
pub(crate) struct RawLog {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl RawLog {
    /// Starts an empty log.
    pub(crate) fn start(path: &Path) -> Self {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let mut file = File::create(path).unwrap();
        std::thread::spawn({
            let shared = shared.clone();
            move || write(&shared, &mut file)
        });
        Self { shared }
    }

    /// Claims a key; true for the first claim.
    pub(crate) async fn claim(&self, request: &ClaimRequest) -> bool {
        self.call(request, None).await
    }

    /// Completes a claim; false if there is none.
    pub(crate) async fn complete(&self, request: &ClaimRequest, outcome: Bytes) -> bool {
        !self.call(request, Some(outcome)).await
    }

    async fn call(&self, request: &ClaimRequest, outcome: Option<Bytes>) -> bool {
        let (reply, answer) = oneshot::channel();
        self.push(Call { request: request.clone(), outcome, reply });
        answer.await.unwrap()
    }

    fn push(&self, call: Call) {
        let mut state = self.shared.0.lock().unwrap();
        state.calls.push(call);
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.shared.1.notify_one();
        }
    }
}

impl Drop for RawLog {
    fn drop(&mut self) {
        self.shared.0.lock().unwrap().closed = true;
        self.shared.1.notify_one();
    }
}

fn write(shared: &(Mutex<State>, Condvar), file: &mut File) {
    let mut index: HashMap<Index, Token> = HashMap::new();
    let mut buffer = Vec::new();
    loop {
        let mut state = shared.0.lock().unwrap();
        state.asleep = true;
        state = shared.1.wait_while(state, |state| state.calls.is_empty() && !state.closed).unwrap();
        state.asleep = false;
        if state.closed {
            return;
        }
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        buffer.clear();
        let mut replies = Vec::with_capacity(calls.len());
        for Call { request, outcome, reply } in calls {
            let is_new = index.insert(request.key.index(), request.token).is_none();
            encode(&request, outcome.as_deref(), &mut buffer);
            replies.push((reply, is_new));
        }
        file.write_all(&buffer).unwrap();
        file.sync_data().unwrap();
        for (reply, is_new) in replies {
            let _ = reply.send(is_new);
        }
    }
}

fn encode(request: &ClaimRequest, outcome: Option<&[u8]>, buffer: &mut Vec<u8>) {
    let start = buffer.len();
    buffer.extend(request.key.index().as_bytes());
    buffer.extend(request.token.as_bytes());
    let length = if let Some(outcome) = outcome {
        buffer.extend(outcome);
        completion_bytes(outcome.len())
    } else {
        buffer.extend(request.nonce.as_bytes());
        buffer.extend(request.key.text().as_bytes());
        CLAIM_BYTES
    };
    buffer.resize(start + length, 0);
}
