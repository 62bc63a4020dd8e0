//! The model of a mark.

use ichido_core::mark::{self, Mark};
use ichido_core::{Metadata, Nonce};

use super::model::{Bounds, Model};
use super::operation::{End, MarkOperation, short};
use super::time_window::TimeWindow;

/// What is remembered of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State(Option<Seen>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Seen {
    nonce: Nonce,
    metadata: Metadata,
    retention_us: u64,
    marked: TimeWindow,
}

impl Model for State {
    type Call = mark::Request;
    type Answer = Mark;

    fn after(&self, operation: &MarkOperation, bounds: &Bounds) -> Vec<Self> {
        let (request, now) = (&operation.call, TimeWindow::of(operation));
        let fresh = |now: TimeWindow| {
            State(Some(Seen {
                nonce: request.nonce,
                metadata: request.metadata.clone(),
                retention_us: request.retention_ms.saturating_mul(1_000),
                marked: now,
            }))
        };
        let answer = match &operation.end {
            End::Answered { answer, .. } => Some(answer),
            End::Open => None,
        };
        let says_new = matches!(answer, None | Some(Mark::New));
        let Some(seen) = &self.0 else { return if says_new { vec![fresh(now)] } else { Vec::new() } };

        let mut after = Vec::new();
        // Expired: everyone is new.
        if let Some((now, _)) = seen.marked.run_out(seen.retention_us, now, bounds)
            && says_new
        {
            after.push(fresh(now));
        }
        // Remembered: the first caller is new again, all others see its metadata.
        let kept_us = seen.retention_us.saturating_add(bounds.mark_granularity_us);
        let within = seen.marked.still_within(kept_us, now, bounds);
        if let (Some((now, marked)), Some(answer)) = (within, answer) {
            let is_legal = match answer {
                Mark::New => seen.nonce == request.nonce,
                Mark::Seen { metadata, .. } => seen.nonce != request.nonce && *metadata == seen.metadata,
            };
            let marked = marked.no_later_than(now);
            if is_legal && !marked.is_empty() {
                after.push(State(Some(Seen { marked, ..seen.clone() })));
            }
        }
        after
    }

    fn describe(operation: &MarkOperation) -> String {
        let request = &operation.call;
        let answer = match &operation.end {
            End::Answered { answer: Mark::New, .. } => "new".to_owned(),
            End::Answered { answer: Mark::Seen { metadata, .. }, .. } => format!("seen {}", pairs(metadata)),
            End::Open => "?".to_owned(),
        };
        let (nonce, kept) = (short(request.nonce.as_bytes()), request.retention_ms);
        format!("mark nonce {nonce} {} kept {kept} ms -> {answer}", pairs(&request.metadata))
    }
}

fn pairs(metadata: &Metadata) -> String {
    format!("{:?}", metadata.iter().collect::<Vec<_>>())
}
