//! A finding as numbers, before it is described.

use super::baseline::Basis;
use super::kind::Kind;
use super::series::Series;

/// A finding before it is described.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub(super) kind: Kind,
    pub(super) series: &'a Series,
    /// The hour, from the first one of the series.
    pub(super) at: usize,
    pub(super) observed: f64,
    pub(super) usual: f64,
    pub(super) evidence: Evidence,
}

/// The numbers that only some sentences need.
#[derive(Clone, Copy, Debug)]
pub(super) enum Evidence {
    Volume(Basis),
    Duplicates { arrivals: u32 },
    Silence { since: usize },
    Doubts,
    DuplicatesOfInstance { arrivals: u32 },
    DoubtsOfInstance { arrivals: u32 },
    ShareOfInstance,
}
