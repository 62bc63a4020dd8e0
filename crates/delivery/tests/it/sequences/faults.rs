//! Injects disk errors and crashes into a process.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ichido_delivery::disk::{Faults, Op};

/// A fault in a later operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    /// Which operations count. `None`: all of them.
    pub(crate) op: Option<Op>,
    /// How many of them succeed before.
    pub(crate) after: u32,
    pub(crate) kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FaultKind {
    /// kill -9.
    Crash,
    /// The disk returns this error, this many times.
    Error(io::ErrorKind, u32),
}

/// The panic payload of a crash.
pub(crate) struct Crashed;

#[derive(Debug, Default)]
pub(crate) struct FaultInjector(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    has_crashed: bool,
    faults: Vec<Fault>,
}

impl FaultInjector {
    pub(crate) fn add(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).faults.push(fault);
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).has_crashed
    }

    /// Crashes the process: nothing is done any more.
    pub(crate) fn crash(&self) -> ! {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).has_crashed = true;
        std::panic::resume_unwind(Box::new(Crashed))
    }

    fn next_fault(&self, op: Op) -> Option<FaultKind> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.has_crashed {
            return Some(FaultKind::Crash);
        }
        let mut met = None;
        for fault in state.faults.iter_mut().filter(|fault| fault.op.is_none_or(|meant| meant == op)) {
            match (fault.after, &mut fault.kind) {
                (1.., _) => fault.after -= 1,
                (0, FaultKind::Crash) => met = Some(FaultKind::Crash),
                (0, FaultKind::Error(_, 0)) => {}
                (0, FaultKind::Error(kind, left)) => {
                    *left -= 1;
                    met = met.or(Some(FaultKind::Error(*kind, 1)));
                }
            }
        }
        met
    }
}

impl Faults for FaultInjector {
    fn before(&self, op: Op, _path: &Path) -> io::Result<()> {
        match self.next_fault(op) {
            None => Ok(()),
            Some(FaultKind::Error(kind, _)) => Err(kind.into()),
            Some(FaultKind::Crash) => self.crash(),
        }
    }
}
