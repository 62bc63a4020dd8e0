//! Answers that wait for their commit.

use ichido_core::mark::Mark;
use ichido_core::{Adopted, Claim, Resolved, Settled};

use super::queue::Reply;
use crate::{Error, Result, Swept};

/// An answer, and where it goes.
#[derive(Debug)]
pub(super) enum Answer {
    Claim(Reply<Claim>, Claim),
    Settle(Reply<Settled>, Settled),
    Resolve(Reply<Resolved>, Resolved),
    Adopt(Reply<Adopted>, Adopted),
    Mark(Reply<Vec<Mark>>, Vec<Mark>),
    Remove(Reply<()>, ()),
    Sweep(Reply<Swept>, Swept),
}

impl Answer {
    /// The commit holds: tells the caller. A caller that has gone is no concern.
    pub(super) fn give(self) {
        match self {
            Answer::Claim(reply, answer) => send(reply, Ok(answer)),
            Answer::Settle(reply, answer) => send(reply, Ok(answer)),
            Answer::Resolve(reply, answer) => send(reply, Ok(answer)),
            Answer::Adopt(reply, answer) => send(reply, Ok(answer)),
            Answer::Mark(reply, answer) => send(reply, Ok(answer)),
            Answer::Remove(reply, answer) => send(reply, Ok(answer)),
            Answer::Sweep(reply, answer) => send(reply, Ok(answer)),
        }
    }

    /// The commit failed.
    pub(super) fn fail(self, error: Error) {
        match self {
            Answer::Claim(reply, _) => send(reply, Err(error)),
            Answer::Settle(reply, _) => send(reply, Err(error)),
            Answer::Resolve(reply, _) => send(reply, Err(error)),
            Answer::Adopt(reply, _) => send(reply, Err(error)),
            Answer::Mark(reply, _) => send(reply, Err(error)),
            Answer::Remove(reply, ()) => send(reply, Err(error)),
            Answer::Sweep(reply, _) => send(reply, Err(error)),
        }
    }
}

fn send<T>(reply: Reply<T>, answer: Result<T>) {
    drop(reply.send(answer));
}
