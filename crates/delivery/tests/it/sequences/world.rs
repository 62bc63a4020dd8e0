//! A data directory, a receiver, and the processes that start and crash.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ichido_core::{Clock, SeededEntropy, Timestamp};
use ichido_delivery::disk::Disk;
use ichido_delivery::notice::{Channel, Failure, Message, Notices};
use ichido_delivery::notifier::Notifier;
use ichido_delivery::sender::{Dependencies, Selection, Sender};
use ichido_delivery::settings::{Identity, Raw, RawEnvelope, Settings};
use ichido_delivery::store::{BatchDir, Layout, Store, StoredBatch, fsck, is_group, read_group};
use ichido_delivery::{Batch, Record};
use tokio_util::sync::CancellationToken;

use super::actions::{Action, BATCHES, Scenario};
use super::faults::{Crashed, Fault, FaultInjector};
use super::receiver::{Dedup, Receiver, SimulatedTransport};

pub(crate) struct World {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    clock: Arc<AdjustableClock>,
    pub(crate) receiver: Arc<Receiver>,
    channel: Arc<Operators>,
    settings: Settings,
    /// The running process, if any.
    process: Option<Process>,
    /// Faults for the next process.
    faults: Vec<Fault>,
    accepted: BTreeSet<String>,
    damaged: BTreeSet<String>,
    /// Files that were seen in failed: batches, and invalid input items.
    failed: BTreeSet<PathBuf>,
    invalid: BTreeSet<PathBuf>,
}

struct Process {
    sender: Sender,
    injector: Arc<FaultInjector>,
    stop: CancellationToken,
}

/// Time that passes only while everyone waits, and a wall clock that can be set.
#[derive(Debug)]
struct AdjustableClock {
    start: tokio::time::Instant,
    offset_ms: AtomicI64,
}

impl Clock for AdjustableClock {
    fn now(&self) -> Timestamp {
        let ms = i64::try_from(self.steady().as_millis()).unwrap();
        Timestamp(u64::try_from(1_737_201_930_000 + ms + self.offset_ms.load(Relaxed)).unwrap())
    }

    fn steady(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The notices that operators received.
#[derive(Debug, Default)]
struct Operators {
    is_down: AtomicBool,
    failed: AtomicU64,
    invalid: AtomicU64,
    last: Mutex<String>,
}

#[derive(Debug)]
struct OperatorChannel(Arc<Operators>);

#[async_trait::async_trait]
impl Channel for OperatorChannel {
    fn name(&self) -> &'static str {
        "operators"
    }

    async fn send(&self, message: &Message) -> Result<(), Failure> {
        if self.0.is_down.load(Relaxed) {
            return Err(Failure::Refused { reason: "out".to_owned() });
        }
        for part in message.subject.trim_start_matches("ichido: ").split(", ") {
            let (count, words) = part.split_once(' ').unwrap();
            let count: u64 = count.parse().unwrap();
            match words {
                words if words.ends_with("failed") => self.0.failed.fetch_add(count, Relaxed),
                words if words.starts_with("invalid input") => self.0.invalid.fetch_add(count, Relaxed),
                _ => 0,
            };
        }
        message.text.clone_into(&mut self.0.last.lock().unwrap());
        Ok(())
    }
}

impl World {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let clock = runtime.block_on(async {
            Arc::new(AdjustableClock { start: tokio::time::Instant::now(), offset_ms: AtomicI64::new(0) })
        });
        let receiver = Arc::new(Receiver::default());
        {
            let mut state = receiver.state();
            let bad = (0..BATCHES.len()).filter(|batch| scenario.bad & (1 << batch) != 0);
            state.rejected = bad.map(|batch| id(batch, BATCHES[batch] / 2)).collect();
            let known = (0..BATCHES.len()).filter(|batch| scenario.known & (1 << batch) != 0);
            state.counts = known.map(|batch| (id(batch, BATCHES[batch] - 1), 1)).collect();
            state.records_max = scenario.records_max;
            state.dedup = scenario.dedup;
            state.by_record = scenario.by_record;
            state.accepts_token = true;
            state.latency = Duration::from_millis(scenario.overlap.latency_ms);
        }
        Self {
            dir: crate::scratch(),
            runtime,
            clock,
            receiver,
            channel: Arc::default(),
            settings: settings(scenario),
            process: None,
            faults: Vec::new(),
            accepted: BTreeSet::new(),
            damaged: BTreeSet::new(),
            failed: BTreeSet::new(),
            invalid: BTreeSet::new(),
        }
    }

