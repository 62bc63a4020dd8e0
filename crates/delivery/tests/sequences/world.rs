//! One directory, a receiver, and the processes that come and go.

use std::collections::{BTreeSet, HashMap};
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
use ichido_delivery::settings::Settings;
use ichido_delivery::store::{BatchDir, Layout, Store, fsck};
use ichido_delivery::{Batch, Record};
use tokio_util::sync::CancellationToken;

use crate::actions::{BATCHES, Move, Rules};
use crate::faults::{Died, Life, Plan};
use crate::receiver::{Knows, Link, Receiver};

pub(crate) struct World {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    clock: Arc<Jumping>,
    pub(crate) receiver: Arc<Receiver>,
    channel: Arc<Told>,
    settings: Settings,
    /// The process that works, if one does.
    process: Option<Process>,
    /// What waits for the next process to begin.
    plans: Vec<Plan>,
    accepted: BTreeSet<String>,
    damaged: BTreeSet<String>,
    /// Names that were seen in failed: batches, and pieces of input that are no records.
    failed: BTreeSet<PathBuf>,
    broken: BTreeSet<PathBuf>,
}

struct Process {
    sender: Sender,
    life: Arc<Life>,
    stop: CancellationToken,
}

/// Time that passes when everyone waits, and a wall clock that can be set.
#[derive(Debug)]
struct Jumping {
    start: tokio::time::Instant,
    offset_ms: AtomicI64,
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        let ms = i64::try_from(self.steady().as_millis()).unwrap();
        Timestamp(u64::try_from(1_737_201_930_000 + ms + self.offset_ms.load(Relaxed)).unwrap())
    }

    fn steady(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Where people read.
#[derive(Debug, Default)]
struct Told {
    is_out: AtomicBool,
    failed: AtomicU64,
    broken: AtomicU64,
    last: Mutex<String>,
}

#[derive(Debug)]
struct Ear(Arc<Told>);

#[async_trait::async_trait]
impl Channel for Ear {
    fn name(&self) -> &'static str {
        "ear"
    }

    async fn send(&self, message: &Message) -> Result<(), Failure> {
        if self.0.is_out.load(Relaxed) {
            return Err(Failure::Refused { reason: "out".to_owned() });
        }
        for part in message.subject.trim_start_matches("ichido: ").split(", ") {
            let (count, words) = part.split_once(' ').unwrap();
            let count: u64 = count.parse().unwrap();
            match words {
                words if words.ends_with("failed") => self.0.failed.fetch_add(count, Relaxed),
                words if words.starts_with("invalid input") => self.0.broken.fetch_add(count, Relaxed),
                _ => 0,
            };
        }
        message.text.clone_into(&mut self.0.last.lock().unwrap());
        Ok(())
    }
}

