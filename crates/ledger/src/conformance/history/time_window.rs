//! A moment that is only known to lie within a window.

use super::model::Bounds;
use super::operation::{End, Operation};

/// Microseconds of the recorder's clock, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TimeWindow {
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

impl TimeWindow {
    /// The window in which an operation took effect.
    pub(super) fn of<C, A>(operation: &Operation<C, A>) -> Self {
        let to_us = match operation.end {
            End::Answered { at_us, .. } => at_us,
            End::Open => u64::MAX,
        };
        Self { from_us: operation.asked_us, to_us }
    }

    /// Whether no moment is left.
    pub(super) fn is_empty(self) -> bool {
        self.from_us > self.to_us
    }

    /// This window, knowing that the moment is no later than the end of `other`.
    pub(super) fn no_later_than(self, other: TimeWindow) -> Self {
        Self { to_us: self.to_us.min(other.to_us), ..self }
    }

    /// What is known of `now` and of `self` if `now` is before `self` plus `period_us`.
    pub(super) fn still_within(
        self,
        period_us: u64,
        now: TimeWindow,
        bounds: &Bounds,
    ) -> Option<(TimeWindow, TimeWindow)> {
        let forgiven_us = period_us.saturating_add(bounds.tolerance_us);
        let now = TimeWindow { to_us: now.to_us.min(self.to_us.saturating_add(forgiven_us)), ..now };
        let begun = TimeWindow { from_us: self.from_us.max(now.from_us.saturating_sub(forgiven_us)), ..self };
        (!now.is_empty() && !begun.is_empty()).then_some((now, begun))
    }

    /// What is known of `now` and of `self` if `now` is at or after `self` plus `period_us`.
    pub(super) fn run_out(
        self,
        period_us: u64,
        now: TimeWindow,
        bounds: &Bounds,
    ) -> Option<(TimeWindow, TimeWindow)> {
        let least_us = period_us.saturating_sub(bounds.tolerance_us);
        let now = TimeWindow { from_us: now.from_us.max(self.from_us.saturating_add(least_us)), ..now };
        let begun = TimeWindow { to_us: self.to_us.min(now.to_us.saturating_sub(least_us)), ..self };
        (!now.is_empty() && !begun.is_empty()).then_some((now, begun))
    }
}
