//! Compares each instance with the others on the same route, in the same hour.

use std::ops::Range;

use super::WINDOW_HOURS;
use super::baseline::{HOURS_MIN, WEEK, count_scale, deviation, median, upper_percentile};
use super::evidence::{Evidence, Raw};
use super::kind::Kind;
use super::series::{Counts, Series};

/// Arrivals at an instance, and at its siblings, that a comparison needs.
const ARRIVALS_MIN: u32 = 50;
/// The same for the hours before, with which the difference is compared.
const ARRIVALS_BEFORE_MIN: u32 = 20;
const DUPLICATES_MIN: u32 = 15;
const DUPLICATES_DIFFERENCE_MIN: f64 = 0.1;
const DOUBTS_MIN: u32 = 5;
const DOUBTS_DIFFERENCE_MIN: f64 = 0.02;
/// A share must be this many times as large as at the siblings.
const MORE: f64 = 2.0;
/// How far beyond the differences that were seen before.
const BEYOND: f64 = 1.25;
/// Arrivals that an instance would have had with its usual share.
const EXPECTED_MIN: f64 = 30.0;
/// An instance that gets a smaller part of its usual share differs.
const FEWER: f64 = 0.25;

pub(super) fn judge<'a>(instances: &'a [Series], hours: Range<usize>, limit: f64, found: &mut Vec<Raw<'a>>) {
    let mut rest = instances;
    while let Some(first) = rest.first() {
        // Instances are sorted by route.
        let end = rest.iter().position(|one| one.route != first.route).unwrap_or(rest.len());
        let (route, others) = rest.split_at(end);
        rest = others;
        if route.len() < 2 {
            continue;
        }
        let totals = totals(route);
        let Some(known) = totals.iter().position(|total| total.arrivals > 0) else { continue };
        for own in route {
            let instance = Instance { own, totals: &totals, limit };
            for at in hours.start.max(known + WEEK)..hours.end.min(totals.len()) {
                found.extend(
                    instance.duplicates(at).or_else(|| instance.doubts(at)).or_else(|| instance.share(at)),
                );
            }
        }
    }
}

fn totals(route: &[Series]) -> Vec<Counts> {
    let mut totals = vec![Counts::default(); route.iter().map(|one| one.hours.len()).max().unwrap_or(0)];
    for one in route {
        for (total, counts) in totals.iter_mut().zip(&one.hours) {
            total.add(counts.unwrap_or_default());
        }
    }
    totals
}

struct Instance<'a, 'b> {
    own: &'a Series,
    totals: &'b [Counts],
    limit: f64,
}

impl<'a> Instance<'a, '_> {
    fn raw(&self, at: usize, observed: f64, usual: f64, evidence: Evidence) -> Option<Raw<'a>> {
        Some(Raw { kind: Kind::Instance, series: self.own, at, observed, usual, evidence })
    }

    /// What it counted, and what its siblings did.
    fn pair(&self, at: usize, arrivals_min: u32) -> Option<(Counts, Counts)> {
        let (own, total) = (self.own.at(at)?, self.totals.get(at)?);
        let siblings = Counts {
            arrivals: total.arrivals.saturating_sub(own.arrivals),
            duplicates: total.duplicates.saturating_sub(own.duplicates),
            doubts: total.doubts.saturating_sub(own.doubts),
        };
        (own.arrivals >= arrivals_min && siblings.arrivals >= arrivals_min).then_some((own, siblings))
    }

    fn duplicates(&self, at: usize) -> Option<Raw<'a>> {
        let (own, siblings) =
            self.differs(at, |counts| counts.duplicates, DUPLICATES_MIN, DUPLICATES_DIFFERENCE_MIN)?;
        let arrivals = self.own.at(at)?.arrivals;
        self.raw(at, own, siblings, Evidence::DuplicatesOfInstance { arrivals })
    }

    fn doubts(&self, at: usize) -> Option<Raw<'a>> {
        let (own, siblings) = self.differs(at, |counts| counts.doubts, DOUBTS_MIN, DOUBTS_DIFFERENCE_MIN)?;
        let arrivals = self.own.at(at)?.arrivals;
        self.raw(at, own, siblings, Evidence::DoubtsOfInstance { arrivals })
    }

    /// The share of something in the arrivals of the instance and of its siblings, if it is larger there by far, and was not before.
    fn differs(
        &self,
        at: usize,
        part: impl Fn(Counts) -> u32,
        min: u32,
        difference_min: f64,
    ) -> Option<(f64, f64)> {
        let (own, siblings) = self.pair(at, ARRIVALS_MIN)?;
        let share =
            |counts: Counts| f64::from(part(counts).min(counts.arrivals)) / f64::from(counts.arrivals);
        let (own_share, siblings_share) = (share(own), share(siblings));
        let difference = own_share - siblings_share;
        if part(own) < min || difference < difference_min || own_share < siblings_share * MORE {
            return None;
        }
        let [n, m] = [own, siblings].map(|counts| f64::from(counts.arrivals));
        let pooled = (own_share * n + siblings_share * m) / (n + m);
        let by_chance = (pooled * (1.0 - pooled) * (n.recip() + m.recip())).sqrt();
        let mut before: Vec<f64> = (at.saturating_sub(WINDOW_HOURS)..at)
            .filter_map(|at| self.pair(at, ARRIVALS_BEFORE_MIN))
            .map(|(own, siblings)| share(own) - share(siblings))
            .collect();
        // A new instance is compared with its siblings alone.
        let centre = median(&mut before).unwrap_or(0.0);
        let most = upper_percentile(&mut before).max(0.0);
        before.iter_mut().for_each(|value| *value = (*value - centre).abs());
        let spread = deviation(&mut before).unwrap_or(0.0).max(by_chance);
        (difference - centre.max(0.0) > self.limit * spread && difference > most * BEYOND)
            .then_some((own_share, siblings_share))
    }

    /// It runs, and gets a small part of the arrivals that it usually gets.
    fn share(&self, at: usize) -> Option<Raw<'a>> {
        let share = |at: usize| {
            let (own, total) = (self.own.at(at)?, self.totals.get(at)?);
            (total.arrivals >= ARRIVALS_MIN)
                .then(|| (f64::from(own.arrivals), f64::from(own.arrivals) / f64::from(total.arrivals)))
        };
        let (own, now) = share(at)?;
        let mut before: Vec<f64> =
            (at.saturating_sub(WINDOW_HOURS)..at).filter_map(|at| Some(-share(at)?.1)).collect();
        if before.len() < HOURS_MIN {
            return None;
        }
        let usual = -median(&mut before)?;
        let least = -upper_percentile(&mut before);
        let expected = usual * f64::from(self.totals.get(at)?.arrivals);
        let differs = expected >= EXPECTED_MIN
            && own <= expected * FEWER
            && now * BEYOND < least
            && count_scale(expected) - count_scale(own) > self.limit;
        if differs { self.raw(at, own, expected, Evidence::ShareOfInstance) } else { None }
    }
}
