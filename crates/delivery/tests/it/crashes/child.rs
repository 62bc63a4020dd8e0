//! The process that is killed: a complete sender, with a real HTTP client and real files.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ichido_core::{Clock, SystemClock, SystemEntropy};
use ichido_delivery::disk::{Disk, Faults, Op};
use ichido_delivery::notice::{Channel, Failure, Message, Notices};
use ichido_delivery::notifier::Notifier;
use ichido_delivery::sender::{Dependencies, Selection, Sender};
use ichido_delivery::settings::{Identity, Raw};
use ichido_delivery::store::Store;
use ichido_delivery::tls_roots::TlsRoots;
use ichido_delivery::token::Token;
use ichido_delivery::transport::HttpTransport;
use ichido_delivery::{Batch, Record};
use tokio_util::sync::CancellationToken;

const DIR: &str = "ICHIDO_TEST_CRASH_DIR";
const PORT: &str = "ICHIDO_TEST_CRASH_PORT";
const CRASH_AT: &str = "ICHIDO_TEST_CRASH_AT";
const FRESH: &str = "ICHIDO_TEST_CRASH_FRESH";

/// What the child process does.
pub(crate) struct Job<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) port: u16,
    pub(crate) crash_at: Option<usize>,
    /// Whether it gets new batches after the spooled ones.
    pub(crate) fresh: bool,
}

pub(crate) fn run(job: &Job<'_>) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::child::child_sends_until_it_is_killed"])
        .env(DIR, job.dir)
        .env(PORT, job.port.to_string())
        .env(CRASH_AT, job.crash_at.map(|at| at.to_string()).unwrap_or_default())
        .env(FRESH, if job.fresh { "yes" } else { "" })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
}

/// Logs disk operations, and kills the process before one of them.
#[derive(Debug)]
struct CrashingDisk {
    dir: PathBuf,
    crash_at: Option<usize>,
    count: AtomicUsize,
}

impl Faults for CrashingDisk {
    fn before(&self, op: Op, path: &Path) -> io::Result<()> {
        let area = match path.to_string_lossy() {
            text if text.contains("notices") => "notices",
            text if text.contains("receipts") => "receipts",
            text if text.contains("group_") => "group",
            text if text.contains(".inflight") => "inflight",
            text if text.contains("failed") => "failed",
            _ => "spool",
        };
        append(&self.dir.join("ops"), &format!("{op:?} {area}"));
        if Some(self.count.fetch_add(1, Relaxed)) == self.crash_at {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
            loop {
                std::thread::park();
            }
        }
        Ok(())
    }
}

/// A channel that appends messages to a file.
#[derive(Debug)]
struct FileChannel(PathBuf);

#[async_trait::async_trait]
impl Channel for FileChannel {
    fn name(&self) -> &'static str {
        "file"
    }

    async fn send(&self, message: &Message) -> Result<(), Failure> {
        append(&self.0, &message.text);
        Ok(())
    }
}

fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Not a test by itself: the child process of [`run`].
#[tokio::test]
async fn child_sends_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let url = format!("http://127.0.0.1:{}/", std::env::var(PORT).unwrap());
    let crash_at = std::env::var(CRASH_AT).unwrap().parse().ok();
    let data = dir.join("data");
    let raw = Raw {
        endpoint: Some(url.clone()),
        allow_http_loopback: true,
        token: Some("a-token".to_owned().into()),
        max_retries: 0,
        max_spool_retries: super::LAST_PASS,
        ..Raw::default()
    };
    let settings = raw.check(&Identity::default()).unwrap();
    let disk =
        Disk::with_faults(Arc::new(CrashingDisk { dir: dir.clone(), crash_at, count: AtomicUsize::new(0) }));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let store = Store::open_with_disk(disk.clone(), &data, settings.store, clock.now()).unwrap();
    let channels: Vec<Box<dyn Channel>> = vec![Box::new(FileChannel(dir.join("notified")))];
    let notices = Notices::open_with_disk(disk, &data.join("notices"), channels, clock.clone()).unwrap();
    let token = Token::open(settings.token.clone()).unwrap();
    let deps = Dependencies {
        store,
        transport: Arc::new(
            HttpTransport::new(settings.transport.clone(), &TlsRoots::default(), token).unwrap(),
        ),
        notifier: Arc::new(Notifier::new(notices, "http://127.0.0.1")),
        clock,
        entropy: Arc::new(SystemEntropy),
        stop: CancellationToken::new(),
    };
    let mut sender = Sender::new(&settings, deps);
    sender.resend(&Selection::due()).await.unwrap();
    if std::env::var(FRESH).unwrap() == "yes" {
        let record = |id: &&str| Record::parse(&format!(r#"{{"source_event_id":"{id}"}}"#)).unwrap();
        let batch = |ids: &&[&str]| Batch::new(ids.iter().map(record).collect());
        for group in [
            &[&["good-one"][..]][..],
            &[&["good-two", "bad-two"], &["good-three"], &["down-new"], &["good-four"]],
        ] {
            sender.send(group.iter().map(batch).collect()).await.unwrap();
            group.iter().copied().flatten().for_each(|id| append(&dir.join("accepted"), id));
        }
    }
    sender.finish().await;
    sender.notifier().drain().await;
}
