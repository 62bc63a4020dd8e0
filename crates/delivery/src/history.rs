//! What happened to earlier requests of a batch, as far as it helps to interpret a 409.

use ichido_core::Timestamp;

/// What happened to earlier requests of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// When a request was last sent completely and its response was lost: the connection closed, or the process
    /// crashed.
    pub response_lost: Option<Timestamp>,
    /// When a completely sent request last timed out: the receiver may still be processing it.
    pub timed_out: Option<Timestamp>,
    /// Another program put the file into the spool after trying to send it.
    pub spooled_elsewhere: bool,
}

impl History {
    /// Adds the state of one request.
    pub(crate) fn add(&mut self, request: RequestState, at: Timestamp) {
        match request {
            RequestState::Started | RequestState::ResponseLost => {
                self.response_lost = self.response_lost.max(Some(at))
            }
            RequestState::TimedOut => self.timed_out = self.timed_out.max(Some(at)),
            RequestState::Settled => {}
        }
    }
}

/// The last known state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// It may have been sent.
    Started,
    /// It was answered or not sent completely: it proves nothing.
    Settled,
    /// It was sent completely, and its response was lost.
    ResponseLost,
    /// It was sent completely, and no response arrived in time.
    TimedOut,
}

impl RequestState {
    pub(crate) const ALL: [Self; 4] = [Self::Started, Self::Settled, Self::ResponseLost, Self::TimedOut];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RequestState::Started => "begun",
            RequestState::Settled => "settled",
            RequestState::ResponseLost => "answer-lost",
            RequestState::TimedOut => "timed-out",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn only_requests_that_may_have_been_processed_are_evidence() {
        let mut history = History::default();
        history.add(RequestState::Settled, AT);
        assert_eq!(history, History::default());
        history.add(RequestState::TimedOut, AT);
        history.add(RequestState::TimedOut, Timestamp(1));
        assert_eq!((history.timed_out, history.response_lost), (Some(AT), None), "the latest counts");
        history.add(RequestState::Started, AT);
        assert_eq!(history.response_lost, Some(AT));
    }
}
