//! Counts by the hour, as they are judged.

/// What happened within one hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events and keyed requests that arrived, whatever was decided.
    pub arrivals: u32,
    /// Those whose key was known already.
    pub duplicates: u32,
    /// Decisions that a claim is in doubt.
    pub doubts: u32,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        self.arrivals = self.arrivals.saturating_add(other.arrivals);
        self.duplicates = self.duplicates.saturating_add(other.duplicates);
        self.doubts = self.doubts.saturating_add(other.doubts);
    }
}

/// The hours of one source, route or instance.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The route.
    pub route: String,
    /// The source or the instance. Empty for a whole route, and for decisions without a source.
    pub name: String,
    /// The hours from the first one. `None`: unknown, because it was not recorded in full.
    pub hours: Vec<Option<Counts>>,
}

impl Series {
    pub(super) fn at(&self, at: usize) -> Option<Counts> {
        self.hours.get(at).copied().flatten()
    }

    pub(super) fn arrivals(&self, at: usize) -> Option<f64> {
        self.at(at).map(|counts| f64::from(counts.arrivals))
    }
}

/// Everything that was counted.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The first hour of every series, in hours since 1970.
    pub first_hour: u64,
    /// By route and source.
    pub sources: Vec<Series>,
    /// By route.
    pub routes: Vec<Series>,
    /// By route and instance.
    pub instances: Vec<Series>,
}

impl Observed {
    /// The hours that are known, of all that were counted.
    pub fn known_hours(&self) -> usize {
        let known = |series: &Series| series.hours.iter().flatten().count();
        self.routes.iter().map(known).max().unwrap_or(0)
    }
}
