//! The life of a process: its disk refuses when it is told to, and it dies when it is told to.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use ichido_delivery::disk::{Faults, Op};

/// What happens at a coming operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Which operations count; all of them without it.
    pub(crate) op: Option<Op>,
    /// How many of them go well before.
    pub(crate) after: u32,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// kill -9.
    Death,
    /// The disk says this, so many times.
    Error(io::ErrorKind, u32),
}

/// How a process that dies unwinds.
pub(crate) struct Died;

#[derive(Debug, Default)]
pub(crate) struct Life(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    plans: Vec<Plan>,
}

impl Life {
    pub(crate) fn plan(&self, plan: Plan) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).plans.push(plan);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_over
    }

    /// The process dies here: nothing of it is done any more.
    pub(crate) fn end(&self) -> ! {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        std::panic::resume_unwind(Box::new(Died))
    }

    fn meets(&self, op: Op) -> Option<End> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return Some(End::Death);
        }
        let mut met = None;
        for plan in state.plans.iter_mut().filter(|plan| plan.op.is_none_or(|meant| meant == op)) {
            match (plan.after, &mut plan.end) {
                (1.., _) => plan.after -= 1,
                (0, End::Death) => met = Some(End::Death),
                (0, End::Error(_, 0)) => {}
                (0, End::Error(kind, left)) => {
                    *left -= 1;
                    met = met.or(Some(End::Error(*kind, 1)));
                }
            }
        }
        met
    }
}

impl Faults for Life {
    fn before(&self, op: Op, _path: &Path) -> io::Result<()> {
        match self.meets(op) {
            None => Ok(()),
            Some(End::Error(kind, _)) => Err(kind.into()),
            Some(End::Death) => self.end(),
        }
    }
}
