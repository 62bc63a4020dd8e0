//! The simulated store: its disk, its process, and what it must contain.

use std::cell::Cell;
use std::sync::Arc;

use ichido_core::{ManualClock, SteadyTime, Timestamp};

use super::disk::{Fault, FaultRates, Operation, SimulatedDisk};
use super::model::{Model, Version};
use super::options::RunOptions;
use super::random::Random;
use super::report::Report;
use super::requests::Keys;
use super::workload::{LEASE_MS, Workload};
use crate::log::{Compaction, Engine, Next, Opened, Options, Reason, View, open, verify};
use crate::{Error, Kind};

/// Why a run failed, in a sentence.
pub(super) type Check<T = ()> = Result<T, String>;

/// After this many failed openings in a row, nothing disturbs the next one.
const ATTEMPTS: usize = 6;
const DAY_MS: u64 = 86_400_000;

/// One run.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) random: Random,
    pub(super) disk: SimulatedDisk,
    pub(super) clock: Arc<ManualClock>,
    options: Options,
    pub(super) keys: Keys,
    pub(super) model: Model,
    pub(super) workload: Workload,
    pub(super) process: Option<Process>,
    /// The number of the last opening by a new process.
    epoch: u64,
    /// The last acknowledged commit and its time.
    pub(super) acknowledged: (u64, Timestamp),
    pub(super) report: Report,
}

/// A process that has the store open.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) engine: Engine,
    pub(super) time: SteadyTime,
    pub(super) compaction: Compaction,
    /// What compaction wants and the writer has not done yet.
    pub(super) next: Option<Next>,
    /// The view before the store was opened again. The sweeper may still be at work on it.
    pub(super) earlier: Option<Arc<View>>,
}

/// An opening by a new process that came as far as asking for the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) opened_at: Timestamp,
    pub(super) before_ended_at: Timestamp,
}

impl Process {
    pub(super) fn new(engine: Engine, time: SteadyTime) -> Self {
        Self { engine, time, compaction: Compaction::default(), next: None, earlier: None }
    }
}

impl Store {
    pub(super) fn new(seed: u64, options: &RunOptions) -> Check<Self> {
        let mut random = Random::new(seed);
        let segment_bytes = *random.pick(&[8 * 1024, 12 * 1024, 16 * 1024, 32 * 1024]);
        let tag_mask = match random.one_in(2) {
            true => u64::MAX,
            false => 0xff << 56,
        };
        let log = Options {
            segment_bytes,
            frame_bytes: *random.pick(&[1024, 2048]),
            inline_outcome_bytes: 256,
            fill_bytes: 4096,
            tag_mask: if options.has_short_tags { 0xff << 56 } else { tag_mask },
            open_cached: random.below(6),
            open_files: random.below(3),
            planted: options.planted,
            ..Options::standard("simulated")
        };
        let keys = Workload::keys(&mut random)?;
        Ok(Self {
            disk: SimulatedDisk::new(random.number()),
            clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
            options: log,
            model: Model::new(&keys),
            workload: Workload::new(&mut random),
            keys,
            random,
            process: None,
            epoch: 0,
            acknowledged: (0, Timestamp(0)),
            report: Report::default(),
        })
    }

    /// The size from which a commit becomes several frames.
    pub(super) fn frame_bytes(&self) -> usize {
        self.options.frame_bytes
    }

    /// Whether all files are checked, too. A planted bug must show in what callers and readers see.
    pub(super) fn is_verified(&self) -> bool {
        self.options.planted.is_none()
    }

    /// The problems that a check of all files finds.
    pub(super) fn problems(&self) -> Vec<String> {
        match verify(&self.disk, &self.options) {
            Ok(verified) => verified.problems,
            Err(error) => vec![error.to_string()],
        }
    }

    /// The running process. Only a defect of the simulation can lose it.
    pub(super) fn process(&mut self) -> Check<&mut Process> {
        self.process.as_mut().ok_or_else(|| "the simulation has no process".to_owned())
    }

    pub(super) fn view(&mut self) -> Check<Arc<View>> {
        Ok(self.process()?.engine.view().clone())
    }

    pub(super) fn now(&mut self) -> Check<Timestamp> {
        Ok(self.process()?.time.now())
    }

    /// How many operations the disk has failed so far.
    pub(super) fn faults(&self) -> u64 {
        self.disk.counts().faults
    }