    pub(crate) fn play(&mut self, action: &Action) {
        match action {
            Action::Send(batch) => self.send(&[*batch]),
            Action::SendGroup(batches) => self.send(batches),
            Action::Invalid(line) => {
                let (text, reason) = (format!("{{\"torn{line}"), format!("input, line {line}: no JSON"));
                self.with_process(async |sender| drop(sender.reject_input(&text, &reason)));
            }
            Action::Pass => self.resend(&Selection::due()),
            Action::Stop => {
                if let Some(process) = &self.process {
                    process.stop.cancel();
                }
                self.finish();
                self.process = None;
            }
            Action::Kill => self.process = None,
            Action::Fault(fault) => match &self.process {
                Some(process) => process.injector.add(*fault),
                None => self.faults.push(*fault),
            },
            Action::Script(script) => self.receiver.state().script.extend(script),
            Action::Token(known) => self.receiver.state().accepts_token = *known,
            Action::Wait(seconds) => {
                let pause = Duration::from_secs((*seconds).into());
                self.runtime.block_on(tokio::time::advance(pause));
            }
            Action::SetClock(seconds) => {
                self.clock.offset_ms.fetch_add(i64::from(*seconds) * 1_000, Relaxed);
            }
            Action::Resend { force, only } => {
                self.as_operator(&Selection::new(BatchDir::Spool, keys(*only), *force))
            }
            Action::FailedResend { only } => {
                self.as_operator(&Selection::new(BatchDir::Failed, keys(*only), true))
            }
            Action::Look => self.look(),
            Action::Damage(which) => self.damage(*which),
            Action::ForeignFile => {
                let _ = fs::create_dir_all(self.data().join("spool"));
                fs::write(self.data().join("spool/spool_notes.txt"), "mine").unwrap();
            }
            Action::Channel(works) => self.channel.is_down.store(!works, Relaxed),
        }
    }

    fn send(&mut self, numbers: &[usize]) {
        let batches = numbers.iter().map(|number| batch(*number)).collect();
        let taken = self.with_process(async |sender| sender.send(batches).await.is_ok());
        if taken == Some(true) {
            let ids = |number: usize| (0..BATCHES[number]).map(move |index| id(number, index));
            self.accepted.extend(numbers.iter().flat_map(|number| ids(*number)));
        }
    }

