//! What callers and operators ask of the store, and what they are answered.

use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Index, Key, MarkKey, Nonce, Record, Resolution, Resolved, Settle, Settled,
    Token,
};
use tokio::sync::oneshot;

use crate::Result;
use crate::log::Call;

/// The keys of a run: first those of claims, then those of marks.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) claims: Vec<Key>,
    pub(super) marks: Vec<MarkKey>,
}

impl Keys {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.claims.len() + self.marks.len()
    }

    /// The number of a mark's key among all keys.
    pub(super) fn of_mark(&self, mark: usize) -> usize {
        self.claims.len() + mark
    }

    pub(super) fn is_claim(&self, key: usize) -> bool {
        key < self.claims.len()
    }

    pub(super) fn index(&self, key: usize) -> Index {
        match self.claims.get(key) {
            Some(claim) => claim.index(),
            None => self.marks[key - self.claims.len()].index(),
        }
    }
}

/// A request. Keys are given by their numbers.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Claim { key: usize, request: ClaimRequest },
    Settle { key: usize, token: Token, action: Settle },
    Resolve { key: usize, resolution: Resolution },
    Adopt { key: usize, record: Box<Record> },
    Mark { marks: Vec<(usize, mark::Request)> },
    Remove { claims: Vec<(usize, Token)>, marks: Vec<(usize, Nonce)> },
    ForgetMark { key: usize, nonce: Nonce },
    EraseMark { key: usize, nonce: Nonce },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Claim(Claim),
    Settled(Settled),
    Resolved(Resolved),
    Adopted(Adopted),
    Marked(Vec<Mark>),
    Removed,
    Forgotten(Forgotten),
    Erased(Erased),
}

/// Where the answer will arrive.
#[derive(Debug)]
pub(super) enum Pending {
    Claim(oneshot::Receiver<Result<Claim>>),
    Settle(oneshot::Receiver<Result<Settled>>),
    Resolve(oneshot::Receiver<Result<Resolved>>),
    Adopt(oneshot::Receiver<Result<Adopted>>),
    Mark(oneshot::Receiver<Result<Vec<Mark>>>),
    Remove(oneshot::Receiver<Result<()>>),
    ForgetMark(oneshot::Receiver<Result<Forgotten>>),
    EraseMark(oneshot::Receiver<Result<Erased>>),
}

impl Request {
    /// The request as a call for the writer.
    pub(super) fn call(&self, keys: &Keys) -> (Call, Pending) {
        match self.clone() {
            Self::Claim { request, .. } => {
                let (reply, pending) = oneshot::channel();
                (Call::Claim { request, reply }, Pending::Claim(pending))
            }
            Self::Settle { key, token, action } => {
                let (reply, pending) = oneshot::channel();
                let key = keys.claims[key].clone();
                (Call::Settle { key, token, action, reply }, Pending::Settle(pending))
            }
            Self::Resolve { key, resolution } => {
                let (reply, pending) = oneshot::channel();
                let key = keys.claims[key].clone();
                (Call::Resolve { key, resolution, reply }, Pending::Resolve(pending))
            }
            Self::Adopt { record, .. } => {
                let (reply, pending) = oneshot::channel();
                (Call::Adopt { record, reply }, Pending::Adopt(pending))
            }
            Self::Mark { marks } => {
                let (reply, pending) = oneshot::channel();
                let requests = marks.into_iter().map(|(_, request)| request).collect();
                (Call::Mark { requests, reply }, Pending::Mark(pending))
            }
            Self::Remove { claims, marks } => {
                let (reply, pending) = oneshot::channel();
                let claims = claims.into_iter().map(|(key, token)| (keys.index(key), token)).collect();
                let marks = marks.into_iter().map(|(key, nonce)| (keys.index(key), nonce)).collect();
                (Call::Remove { claims, marks, reply }, Pending::Remove(pending))
            }
            Self::ForgetMark { key, nonce } => {
                let (reply, pending) = oneshot::channel();
                (Call::ForgetMark { index: keys.index(key), nonce, reply }, Pending::ForgetMark(pending))
            }
            Self::EraseMark { key, nonce } => {
                let (reply, pending) = oneshot::channel();
                (Call::EraseMark { index: keys.index(key), nonce, reply }, Pending::EraseMark(pending))
            }
        }
    }
}

impl Pending {
    /// The answer. `None` if the call was dropped without one.
    pub(super) fn take(self) -> Option<Result<Answer>> {
        fn take<T>(
            mut pending: oneshot::Receiver<Result<T>>,
            answer: fn(T) -> Answer,
        ) -> Option<Result<Answer>> {
            pending.try_recv().ok().map(|result| result.map(answer))
        }
        match self {
            Self::Claim(pending) => take(pending, Answer::Claim),
            Self::Settle(pending) => take(pending, Answer::Settled),
            Self::Resolve(pending) => take(pending, Answer::Resolved),
            Self::Adopt(pending) => take(pending, Answer::Adopted),
            Self::Mark(pending) => take(pending, Answer::Marked),
            Self::Remove(pending) => take(pending, |()| Answer::Removed),
            Self::ForgetMark(pending) => take(pending, Answer::Forgotten),
            Self::EraseMark(pending) => take(pending, Answer::Erased),
        }
    }
}
