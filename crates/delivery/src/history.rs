//! What happened to earlier requests of a batch, as far as it tells what a 409 means.

use ichido_core::Timestamp;

/// What happened to earlier requests of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// When a request was last sent in full whose answer was lost: the connection closed, or the process died.
    pub answer_lost: Option<Timestamp>,
    /// When a request that was sent in full last timed out: the receiver may still be processing it.
    pub timed_out: Option<Timestamp>,
    /// Another program put the file into the spool, and has tried to send it before.
    pub spooled_elsewhere: bool,
}

impl History {
    /// Adds what became of a request.
    pub(crate) fn add(&mut self, request: Request, at: Timestamp) {
        match request {
            Request::Begun | Request::AnswerLost => self.answer_lost = self.answer_lost.max(Some(at)),
            Request::TimedOut => self.timed_out = self.timed_out.max(Some(at)),
            Request::Settled => {}
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// It may be under way.
    Begun,
    /// It was answered, or not sent in full: there is nothing more to know of it.
    Settled,
    /// It was sent in full, and its answer was lost.
    AnswerLost,
    /// It was sent in full, and there was no answer in time.
    TimedOut,
}

impl Request {
    pub(crate) const ALL: [Self; 4] = [Self::Begun, Self::Settled, Self::AnswerLost, Self::TimedOut];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Request::Begun => "begun",
            Request::Settled => "settled",
            Request::AnswerLost => "answer-lost",
            Request::TimedOut => "timed-out",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn only_what_may_have_been_processed_is_evidence() {
        let mut history = History::default();
        history.add(Request::Settled, AT);
        assert_eq!(history, History::default());
        history.add(Request::TimedOut, AT);
        history.add(Request::TimedOut, Timestamp(1));
        assert_eq!((history.timed_out, history.answer_lost), (Some(AT), None), "the latest counts");
        history.add(Request::Begun, AT);
        assert_eq!(history.answer_lost, Some(AT));
    }
}
