//! One run: steps of callers, an operator, a sweeper, readers and the clock, interrupted by crashes and faults.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use super::options::RunOptions;
use super::report::{Failure, Report};
use super::requests::{Pending, Request};
use super::store::{Check, Process, Store};
use super::workload::LEASE_MS;
use crate::log::{Call, Effort, Next};
use crate::{Effect, Result as LedgerResult, Swept};

/// Runs a seed.
pub fn run(seed: u64, options: &RunOptions) -> Result<Report, Failure> {
    let mut step = 0;
    let result = catch_unwind(AssertUnwindSafe(|| run_steps(seed, options, &mut step)));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(format!("the store panicked: {text}"))
    });
    result.map_err(|description| Failure { seed, step, planted: options.planted, description })
}

fn run_steps(seed: u64, options: &RunOptions, step: &mut u64) -> Check<Report> {
    let mut store = Store::new(seed, options)?;
    store.start()?;
    while store.crashes() < options.crashes && *step < options.steps {
        *step += 1;
        store.step()?;
    }
    store.finish()?;
    let (counts, mut report) = (store.disk.counts(), store.report);
    (report.power_losses, report.kills, report.faults) = (counts.power_losses, counts.kills, counts.faults);
    (report.runs, report.steps) = (1, *step);
    Ok(report)
}

impl Store {
    fn crashes(&self) -> u64 {
        let counts = self.disk.counts();
        counts.power_losses + counts.kills
    }

    fn step(&mut self) -> Check {
        match self.random.below(100) {
            0..50 => self.batch()?,
            50..64 => self.compact()?,
            64..74 => self.run_job()?,
            74..77 => self.prepare_spare()?,
            77..80 => self.sync_high_water()?,
            80..88 => self.pass_time(),
            88..94 => self.read_some()?,
            94..96 => {
                let (view, now) = (self.view()?, self.now()?);
                self.check_index(&view, now)?;
            }
            96..98 => self.schedule_fault(),
            98 => return self.restart(),
            _ => self.disk.clear_faults(),
        }
        if self.disk.is_crashed() {
            return self.restart();
        }
        if self.process()?.engine.failure().is_some() {
            let (view, now) = (self.view()?, self.now()?);
            self.compare_all(&view, now)?;
            return self.reopen();
        }
        Ok(())
    }

    /// Several calls at once, sometimes together with what compaction wants.
    fn batch(&mut self) -> Check {
        let now = self.now()?;
        let mut calls = Vec::new();
        let mut pending = Vec::new();
        for _ in 0..=self.random.below(8) {
            let request = self.workload.draw(&self.keys, &self.model, now, &mut self.random);
            let (call, answer) = request.call(&self.keys);
            calls.push(call);
            pending.push((request, answer));
        }
        let maintenance = match self.random.one_in(2) {
            true => self.process()?.next.take().map(Maintenance::of),
            false => None,
        };
        let maintenance = maintenance.map(|(call, maintenance)| {
            calls.insert(self.random.below(calls.len() + 1), call);
            maintenance
        });
        self.run_calls(calls, pending, maintenance)
    }

    fn run_calls(
        &mut self,
        calls: Vec<Call>,
        pending: Vec<(Request, Pending)>,
        maintenance: Option<Maintenance>,
    ) -> Check {
        let (now, faults) = (self.now()?, self.faults());
        let process = self.process()?;
        process.engine.run(calls, now);
        let last = process.engine.last_commit();
        let (mut acknowledged, mut unknown) = (0_u32, 0_u32);
        for (request, answer) in pending {
            let answer = answer.take().ok_or_else(|| format!("{request:?} was not answered"))?;
            match answer {
                Ok(answer) => {
                    let expected = self.model.decide(&request, now);
                    if answer != expected {
                        return Err(format!(
                            "{request:?} was answered {answer:?} instead of {expected:?} at {now}"
                        ));
                    }
                    acknowledged += 1;
                }
                Err(error) => {
                    self.justify(&error, faults, "a call")?;
                    if error.effect() == Effect::Unknown {
                        self.model.decide(&request, now);
                        unknown += 1;
                    }
                }
            }
        }
        if let Some(maintenance) = maintenance {
            self.maintained(maintenance, faults)?;
        }
        match (acknowledged, unknown) {
            (1.., 1..) => return Err("a batch was acknowledged in part".into()),
            (_, 1..) if self.process()?.engine.failure().is_none() => {
                return Err("a call failed, but the store goes on".into());
            }
            (_, 1..) => return Ok(()),
            (_, 0) => {}
        }
        self.model.acknowledge();
        self.report.batches += 1;
        if last > self.acknowledged.0 {
            self.acknowledged = (last, now);
        }
        Ok(())
    }

    /// The answer of a call of the sweeper.
    fn maintained(&mut self, maintenance: Maintenance, faults: u64) -> Check {
        let process = self.process()?;
        let error = match maintenance {
            Maintenance::Move(mut answer) => {
                let answer = answer.try_recv().map_err(|_| "a move was not answered")?;
                let error = answer.err();
                self.report.moves += u64::from(error.is_none());
                error
            }
            Maintenance::Drop(segment, mut answer) => {
                let answer = answer.try_recv().map_err(|_| "a drop was not answered")?;
                let is_gone = process.engine.view().segment(segment).is_none();
                self.report.dropped += u64::from(is_gone && answer.is_ok());
                answer.err()
            }
        };
        match error {
            Some(error) => self.justify(&error, faults, "reclaiming space"),
            None => Ok(()),
        }
    }