    /// Sends batches of one record each, in one run.
    pub(crate) fn send_many(&mut self, batches: usize) {
        for number in 0..batches {
            let record = Record::parse(&format!(r#"{{"source_event_id":"m{number}"}}"#)).unwrap();
            self.with_process(async |sender| sender.send(vec![Batch::new(vec![record])]).await.unwrap());
        }
        self.finish();
    }

    /// Why the lane of the running process is held.
    pub(crate) fn held(&self) -> Option<String> {
        self.process.as_ref().and_then(|process| process.sender.held().map(str::to_owned))
    }

    /// The steady clock.
    pub(crate) fn steady(&self) -> Duration {
        self.runtime.block_on(async { self.clock.steady() })
    }

    fn resend(&mut self, selection: &Selection) {
        self.with_process(async |sender| drop(sender.resend(selection).await));
        self.finish();
    }

    /// Ends a run: sends everything, and drains the notices.
    pub(crate) fn finish(&mut self) {
        if self.process.is_some() {
            self.with_process(async |sender| {
                sender.finish().await;
                sender.notifier().drain().await;
            });
        }
    }

    /// Runs an operator's command while the process, if any, keeps what it has.
    fn as_operator(&mut self, selection: &Selection) {
        let process = self.process.take();
        self.resend(selection);
        self.process = process;
    }

    /// Lets the process act, and starts one if none is running. `None`: it crashed, or could not start.
    fn with_process<T>(&mut self, act: impl AsyncFnOnce(&mut Sender) -> T) -> Option<T> {
        let mut process = self.process.take();
        let done = catch_unwind(AssertUnwindSafe(|| {
            if process.is_none() {
                process = self.begin();
            }
            let process = process.as_mut()?;
            Some(self.runtime.block_on(act(&mut process.sender)))
        }));
        self.process = process.filter(|process| !process.injector.has_crashed());
        match done {
            Ok(done) => done.filter(|_| self.process.is_some()),
            Err(panic) if panic.is::<Crashed>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn begin(&mut self) -> Option<Process> {
        let injector = Arc::new(FaultInjector::default());
        self.faults.drain(..).for_each(|fault| injector.add(fault));
        let disk = Disk::with_faults(injector.clone());
        let clock: Arc<dyn Clock> = self.clock.clone();
        let store =
            Store::open_with_disk(disk.clone(), &self.data(), self.settings.store, clock.now()).ok()?;
        let channels: Vec<Box<dyn Channel>> = vec![Box::new(OperatorChannel(self.channel.clone()))];
        let notices =
            Notices::open_with_disk(disk, &self.data().join("notices"), channels, clock.clone()).ok()?;
        let stop = CancellationToken::new();
        let deps = Dependencies {
            store,
            transport: Arc::new(SimulatedTransport::new(
                self.receiver.clone(),
                injector.clone(),
                clock.clone(),
                self.settings.transport.concurrency.get(),
            )),
            notifier: Arc::new(Notifier::new(notices, "https://receiver.example")),
            clock,
            entropy: Arc::new(SeededEntropy::new(7)),
            stop: stop.clone(),
        };
        Some(Process { sender: Sender::new(&self.settings, deps), injector, stop })
    }

    fn look(&self) {
        let layout = Layout::new(&self.data());
        for batch_dir in [BatchDir::Spool, BatchDir::Failed] {
            for listed in layout.oldest(batch_dir, None, usize::MAX).unwrap() {
                layout.read(batch_dir, &listed).unwrap().ok();
            }
        }
        fsck(&layout, drop).unwrap();
    }

    fn damage(&mut self, which: usize) {
        let Some(path) = files(&self.data().join("spool")).into_iter().nth(which) else { return };
        if is_complete(&path) && path.parent() == Some(&self.data().join("spool")) {
            self.damaged.extend(ids_in(&path));
            // The content stays readable for a person.
            let mut bytes = fs::read(&path).unwrap();
            bytes.push(b'}');
            fs::write(&path, bytes).unwrap();
        }
    }

    /// Checks what must hold at any time.
    pub(crate) fn check(&mut self, action: &Action) {
        let on_disk = self.on_disk();
        let mut state = self.receiver.state();
        for id in &self.accepted {
            // The receiver will count what it is still processing, unless it fails and the batch is sent again.
            if !state.counts.contains_key(id) && !on_disk.contains(id) {
                state.settle(Duration::MAX);
            }
            let counted = state.counts.get(id).copied().unwrap_or_default();
            assert!(counted == 1 || on_disk.contains(id), "after {action:?}: {id} is nowhere ({counted})");
        }
        assert!(state.counts.values().all(|count| *count == 1), "after {action:?}: {:?}", state.counts);
        let data = self.data();
        let named = |dir: &str| files(&data.join(dir)).into_iter().filter(|path| is_ours(path));
        let is_invalid_input = |path: &PathBuf| text(path).contains("\"unreadable\"");
        let (invalid, failed): (Vec<_>, Vec<_>) = named("failed").partition(is_invalid_input);
        self.invalid.extend(invalid);
        self.failed.extend(failed);
        assert!(!named("spool").any(|path| is_temporary(&path) && path.parent().unwrap().ends_with("spool")));
        if let Some(process) = &self.process {
            let counters = process.sender.counters();
            let spool = named("spool").filter(|path| path.parent().unwrap().ends_with("spool")).count();
            assert_eq!(counters.spool_size, spool as u64, "after {action:?}");
            assert_eq!(counters.send_total, counters.send_success + counters.send_failed, "after {action:?}");
            assert!(
                counters.send_duplicate <= counters.send_success
                    && counters.retry_success <= counters.retries
            );
            assert!(counters.spool_resend_success <= counters.spool_resend_attempts, "{counters:?}");
        }
    }

    /// Ends all faults and outages. Every accepted record is delivered, unless it is rejected or was damaged.
    pub(crate) fn recover(&mut self) {
        self.process = None;
        self.faults.clear();
        self.channel.is_down.store(false, Relaxed);
        {
            let mut state = self.receiver.state();
            state.script.clear();
            state.accepts_token = true;
        }
        // Long enough for every wait, however the clock was set.
        self.play(&Action::Wait(20_000_000));
        self.resend(&Selection::new(BatchDir::Spool, Vec::new(), true));
        self.resend(&Selection::new(BatchDir::Spool, Vec::new(), true));
        self.check(&Action::Pass);
        let layout = Layout::new(&self.data());
        assert_eq!(layout.count(BatchDir::Spool).unwrap(), 0, "every spooled batch is sent");
        self.resend(&Selection::new(BatchDir::Failed, Vec::new(), true));
        self.check(&Action::Pass);
        let on_disk = self.on_disk();
        let state = self.receiver.state();
        for id in &self.accepted {
            let arrived = state.counts.get(id) == Some(&1);
            let excused = state.rejected.contains(id) || self.damaged.contains(id);
            assert!(arrived || excused, "{id} did not arrive");
            assert!(arrived || on_disk.contains(id), "{id} is nowhere");
        }
        drop(state);
        self.process = None;
        let inflight = files(&self.data().join("spool/.inflight"));
        assert!(inflight.is_empty(), "left in flight: {inflight:?}");
        // The first invalid item is reported before it is moved, the others at the end.
        let reported = self.channel.failed.load(Relaxed) + self.channel.invalid.load(Relaxed);
        let least = self.failed.len() + usize::from(!self.invalid.is_empty());
        assert!(reported >= least as u64, "{reported} reported of {:?} {:?}", self.failed, self.invalid);
    }

    /// How many failed batches were reported in notices.
    pub(crate) fn failed_reported(&self) -> u64 {
        self.channel.failed.load(Relaxed)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The records in all complete files and groups, in any directory.
    fn on_disk(&self) -> BTreeSet<String> {
        let all = || ["spool", "failed"].into_iter().flat_map(|dir| files(&self.data().join(dir)));
        let in_groups = all().filter(|path| is_group(&path.file_name().unwrap().to_string_lossy()));
        let in_groups = in_groups.flat_map(|path| read_group(&fs::read(path).unwrap()).unwrap());
        let keys = |stored: StoredBatch| -> Vec<String> {
            stored.batch.records().iter().map(|record| record.key().to_owned()).collect()
        };
        let in_files = all().filter(|path| is_complete(path)).flat_map(|path| ids_in(&path));
        in_files.chain(in_groups.flat_map(keys)).collect()
    }
}

fn settings(scenario: Scenario) -> Settings {
    let raw = Raw {
        endpoint: Some("https://receiver.example/".to_owned()),
        token: Some("a-token".to_owned().into()),
        max_retries: 2,
        max_spool_retries: 3,
        spool_gzip: scenario.gzip,
        spool_max_bytes: scenario.max_bytes.into(),
        retry_jitter: true,
        send_rate_per_second: scenario.rate,
        send_concurrency: scenario.overlap.concurrency,
        envelope: match scenario.dedup {
            Dedup::RecordsBare => RawEnvelope::ApiMeter,
            Dedup::Batches | Dedup::BatchesBare => RawEnvelope::Plain,
        },
        tenant_id: "t".to_owned(),
        resend_window: if scenario.window { "08:00-20:00 Asia/Tokyo" } else { "" }.to_owned(),
        ..Raw::default()
    };
    raw.check(&Identity::default()).unwrap()
}

pub(crate) fn id(batch: usize, index: usize) -> String {
    format!("e{batch}-{index}")
}

fn batch(number: usize) -> Batch {
    let record = |index| {
        Record::parse(&format!(r#"{{"source_event_id":"{}","n":{index}}}"#, id(number, index))).unwrap()
    };
    Batch::new((0..BATCHES[number]).map(record).collect())
}

fn keys(only: Option<usize>) -> Vec<String> {
    only.map(|number| batch(number).key().to_owned()).into_iter().collect()
}

/// Every file below a directory, except lock files.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path if path.ends_with("lock") => {}
            path => found.push(path),
        }
    }
    found.sort();
    found
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with(".half-")
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    (name.starts_with("spool_2") || name.starts_with("failed_2")) || is_temporary(path)
}

fn is_complete(path: &Path) -> bool {
    is_ours(path) && !is_temporary(path)
}

fn text(path: &Path) -> String {
    let mut bytes = fs::read(path).unwrap_or_default();
    if path.extension().is_some_and(|end| end == "gz") {
        let packed = std::mem::take(&mut bytes);
        let _ = flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ids_in(path: &Path) -> BTreeSet<String> {
    let text = text(path);
    let ids = text.split("\"source_event_id\":\"").skip(1);
    ids.filter_map(|rest| rest.split('"').next().map(str::to_owned)).collect()
}