impl World {
    pub(crate) fn new(rules: Rules) -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let clock = runtime.block_on(async {
            Arc::new(Jumping { start: tokio::time::Instant::now(), offset_ms: AtomicI64::new(0) })
        });
        let receiver = Arc::new(Receiver::default());
        {
            let mut books = receiver.books();
            let bad = (0..BATCHES.len()).filter(|batch| rules.bad & (1 << batch) != 0);
            books.refused = bad.map(|batch| id(batch, BATCHES[batch] / 2)).collect();
            let known = (0..BATCHES.len()).filter(|batch| rules.known & (1 << batch) != 0);
            books.counts = known.map(|batch| (id(batch, BATCHES[batch] - 1), 1)).collect();
            books.most_records = rules.most_records;
            books.knows = rules.knows;
            books.by_record = rules.by_record;
            books.knows_token = true;
        }
        // In memory where there is a place for it: a sync there costs nothing.
        let shared = Path::new("/dev/shm");
        let dir = if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() };
        Self {
            dir: dir.unwrap(),
            runtime,
            clock,
            receiver,
            channel: Arc::default(),
            settings: settings(rules),
            process: None,
            plans: Vec::new(),
            accepted: BTreeSet::new(),
            damaged: BTreeSet::new(),
            failed: BTreeSet::new(),
            broken: BTreeSet::new(),
        }
    }

    pub(crate) fn play(&mut self, step: &Move) {
        match step {
            Move::Send(batch) => self.send(*batch),
            Move::Broken(line) => {
                let (text, reason) = (format!("{{\"torn{line}"), format!("input, line {line}: no JSON"));
                self.with_process(async |sender| drop(sender.reject_input(&text, &reason)));
            }
            Move::Pass => self.resend(&Selection::due()),
            Move::Stop => {
                if let Some(process) = &self.process {
                    process.stop.cancel();
                }
                self.finish();
                self.process = None;
            }
            Move::Kill => self.process = None,
            Move::Plan(plan) => match &self.process {
                Some(process) => process.life.plan(*plan),
                None => self.plans.push(*plan),
            },
            Move::Script(script) => self.receiver.books().script.extend(script),
            Move::Token(known) => self.receiver.books().knows_token = *known,
            Move::Wait(seconds) => {
                let pause = Duration::from_secs((*seconds).into());
                self.runtime.block_on(tokio::time::advance(pause));
            }
            Move::Jump(seconds) => {
                self.clock.offset_ms.fetch_add(i64::from(*seconds) * 1_000, Relaxed);
            }
            Move::Resend { force, only } => {
                self.beside(&Selection::new(BatchDir::Spool, keys(*only), *force))
            }
            Move::FailedResend { only } => self.beside(&Selection::new(BatchDir::Failed, keys(*only), true)),
            Move::Look => self.look(),
            Move::Damage(which) => self.damage(*which),
            Move::Stray => {
                let _ = fs::create_dir_all(self.data().join("spool"));
                fs::write(self.data().join("spool/spool_notes.txt"), "mine").unwrap();
            }
            Move::Channel(works) => self.channel.is_out.store(!works, Relaxed),
        }
    }

    fn send(&mut self, number: usize) {
        let taken = self.with_process(async |sender| sender.send(batch(number)).await.is_ok());
        if taken == Some(true) {
            self.accepted.extend((0..BATCHES[number]).map(|place| id(number, place)));
        }
    }

    /// Sends batches of one record each, as one run does.
    pub(crate) fn send_many(&mut self, batches: usize) {
        for number in 0..batches {
            let record = Record::parse(&format!(r#"{{"source_event_id":"m{number}"}}"#)).unwrap();
            self.with_process(async |sender| sender.send(Batch::new(vec![record])).await.unwrap());
        }
        self.finish();
    }

    /// The steady clock.
    pub(crate) fn steady(&self) -> Duration {
        self.runtime.block_on(async { self.clock.steady() })
    }

    fn resend(&mut self, selection: &Selection) {
        self.with_process(async |sender| drop(sender.resend(selection).await));
        self.finish();
    }

    /// The end of a run: nothing is in hand, and people are told.
    pub(crate) fn finish(&mut self) {
        if self.process.is_some() {
            self.with_process(async |sender| {
                sender.finish().await;
                sender.notifier().drain().await;
            });
        }
    }

    /// A command of an operator while the process, if there is one, keeps what it has.
    fn beside(&mut self, selection: &Selection) {
        let process = self.process.take();
        self.resend(selection);
        self.process = process;
    }

    /// Lets the process do something; it is begun if there is none. `None`: it died, or could not begin.
    fn with_process<T>(&mut self, act: impl AsyncFnOnce(&mut Sender) -> T) -> Option<T> {
        let mut process = self.process.take();
        let done = catch_unwind(AssertUnwindSafe(|| {
            if process.is_none() {
                process = self.begin();
            }
            let process = process.as_mut()?;
            Some(self.runtime.block_on(act(&mut process.sender)))
        }));
        self.process = process.filter(|process| !process.life.is_over());
        match done {
            Ok(done) => done.filter(|_| self.process.is_some()),
            Err(panic) if panic.is::<Died>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn begin(&mut self) -> Option<Process> {
        let life = Arc::new(Life::default());
        self.plans.drain(..).for_each(|plan| life.plan(plan));
        let disk = Disk::with_faults(life.clone());
        let clock: Arc<dyn Clock> = self.clock.clone();
        let store =
            Store::open_with_disk(disk.clone(), &self.data(), self.settings.store, clock.now()).ok()?;
        let channels: Vec<Box<dyn Channel>> = vec![Box::new(Ear(self.channel.clone()))];
        let notices =
            Notices::open_with_disk(disk, &self.data().join("notices"), channels, clock.clone()).ok()?;
        let stop = CancellationToken::new();
        let deps = Dependencies {
            store,
            transport: Box::new(Link::new(self.receiver.clone(), life.clone(), clock.clone())),
            notifier: Arc::new(Notifier::new(notices, "https://receiver.example")),
            clock,
            entropy: Arc::new(SeededEntropy::new(7)),
            stop: stop.clone(),
        };
        Some(Process { sender: Sender::new(&self.settings, deps), life, stop })
    }

    fn look(&self) {
        let layout = Layout::new(&self.data());
        for place in [BatchDir::Spool, BatchDir::Failed] {
            for listed in layout.oldest(place, None, usize::MAX).unwrap() {
                layout.read(place, &listed).unwrap().ok();
            }
        }
        fsck(&layout, drop).unwrap();
    }

    fn damage(&mut self, which: usize) {
        let Some(path) = files(&self.data().join("spool")).into_iter().nth(which) else { return };
        if is_whole(&path) && path.parent() == Some(&self.data().join("spool")) {
            self.damaged.extend(ids_in(&path));
            // What was there stays to be read by a person.
            let mut bytes = fs::read(&path).unwrap();
            bytes.push(b'}');
            fs::write(&path, bytes).unwrap();
        }
    }

    /// What must be true at any moment.
    pub(crate) fn check(&mut self, step: &Move) {
        let on_disk = self.on_disk();
        let mut books = self.receiver.books();
        for id in &self.accepted {
            // What the receiver is at work on will be counted, unless it said so and is asked again.
            if !books.counts.contains_key(id) && !on_disk.contains(id) {
                books.settle(Duration::MAX);
            }
            let counted = books.counts.get(id).copied().unwrap_or_default();
            assert!(counted == 1 || on_disk.contains(id), "after {step:?}: {id} is nowhere ({counted})");
        }
        assert!(books.counts.values().all(|count| *count == 1), "after {step:?}: {:?}", books.counts);
        let data = self.data();
        let named = |place: &str| files(&data.join(place)).into_iter().filter(|path| is_ours(path));
        let is_invalid_input = |path: &PathBuf| text(path).contains("\"unreadable\"");
        let (broken, failed): (Vec<_>, Vec<_>) = named("failed").partition(is_invalid_input);
        self.broken.extend(broken);
        self.failed.extend(failed);
        assert!(!named("spool").any(|path| is_half(&path) && path.parent().unwrap().ends_with("spool")));
        if let Some(process) = &self.process {
            let counters = process.sender.counters();
            let spool = named("spool").filter(|path| path.parent().unwrap().ends_with("spool")).count();
            assert_eq!(counters.spool_size, spool as u64, "after {step:?}");
            assert_eq!(counters.send_total, counters.send_success + counters.send_failed, "after {step:?}");
            assert!(
                counters.send_duplicate <= counters.send_success
                    && counters.retry_success <= counters.retries
            );
            assert!(counters.spool_resend_success <= counters.spool_resend_attempts, "{counters:?}");
        }
    }

    /// Everything works again: what was accepted arrives, but what is refused and what was damaged.
    pub(crate) fn heal(&mut self) {
        self.process = None;
        self.plans.clear();
        self.channel.is_out.store(false, Relaxed);
        {
            let mut books = self.receiver.books();
            books.script.clear();
            books.knows_token = true;
        }
        // Long enough for every wait, however the clock was set.
        self.play(&Move::Wait(20_000_000));
        self.resend(&Selection::new(BatchDir::Spool, Vec::new(), true));
        self.resend(&Selection::new(BatchDir::Spool, Vec::new(), true));
        self.check(&Move::Pass);
        let layout = Layout::new(&self.data());
        assert_eq!(layout.count(BatchDir::Spool).unwrap(), 0, "what waits is sent");
        self.resend(&Selection::new(BatchDir::Failed, Vec::new(), true));
        self.check(&Move::Pass);
        let on_disk = self.on_disk();
        let books = self.receiver.books();
        for id in &self.accepted {
            let arrived = books.counts.get(id) == Some(&1);
            let excused = books.refused.contains(id) || self.damaged.contains(id);
            assert!(arrived || excused, "{id} did not arrive");
            assert!(arrived || on_disk.contains(id), "{id} is nowhere");
        }
        drop(books);
        self.process = None;
        let inflight = files(&self.data().join("spool/.inflight"));
        assert!(inflight.is_empty(), "left in flight: {inflight:?}");
        // Of the pieces that are no records the first is told of before it is moved, the others at the end.
        let told = self.channel.failed.load(Relaxed) + self.channel.broken.load(Relaxed);
        let least = self.failed.len() + usize::from(!self.broken.is_empty());
        assert!(told >= least as u64, "{told} told of {:?} {:?}", self.failed, self.broken);
    }

    /// How many batches in failed people have been told of.
    pub(crate) fn failed_told(&self) -> u64 {
        self.channel.failed.load(Relaxed)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The records in every file that is whole, wherever it lies.
    fn on_disk(&self) -> BTreeSet<String> {
        let all = ["spool", "failed"].into_iter().flat_map(|place| files(&self.data().join(place)));
        all.filter(|path| is_whole(path)).flat_map(|path| ids_in(&path)).collect()
    }
}

fn settings(rules: Rules) -> Settings {
    let values = HashMap::from([
        ("EXTERNAL_API_ENDPOINT", "https://receiver.example/".to_owned()),
        ("EXTERNAL_API_TOKEN", "a-token".to_owned()),
        ("MAX_RETRIES", "2".to_owned()),
        ("MAX_SPOOL_RETRIES", "3".to_owned()),
        ("SPOOL_GZIP", rules.gzip.to_string()),
        ("SPOOL_MAX_BYTES", rules.max_bytes.to_string()),
        ("RETRY_JITTER", "on".to_owned()),
        ("SEND_RATE_PER_SECOND", rules.rate.to_string()),
        (
            "EXTERNAL_API_ENVELOPE",
            match rules.knows {
                Knows::RecordsBare => "api_meter",
                Knows::Batches | Knows::BatchesBare => "plain",
            }
            .to_owned(),
        ),
        ("EXTERNAL_API_TENANT_ID", "t".to_owned()),
        ("RESEND_WINDOW", if rules.window { "08:00-20:00 Asia/Tokyo" } else { "" }.to_owned()),
    ]);
    Settings::read(&|name| Ok(values.get(name).cloned())).unwrap()
}

pub(crate) fn id(batch: usize, place: usize) -> String {
    format!("e{batch}-{place}")
}

fn batch(number: usize) -> Batch {
    let record = |place| {
        Record::parse(&format!(r#"{{"source_event_id":"{}","n":{place}}}"#, id(number, place))).unwrap()
    };
    Batch::new((0..BATCHES[number]).map(record).collect())
}

fn keys(only: Option<usize>) -> Vec<String> {
    only.map(|number| batch(number).key().to_owned()).into_iter().collect()
}

/// Every file below a directory but the locks of processes.
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

fn is_half(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with(".half-")
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    (name.starts_with("spool_2") || name.starts_with("failed_2")) || is_half(path)
}

fn is_whole(path: &Path) -> bool {
    is_ours(path) && !is_half(path)
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
