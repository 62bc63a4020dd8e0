//! Judges the hours of one source, and the doubts of one route.

use std::cell::OnceCell;
use std::ops::Range;

use super::WINDOW_HOURS;
use super::baseline::{
    Baseline, Basis, DAY, HOURS_MIN, WEEK, count_scale, deviation, median, share_scale, upper_percentile,
};
use super::evidence::{Evidence, Raw};
use super::kind::Kind;
use super::series::Series;
use crate::record::OTHER;

/// A source with fewer arrivals in all its hours is not judged.
pub(super) const ARRIVALS_MIN: u64 = 100;
/// The difference from the usual volume below which nothing is reported.
const VOLUME_MIN: f64 = 30.0;
/// An hour with more arrivals than this many times the usual is unusual, and one with fewer than the other share of it.
const MORE: f64 = 2.5;
const FEWER: f64 = 1.0 / 3.0;
/// How far beyond the values that were seen at this hour.
const BEYOND: f64 = 1.25;
/// Arrivals that must have been expected during a silence for each standard deviation of the limit, if the source varies no more than
/// chance makes it.
const SILENCE_MIN: f64 = 3.0;
/// Hours with fewer arrivals have no share of duplicates.
const SHARE_ARRIVALS_MIN: u32 = 20;
const DUPLICATES_MIN: u32 = 15;
const DUPLICATES_ARRIVALS_MIN: u32 = 30;
/// The share of duplicates must be larger than usual by this much.
const SHARE_DIFFERENCE_MIN: f64 = 0.1;
/// And this many times as large as usual.
const SHARE_MORE: f64 = 2.0;
const DOUBTS_MIN: f64 = 5.0;
const DOUBTS_FACTOR: f64 = 3.0;

pub(super) fn judge<'a>(series: &'a Series, hours: Range<usize>, limit: f64, found: &mut Vec<Raw<'a>>) {
    let Some(source) = Source::new(series, limit) else { return };
    for at in hours.start.max(source.first + WEEK)..hours.end.min(series.hours.len()) {
        // Who is counted together with others changes from hour to hour, and so does their number.
        if series.name != OTHER {
            found.extend(source.volume(at));
            found.extend(source.silence(at));
        }
        found.extend(source.duplicates(at));
    }
}

struct Source<'a> {
    series: &'a Series,
    limit: f64,
    /// The first hour in which anything arrived.
    first: usize,
    /// How far each hour was from its own baseline.
    residuals: OnceCell<Vec<Option<f64>>>,
}

impl<'a> Source<'a> {
    fn new(series: &'a Series, limit: f64) -> Option<Self> {
        let arrivals = |at: &usize| series.at(*at).is_some_and(|counts| counts.arrivals > 0);
        let first = (0..series.hours.len()).find(arrivals)?;
        let all: u64 = series.hours.iter().flatten().map(|counts| u64::from(counts.arrivals)).sum();
        (all >= ARRIVALS_MIN).then(|| Self { series, limit, first, residuals: OnceCell::new() })
    }