    /// The sweeper looks for the next thing to do, or gives it to the writer.
    pub(super) fn compact(&mut self) -> Check {
        let (now, faults) = (self.now()?, self.faults());
        let effort = *self.random.pick(&[Effort::Normal, Effort::Normal, Effort::Sweep, Effort::Compact]);
        let is_rotated = self.random.one_in(40);
        let process = self.process()?;
        if is_rotated {
            let (reply, mut answer) = oneshot::channel();
            process.engine.run(vec![Call::Rotate { reply }], now);
            let answer = answer.try_recv().map_err(|_| "a rotation was not answered")?;
            self.acknowledge_commit(now)?;
            return answer.or_else(|error| self.justify(&error, faults, "starting a segment"));
        }
        if let Some(next) = process.next.take() {
            let (call, maintenance) = Maintenance::of(next);
            return self.run_calls(vec![call], Vec::new(), Some(maintenance));
        }
        let Process { engine, compaction, next, .. } = process;
        match compaction.next(engine.view(), now, effort) {
            Ok(Next::Nothing) => Ok(()),
            Ok(found) => {
                *next = Some(found);
                Ok(())
            }
            Err(error) => self.justify(&error, faults, "looking for space to reclaim"),
        }
    }

    fn acknowledge_commit(&mut self, now: ichido_core::Timestamp) -> Check {
        let engine = &self.process()?.engine;
        if engine.failure().is_none() && engine.last_commit() > self.acknowledged.0 {
            self.acknowledged = (self.process()?.engine.last_commit(), now);
        }
        Ok(())
    }

    /// A failed job is not repeated: the next opening does its work.
    pub(super) fn run_job(&mut self) -> Check {
        if self.random.one_in(8) {
            return self.run_earlier_job();
        }
        let (view, faults) = (self.view()?, self.faults());
        let job = view.jobs().pop_front();
        match job.map(|job| job.run(&view)) {
            Some(Err(error)) if self.faults() == faults && !self.disk.is_crashed() => {
                Err(format!("a job failed although the disk did not: {error}"))
            }
            Some(Err(_) | Ok(())) | None => Ok(()),
        }
    }

    /// The sweeper has not noticed yet that the store was opened again.
    fn run_earlier_job(&mut self) -> Check {
        let Some(earlier) = self.process()?.earlier.clone() else { return Ok(()) };
        // Its files may be gone by now.
        match earlier.next_job() {
            Some(job) => drop(job.run(&earlier)),
            None => {
                drop(earlier.prepare_spare());
                self.process()?.earlier = None;
            }
        }
        Ok(())
    }

    fn prepare_spare(&mut self) -> Check {
        let (view, faults) = (self.view()?, self.faults());
        if !view.spares.is_empty() {
            return Ok(());
        }
        match view.prepare_spare() {
            Err(error) if self.faults() == faults && !self.disk.is_crashed() => {
                Err(format!("a file was not prepared although the disk did not fail: {error}"))
            }
            Err(_) | Ok(()) => Ok(()),
        }
    }

    /// A failure only makes the high-water mark weaker.
    fn sync_high_water(&mut self) -> Check {
        let synced = self.process()?.engine.sync_mark();
        drop(synced);
        Ok(())
    }

    fn pass_time(&mut self) {
        const DAY_MS: u64 = 86_400_000;
        let ms = match self.random.below(20) {
            0..12 => self.random.below_u64(50),
            12..15 => self.random.below_u64(3_000),
            15..17 => self.random.below_u64(2 * LEASE_MS),
            17 => self.random.below_u64(DAY_MS / 12),
            18 => self.random.below_u64(2 * DAY_MS),
            _ => self.random.below_u64(80 * DAY_MS),
        };
        self.clock.advance(ms);
    }

    fn read_some(&mut self) -> Check {
        let (view, now) = (self.view()?, self.now()?);
        for _ in 0..4 {
            let key = self.random.below(self.keys.len());
            self.compare(&view, key, now)?;
        }
        Ok(())
    }
}

/// A call of the sweeper that was given to the writer.
pub(super) enum Maintenance {
    Move(oneshot::Receiver<LedgerResult<()>>),
    Drop(u32, oneshot::Receiver<LedgerResult<Swept>>),
}

impl Maintenance {
    /// What compaction wants, as a call.
    fn of(next: Next) -> (Call, Self) {
        match next {
            Next::Drop(segment) => {
                let (reply, answer) = oneshot::channel();
                let id = segment.segment;
                (Call::Drop { segment, reply }, Self::Drop(id, answer))
            }
            Next::Move(records) => {
                let (reply, answer) = oneshot::channel();
                (Call::Move { records, reply }, Self::Move(answer))
            }
            Next::Nothing => {
                let (reply, answer) = oneshot::channel();
                (Call::Move { records: Vec::new(), reply }, Self::Move(answer))
            }
        }
    }
}