    /// Whether an error is justified: the process crashed, or the disk failed since it had `faults` faults.
    pub(super) fn justify(&self, error: &Error, faults: u64, doing: &str) -> Check {
        if self.disk.is_crashed() {
            return Ok(());
        }
        match (error.kind() == &Kind::Unavailable, self.faults() != faults) {
            (true, true) => Ok(()),
            (true, false) => Err(format!("{doing} failed although the disk did not: {error}")),
            (false, _) => Err(format!("{doing} reported damage although there is none: {error}")),
        }
    }

    /// Ends the process, in one of two ways, and starts another one.
    pub(super) fn restart(&mut self) -> Check {
        self.process = None;
        self.disk = match self.random.one_in(2) {
            true => self.disk.restart(),
            false => self.disk.kill(),
        };
        self.pass_downtime();
        self.start()
    }

    /// Ends the process in a way that loses nothing, and starts another one that nothing disturbs.
    pub(super) fn restart_undisturbed(&mut self) -> Check {
        self.disk.clear_faults();
        self.process = None;
        self.disk = self.disk.kill();
        let mut attempts = Vec::new();
        let opened = self.try_start(&mut attempts);
        let opened = opened.map_err(|error| format!("cannot open the store: {error}"))?;
        self.started(opened, &attempts)?;
        self.disk.crash_after(u64::MAX);
        Ok(())
    }

    /// The wall clock may jump while no process runs.
    fn pass_downtime(&mut self) {
        use ichido_core::Clock;
        self.clock.advance(self.random.below_u64(2_000));
        let (wall, random) = (self.clock.now().0, &mut self.random);
        match random.below(40) {
            0 => self.clock.jump_to(Timestamp(wall - random.below_u64(DAY_MS))),
            1 => self.clock.jump_to(Timestamp(wall - random.below_u64(2 * LEASE_MS))),
            2 => self.clock.advance(random.below_u64(2 * LEASE_MS)),
            3 => self.clock.advance(random.below_u64(3 * DAY_MS)),
            _ => {}
        }
    }

    /// Starts a process, which may crash or fail again and again.
    pub(super) fn start(&mut self) -> Check {
        let mut attempts = Vec::new();
        for number in 0.. {
            let faults = self.faults();
            match number < ATTEMPTS {
                true => self.disturb_opening(),
                false => self.disk.clear_faults(),
            }
            match self.try_start(&mut attempts) {
                Ok(opened) => return self.started(opened, &attempts),
                Err(error) => self.justify(&error, faults, "opening the store")?,
            }
            self.report.failed_openings += 1;
            if self.disk.is_crashed() {
                self.disk = if self.random.one_in(2) { self.disk.restart() } else { self.disk.kill() };
                self.pass_downtime();
            } else if self.random.one_in(2) {
                self.disk = self.disk.kill();
            }
        }
        Ok(())
    }

    pub(super) fn try_start(&mut self, attempts: &mut Vec<Attempt>) -> crate::Result<Opened> {
        let attempt = Cell::new(None);
        let clock = &self.clock;
        let start = |last| {
            let time = SteadyTime::start(clock.clone(), last);
            attempt.set(Some(Attempt { opened_at: time.now(), before_ended_at: last }));
            time
        };
        let key = self.random.bytes();
        let storage = Arc::new(self.disk.clone());
        let opened = open(storage, self.options.clone(), &Reason::Start(&start), || key);
        attempts.extend(attempt.take());
        opened
    }

    fn disturb_opening(&mut self) {
        // A store is created only once in a run, so its creation is interrupted more often.
        let is_new = self.epoch == 0;
        if self.random.one_in(if is_new { 1 } else { 4 }) {
            self.disk.crash_after(self.random.below_u64(16));
        }
        match self.random.below(30) {
            0 => self.disk.set_fault_rates(FaultRates::all(0.02)),
            1 => self.schedule_fault(),
            _ => {}
        }
    }

    /// Makes one of the next operations fail.
    pub(super) fn schedule_fault(&mut self) {
        use Operation::{Create, Len, List, Open, Read, Remove, Rename, Sync, SyncDir, Write};
        let operations =
            [Sync, Sync, Sync, SyncDir, Write, Write, Create, Rename, Remove, Read, Open, List, Len];
        let operation = *self.random.pick(&operations);
        let fault = if self.random.one_in(2) { Fault::NoSpace } else { Fault::Io };
        let can_need_space = matches!(operation, Sync | SyncDir | Write | Create | Rename);
        let fault = if can_need_space { fault } else { Fault::Io };
        let skipped = if self.random.one_in(2) { 0 } else { self.random.below_u64(6) };
        self.disk.schedule_fault(operation, skipped, fault);
    }