    fn raw(&self, kind: Kind, at: usize, observed: f64, usual: f64, evidence: Evidence) -> Raw<'a> {
        Raw { kind, series: self.series, at, observed, usual, evidence }
    }

    fn baseline(&self, at: usize) -> Option<Baseline> {
        Baseline::at(at, self.first, |hour| self.series.arrivals(hour))
    }

    /// How much more this source varied before an hour than by chance alone: a ratio of standard deviations.
    fn spread(&self, at: usize) -> f64 {
        let residuals = self.residuals.get_or_init(|| {
            let residual = |at: usize| {
                let centre = self.baseline(at)?.centre;
                self.series.arrivals(at).map(|arrivals| (count_scale(arrivals) - count_scale(centre)).abs())
            };
            let judged = self.first + WEEK..self.series.hours.len();
            (0..judged.end).map(|at| if judged.contains(&at) { residual(at) } else { None }).collect()
        });
        let mut before = at.saturating_sub(WINDOW_HOURS)..at;
        let distances = |hours: &mut dyn Iterator<Item = usize>| -> f64 {
            let mut distances: Vec<f64> = hours.filter_map(|hour| *residuals.get(hour)?).collect();
            deviation(&mut distances).unwrap_or(1.0)
        };
        // A nightly job may vary more than the quiet hours around it.
        let same_hour = distances(&mut before.clone().filter(|hour| hour % DAY == at % DAY));
        distances(&mut before).max(same_hour).max(1.0)
    }

    fn volume(&self, at: usize) -> Option<Raw<'a>> {
        let arrivals = self.series.arrivals(at)?;
        let usual = self.baseline(at)?;
        let is_more = arrivals - usual.high >= VOLUME_MIN
            && arrivals >= usual.high * MORE
            && arrivals > usual.largest * BEYOND;
        // No arrivals at all are a silence.
        let is_fewer = arrivals > 0.0
            && usual.low >= VOLUME_MIN
            && arrivals <= usual.low * FEWER
            && arrivals * BEYOND < usual.smallest;
        let (nearest, outermost) = match (is_more, is_fewer) {
            (true, _) => (usual.high, usual.largest),
            (_, true) => (usual.low, usual.smallest),
            (false, false) => return None,
        };
        let distance = |from: f64| (count_scale(arrivals) - count_scale(from)).abs();
        let limit = self.limit * self.spread(at);
        let evidence = Evidence::Volume(usual.basis);
        (distance(nearest) > limit && distance(outermost) > limit / 2.0)
            .then(|| self.raw(Kind::Volume, at, arrivals, usual.centre, evidence))
    }

    /// Reports a silence in the hour in which it becomes long enough, so only once. A source that is silent for a week has ended.
    fn silence(&self, at: usize) -> Option<Raw<'a>> {
        if self.series.arrivals(at)? > 0.0 {
            return None;
        }
        let expected = |at: usize| {
            let usual = self.baseline(at)?;
            self.series.arrivals(at)?;
            Some(match usual.basis {
                Basis::HourOfWeek => usual.low,
                // A weekend must not be compared with working days alone.
                Basis::HourOfDay | Basis::Overall => usual.smallest,
            })
        };
        let last = expected(at).filter(|expected| *expected > 0.0)?;
        let is_silent = |at: &usize| self.series.arrivals(*at).is_none_or(|arrivals| arrivals == 0.0);
        let since = (self.first..=at).rev().take_while(is_silent).last()?;
        if at - since >= WEEK {
            return None;
        }
        let before: f64 = (since..at).filter_map(expected).sum();
        // The same for every hour of the silence, so that exactly one of them is the one.
        let spread = self.spread(since);
        let min = SILENCE_MIN * self.limit * spread * spread;
        (before < min && before + last >= min)
            .then(|| self.raw(Kind::Silence, at, 0.0, before + last, Evidence::Silence { since }))
    }

    fn duplicates(&self, at: usize) -> Option<Raw<'a>> {
        let counts = self.series.at(at)?;
        if counts.duplicates < DUPLICATES_MIN || counts.arrivals < DUPLICATES_ARRIVALS_MIN {
            return None;
        }
        let share = |at: usize| {
            let counts = self.series.at(at)?;
            let share = f64::from(counts.duplicates) / f64::from(counts.arrivals);
            (counts.arrivals >= SHARE_ARRIVALS_MIN).then_some(share)
        };
        let (now, usual) = (share(at)?, Baseline::at(at, self.first, share)?);
        if now - usual.high < SHARE_DIFFERENCE_MIN
            || now < usual.high * SHARE_MORE
            || now <= usual.largest * BEYOND
        {
            return None;
        }
        let before = self.first.max(at.saturating_sub(WINDOW_HOURS))..at;
        let mut scaled: Vec<f64> = before.filter_map(share).map(share_scale).collect();
        let centre = median(&mut scaled)?;
        scaled.iter_mut().for_each(|value| *value = (*value - centre).abs());
        let spread = deviation(&mut scaled)?.max(f64::from(counts.arrivals).sqrt().recip());
        let evidence = Evidence::Duplicates { arrivals: counts.arrivals };
        (share_scale(now) - share_scale(usual.high) > self.limit * spread)
            .then(|| self.raw(Kind::Duplicates, at, now, usual.centre, evidence))
    }
}

/// Doubts are rare and have no rhythm, so every hour is compared with all hours before it.
pub(super) fn judge_doubts<'a>(
    series: &'a Series,
    hours: Range<usize>,
    limit: f64,
    found: &mut Vec<Raw<'a>>,
) {
    let Some(first) = (0..series.hours.len()).find(|at| series.at(*at).is_some_and(|one| one.arrivals > 0))
    else {
        return;
    };
    for at in hours.start.max(first + WEEK)..hours.end.min(series.hours.len()) {
        let doubts = |at: usize| series.at(at).map(|counts| f64::from(counts.doubts));
        let Some(now) = doubts(at).filter(|doubts| *doubts >= DOUBTS_MIN) else { continue };
        let mut before: Vec<f64> =
            (first.max(at.saturating_sub(WINDOW_HOURS))..at).filter_map(doubts).collect();
        let Some(usual) = median(&mut before).filter(|_| before.len() >= HOURS_MIN) else { continue };
        let most = upper_percentile(&mut before);
        let centre = count_scale(usual);
        let mut distances: Vec<f64> = before.iter().map(|one| (count_scale(*one) - centre).abs()).collect();
        let spread = deviation(&mut distances).unwrap_or(1.0).max(1.0);
        let is_far = count_scale(now) - centre > limit * spread;
        if is_far && now >= usual * DOUBTS_FACTOR && now > most * BEYOND {
            let evidence = Evidence::Doubts;
            found.push(Raw { kind: Kind::InDoubt, series, at, observed: now, usual, evidence });
        }
    }
}
