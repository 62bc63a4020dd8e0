//! Tasks for the housekeeper: what operators wait for.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Swept;
use crate::log::{Reply, View};

/// A task for the housekeeper.
pub(super) enum Task {
    /// Removes about this many expired records.
    Sweep { limit: u64, reply: Reply<Swept> },
    /// Reclaims everything that can be reclaimed.
    Compact { reply: Reply<Swept> },
    /// Anything that needs the files to stay where they are.
    Run(Box<dyn FnOnce(&View) + Send>),
}

/// Tasks that operators wait for.
#[derive(Default)]
pub(super) struct Tasks {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tasks")
    }
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    is_awake: bool,
    is_closed: bool,
}

impl Tasks {
    /// Adds a task. A task that is added after the end is dropped, and so is its reply.
    pub(super) fn push(&self, task: Task) {
        let mut state = self.lock();
        if !state.is_closed {
            state.tasks.push_back(task);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// There is something to do.
    pub(super) fn wake(&self) {
        self.lock().is_awake = true;
        self.changed.notify_one();
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.tasks.clear();
        drop(state);
        self.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Waits for a task, or for a while. `None` is the end.
    pub(super) fn next(&self, at_most: Duration) -> Option<Option<Task>> {
        let state = self.lock();
        let is_idle = |state: &mut State| state.tasks.is_empty() && !state.is_awake && !state.is_closed;
        let waited = self.changed.wait_timeout_while(state, at_most, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.is_awake = false;
        if state.is_closed { None } else { Some(state.tasks.pop_front()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