    /// A new process has the store open: checks everything that it promises.
    fn started(&mut self, opened: Opened, attempts: &[Attempt]) -> Check {
        self.disk.clear_faults();
        let time = opened.time.ok_or("an opening by a new process has no time")?;
        let view = opened.engine.view().clone();
        let openings = view.openings.since(self.epoch);
        let mut earlier = attempts.iter().rev();
        for (number, (epoch, opened_at, before_ended_at)) in (1..).zip(openings.iter().rev()) {
            let opening = Attempt { opened_at: *opened_at, before_ended_at: *before_ended_at };
            let is_known = match number {
                1 => earlier.next() == Some(&opening),
                _ => earlier.any(|attempt| *attempt == opening),
            };
            if *epoch != self.epoch + openings.len() as u64 + 1 - number || !is_known {
                return Err(format!("there was no opening {epoch} with {opening:?}, but {attempts:?}"));
            }
        }
        if openings.is_empty() {
            return Err("the last opening is not in the log".into());
        }
        for (_, opened_at, before_ended_at) in &openings {
            self.model.restart(*opened_at, *before_ended_at);
        }
        if let Some(early) = attempts.iter().find(|attempt| attempt.before_ended_at < self.acknowledged.1) {
            return Err(format!("time went back to {} from {}", early.before_ended_at, self.acknowledged.1));
        }
        self.epoch += openings.len() as u64;
        self.report.starts += 1;
        self.opened(opened.engine, time)
    }

    /// Opens the store again in the same process, after a write failed.
    pub(super) fn reopen(&mut self) -> Check {
        let Some(Process { engine, time, next, .. }) = self.process.take() else { return self.start() };
        let earlier = engine.view().clone();
        drop(engine);
        for _ in 0..3 {
            let faults = self.faults();
            match self.random.one_in(3) {
                true => self.disturb_opening(),
                false => self.disk.clear_faults(),
            }
            self.clock.advance(self.random.below_u64(100));
            let (storage, now) = (Arc::new(self.disk.clone()), time.now());
            let opened = open(storage, self.options.clone(), &Reason::Failure(now), || [0; 16]);
            match opened {
                Ok(opened) => {
                    self.disk.clear_faults();
                    if !opened.engine.view().openings.since(self.epoch).is_empty() {
                        return Err("opening the store again counts as a new process".into());
                    }
                    self.report.reopenings += 1;
                    self.opened(opened.engine, time)?;
                    let process = self.process()?;
                    (process.next, process.earlier) = (next, Some(earlier));
                    return Ok(());
                }
                Err(error) => self.justify(&error, faults, "opening the store again")?,
            }
            self.report.failed_openings += 1;
            if self.disk.is_crashed() {
                break;
            }
        }
        self.restart()
    }

    /// The store is open: compares all that it contains.
    fn opened(&mut self, engine: Engine, time: SteadyTime) -> Check {
        let now = time.now();
        if engine.last_commit() < self.acknowledged.0 {
            let (last, acknowledged) = (engine.last_commit(), self.acknowledged.0);
            return Err(format!("the last commit is {last}, but {acknowledged} was acknowledged"));
        }
        let view = engine.view().clone();
        self.acknowledged.0 = engine.last_commit();
        self.process = Some(Process::new(engine, time));
        let versions = self.compare_all(&view, now)?;
        self.count_interrupted(&versions)?;
        self.model.adopt(&versions);
        self.check_index(&view, now)?;
        self.arm_crash();
        Ok(())
    }

    /// A batch that fits into one frame is applied as a whole, or not at all.
    fn count_interrupted(&mut self, versions: &[Version]) -> Check {
        let (before, after) = (versions.contains(&Version::Before), versions.contains(&Version::After));
        match (before, after) {
            (true, true) => {
                if self.model.unacknowledged_bytes_max() < self.frame_bytes() {
                    return Err("a batch that fits into one frame was applied in part".into());
                }
                self.report.split += 1;
            }
            (true, false) => self.report.lost += 1,
            (false, true) => self.report.applied += 1,
            (false, false) => {}
        }
        Ok(())
    }

    /// Chooses when the next crash happens.
    fn arm_crash(&mut self) {
        let changes = match self.random.below(8) {
            0 => return,
            1..4 => self.random.below_u64(12),
            4..7 => self.random.below_u64(60),
            _ => self.random.below_u64(400),
        };
        self.disk.crash_after(changes);
    }
}
