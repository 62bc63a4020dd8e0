//! A batch of which something is refused: smaller parts tell what.

use std::collections::HashMap;
use std::ops::Range;

use crate::bisect::{Act, Bisect, middle};
use crate::exchange::Exchange;
use crate::receipt::Ending;
use crate::record_results::Fate;
use crate::store::{Held, Stored};
use crate::verdict::Verdict;

use super::attempt::Tried;
use super::{Job, Sender};

/// The parts that exist, by their place in the whole.
type Parts = HashMap<(usize, usize), (Option<Held>, Stored)>;

impl Sender {
    /// Sends parts until each refused record stands alone.
    pub(super) async fn split(&mut self, job: Job, exchange: &Exchange) {
        let whole = job.stored.clone();
        let records = whole.batch.records().len();
        let at = middle(&(0..records));
        tracing::warn!(
            batchIdempotencyKey = whole.batch.key(),
            records,
            error = self.words(exchange),
            "refused: trying smaller parts"
        );
        let mut parts = Parts::new();
        if !self.cut(&mut parts, &whole, &(0..records), at, (job.held.as_ref(), &whole)) {
            return self.keep(job);
        }
        self.leave_receipt(&job, Ending::Split, None);
        let mut bisect = Bisect::new(records);
        while let Some(range) = bisect.next_part() {
            let Some((held, stored)) = parts.remove(&(range.start, range.end)) else { continue };
            let mut part = self.job(held, stored, job.origin);
            let (exchange, verdict) = match self.request(&mut part).await {
                Tried::Ended(exchange, verdict) => (exchange, verdict),
                Tried::Shut | Tried::Stopped => {
                    self.keep(part);
                    break;
                }
            };
            let acts = if verdict == Verdict::Split {
                self.lane_works();
                let words = self.words(&exchange);
                part.stored.note(self.parts.clock.now(), &words);
                parts.insert((range.start, range.end), (part.held.take(), part.stored));
                bisect.refused(range, &words)
            } else {
                // A part that was not refused goes on like any batch. Boxed: it is sent by the same functions.
                Box::pin(self.proceed(part, &exchange, verdict)).await;
                bisect.passed()
            };
            for act in acts {
                self.act(&mut parts, &whole, &job, act);
            }
        }
        // Held, stopped, or the disk refused: what is left waits.
        for (held, stored) in parts.into_values() {
            let part = self.job(held, stored, job.origin);
            self.keep(part);
        }
    }

    fn act(&mut self, parts: &mut Parts, whole: &Stored, job: &Job, act: Act) {
        match act {
            Act::Divide(range, at) => {
                if let Some((held, stored)) = parts.remove(&(range.start, range.end))
                    && !self.cut(parts, whole, &range, at, (held.as_ref(), &stored))
                {
                    parts.insert((range.start, range.end), (held, stored));
                }
            }
            Act::Refuse(record) => {
                if let Some((held, stored)) = parts.remove(&(record, record + 1)) {
                    self.count_failed(job.origin);
                    let part = self.job(held, stored, job.origin);
                    self.fail(part);
                }
            }
            Act::Hold => {
                let last = parts.values().find_map(|(_, stored)| stored.last_error.clone());
                self.hold_for(&format!("every record is refused alike: {}", last.unwrap_or_default()));
            }
        }
    }

    /// Divides a part; says whether the disk let it.
    fn cut(
        &mut self,
        parts: &mut Parts,
        whole: &Stored,
        range: &Range<usize>,
        at: usize,
        (held, stored): (Option<&Held>, &Stored),
    ) -> bool {
        let batches = vec![whole.batch.part(range.start..at), whole.batch.part(at..range.end)];
        let Some(written) = self.divide(stored, held, batches) else { return false };
        let places = [(range.start, at), (at, range.end)];
        parts.extend(places.into_iter().zip(written));
        true
    }

    /// The receiver has said of each record what became of it.
    pub(super) fn sort(&mut self, mut job: Job, exchange: &Exchange, fates: &[Fate]) {
        let places = |wanted: fn(&Fate) -> bool| -> Vec<usize> {
            fates.iter().enumerate().filter(|(_, fate)| wanted(fate)).map(|(place, _)| place).collect()
        };
        let again = places(|fate| matches!(fate, Fate::Retry));
        let refused = places(|fate| matches!(fate, Fate::Refused(_)));
        let arrived = fates.len() - again.len() - refused.len();
        self.counters.records_delivered += arrived as u64;
        tracing::warn!(
            batchIdempotencyKey = job.stored.batch.key(),
            arrived,
            again = again.len(),
            refused = refused.len(),
            error = self.words(exchange),
            "a result for each record"
        );
        let mut batches: Vec<_> = refused.iter().map(|place| job.stored.batch.pick(&[*place])).collect();
        if !again.is_empty() {
            batches.push(job.stored.batch.pick(&again));
        }
        let whole = job.stored.clone();
        let Some(mut parts) = self.divide(&whole, job.held.as_ref(), batches) else {
            job.retries += 1;
            return self.keep(job);
        };
        self.leave_receipt(&job, Ending::Split, None);
        let rest = if again.is_empty() { None } else { parts.pop() };
        for (place, (held, mut stored)) in refused.into_iter().zip(parts) {
            if let Fate::Refused(words) = &fates[place] {
                let words = self.parts.transport.token().mask().text(words);
                stored.note(self.parts.clock.now(), &words);
            }
            self.count_failed(job.origin);
            let part = self.job(held, stored, job.origin);
            self.fail(part);
        }
        if let Some((held, stored)) = rest {
            let mut part = self.job(held, stored, job.origin);
            (part.retries, part.slowed) = (job.retries, job.slowed);
            let charged = part.retries - part.slowed;
            match charged < self.rules.policy.max_retries {
                true => {
                    let pause = self.rules.policy.pause(charged, self.chance());
                    part.retries += 1;
                    self.wait(part, pause);
                }
                false => {
                    self.count_failed(part.origin);
                    part.stored.note(self.parts.clock.now(), "some records were to be sent again later");
                    self.charge(part);
                }
            }
        } else if arrived == fates.len() {
            self.count_success(job.origin);
        }
    }

    /// The end of a pass that did not bring everything across.
    fn charge(&mut self, mut part: Job) {
        if let crate::next_action::Origin::Spool { retry_count } = part.origin {
            part.stored.retry_count = retry_count.saturating_add(1);
            if part.stored.retry_count >= self.rules.policy.max_spool_retries {
                return self.fail(part);
            }
        }
        self.park(part);
    }
}
