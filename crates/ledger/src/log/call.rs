//! Calls for the writer, and their answers, which wait until the commit is durable.

use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Index, Key, Nonce, Outcome, Record, Resolution, Resolved, Settle, Settled,
    State, Token,
};
use tokio::sync::oneshot;

use super::compaction::{Drop, Move};
use crate::{Error, Result, Swept};

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// A call for the writer.
#[derive(Debug)]
pub(crate) enum Call {
    Claim {
        request: ClaimRequest,
        reply: Reply<Claim>,
    },
    Settle {
        key: Key,
        token: Token,
        action: Settle,
        reply: Reply<Settled>,
    },
    Resolve {
        key: Key,
        resolution: Resolution,
        reply: Reply<Resolved>,
    },
    Adopt {
        record: Box<Record>,
        reply: Reply<Adopted>,
    },
    Mark {
        requests: Vec<mark::Request>,
        reply: Reply<Vec<Mark>>,
    },
    /// Removes claims that still have these tokens, and marks that still have these nonces.
    Remove {
        claims: Vec<(Index, Token)>,
        marks: Vec<(Index, Nonce)>,
        reply: Reply<()>,
    },
    /// Forgets the mark that an operator saw.
    ForgetMark {
        index: Index,
        nonce: Nonce,
        reply: Reply<Forgotten>,
    },
    /// Erases what callers wrote in the mark that was seen.
    EraseMark {
        index: Index,
        nonce: Nonce,
        reply: Reply<Erased>,
    },
    /// Copies records of the oldest segment to the end of the log.
    Move {
        records: Vec<Move>,
        reply: Reply<()>,
    },
    /// Drops the oldest segment.
    Drop {
        segment: Drop,
        reply: Reply<Swept>,
    },
    /// Starts a new segment, so that the present one can be dropped later.
    Rotate {
        reply: Reply<()>,
    },
}

impl Call {
    /// About how many bytes its records have, without what every record has.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Call::Settle { action: Settle::Complete(outcome), .. } => outcome.size(),
            Call::Resolve { resolution, .. } => resolution.outcome().map_or(0, Outcome::size),
            Call::Adopt { record, .. } => match &record.state {
                State::Done(done) => done.outcome.size(),
                State::Running | State::InDoubt(_) => 0,
            },
            Call::Mark { requests, .. } => requests.len() * 256,
            Call::Move { records, .. } => records.iter().map(|record| record.body.len()).sum(),
            Call::Claim { .. }
            | Call::Settle { .. }
            | Call::Remove { .. }
            | Call::ForgetMark { .. }
            | Call::EraseMark { .. }
            | Call::Drop { .. }
            | Call::Rotate { .. } => 0,
        }
    }

    /// Answers with an error.
    pub(crate) fn fail(self, error: Error) {
        match self {
            Call::Claim { reply, .. } => send(reply, Err(error)),
            Call::Settle { reply, .. } => send(reply, Err(error)),
            Call::Resolve { reply, .. } => send(reply, Err(error)),
            Call::Adopt { reply, .. } => send(reply, Err(error)),
            Call::Mark { reply, .. } => send(reply, Err(error)),
            Call::Remove { reply, .. } | Call::Move { reply, .. } | Call::Rotate { reply } => {
                send(reply, Err(error));
            }
            Call::ForgetMark { reply, .. } => send(reply, Err(error)),
            Call::EraseMark { reply, .. } => send(reply, Err(error)),
            Call::Drop { reply, .. } => send(reply, Err(error)),
        }
    }
}

/// Work on the segments, between two commits.
#[derive(Debug)]
pub(crate) enum Maintenance {
    Drop(Drop, Reply<Swept>),
    Rotate(Reply<()>),
}

/// An answer, and where it goes.
#[derive(Debug)]
pub(crate) enum Answer {
    Claim(Reply<Claim>, Claim),
    Settle(Reply<Settled>, Settled),
    Resolve(Reply<Resolved>, Resolved),
    Adopt(Reply<Adopted>, Adopted),
    Mark(Reply<Vec<Mark>>, Vec<Mark>),
    Forget(Reply<Forgotten>, Forgotten),
    Erase(Reply<Erased>, Erased),
    Nothing(Reply<()>, ()),
}

impl Answer {
    /// The commit is durable. A caller that is gone does not matter.
    pub(crate) fn give(self) {
        match self {
            Answer::Claim(reply, answer) => send(reply, Ok(answer)),
            Answer::Settle(reply, answer) => send(reply, Ok(answer)),
            Answer::Resolve(reply, answer) => send(reply, Ok(answer)),
            Answer::Adopt(reply, answer) => send(reply, Ok(answer)),
            Answer::Mark(reply, answer) => send(reply, Ok(answer)),
            Answer::Forget(reply, answer) => send(reply, Ok(answer)),
            Answer::Erase(reply, answer) => send(reply, Ok(answer)),
            Answer::Nothing(reply, ()) => send(reply, Ok(())),
        }
    }

    /// The commit failed.
    pub(crate) fn fail(self, error: Error) {
        match self {
            Answer::Claim(reply, _) => send(reply, Err(error)),
            Answer::Settle(reply, _) => send(reply, Err(error)),
            Answer::Resolve(reply, _) => send(reply, Err(error)),
            Answer::Adopt(reply, _) => send(reply, Err(error)),
            Answer::Mark(reply, _) => send(reply, Err(error)),
            Answer::Forget(reply, _) => send(reply, Err(error)),
            Answer::Erase(reply, _) => send(reply, Err(error)),
            Answer::Nothing(reply, ()) => send(reply, Err(error)),
        }
    }
}

/// Answers a call. A caller that is gone does not matter.
pub(crate) fn send<T>(reply: Reply<T>, answer: Result<T>) {
    drop(reply.send(answer));
}
