//! What `ichido send` is compared with. The bare baseline has the same reader, batching and client, with as many requests under
//! way, but nothing is stored: if it crashes, whatever is in its memory is lost. The sender is that of `ichido send`, with or
//! without receipts.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, SystemClock, SystemEntropy, Timestamp};
use ichido_delivery::endpoint::Endpoint;
use ichido_delivery::input::{Input, Item};
use ichido_delivery::notice::Notices;
use ichido_delivery::notifier::Notifier;
use ichido_delivery::request::{Envelope, Request};
use ichido_delivery::sender::{Dependencies, Sender};
use ichido_delivery::settings::{Identity, Raw};
use ichido_delivery::store::Store;
use ichido_delivery::tls_roots::TlsRoots;
use ichido_delivery::token::{Source, Token};
use ichido_delivery::transport::{HttpTransport, Options, Transport};
use ichido_delivery::{Batch, Batcher, Record};
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// As in `ichido send`.
const AHEAD: usize = 16;
const BATCH: usize = 100;

/// `bare URL FILE CONCURRENCY`, or `sender URL FILE DATA with|without`
pub(crate) fn run(role: &[String]) {
    match role {
        [name, url, file, concurrency] if name == "bare" => bare(url, file, concurrency.parse().unwrap()),
        [name, url, file, data, receipts] if name == "sender" => sender(url, file, data, receipts == "with"),
        _ => panic!("unknown role {role:?}"),
    }
}

/// Sends a file as `ichido send` does.
fn sender(url: &str, file: &str, data: &str, has_receipts: bool) {
    let raw = Raw {
        data_dir: data.into(),
        endpoint: Some(url.to_owned()),
        allow_http_loopback: true,
        token: Some("bench-token".to_owned().into()),
        ..Raw::default()
    };
    let mut settings = raw.check(&Identity::default()).unwrap();
    if !has_receipts {
        settings.store.receipt_retention = Duration::ZERO;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let notices = Notices::open(&settings.data_dir.join("notices"), Vec::new(), clock.clone()).unwrap();
    let token = Token::open(settings.token.clone()).unwrap();
    let transport = HttpTransport::new(settings.transport.clone(), &TlsRoots::default(), token).unwrap();
    let dependencies = Dependencies {
        store: Store::open(&settings.data_dir, settings.store, clock.now()).unwrap(),
        transport: Arc::new(transport),
        notifier: Arc::new(Notifier::new(notices, url)),
        clock,
        entropy: Arc::new(SystemEntropy),
        stop: CancellationToken::new(),
    };
    let (batches, mut ahead) = mpsc::channel(AHEAD);
    let file = PathBuf::from(file);
    let reader = std::thread::spawn(move || read(&file, &batches, has_receipts));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut sender = Sender::new(&settings, dependencies);
        // Batches that are ready share a file.
        while let Some(batch) = sender.work_until(ahead.recv()).await {
            let mut ready = vec![batch];
            while ready.len() < AHEAD
                && let Ok(batch) = ahead.try_recv()
            {
                ready.push(batch);
            }
            sender.send(ready).await.unwrap();
        }
        sender.finish().await;
    });
    reader.join().unwrap();
}

fn bare(url: &str, file: &str, concurrency: NonZeroUsize) {
    let endpoint = Endpoint::parse("URL", url, true).unwrap();
    let options = Options {
        endpoint,
        timeout: Duration::from_secs(30),
        user_agent: "ichido-bench".to_owned(),
        concurrency,
    };
    let token = Token::open(Source::Value(SecretString::from("bench-token"))).unwrap();
    let transport = Arc::new(HttpTransport::new(options, &TlsRoots::default(), token).unwrap());
    let (sender, mut batches) = mpsc::channel(AHEAD);
    let file = PathBuf::from(file);
    let reader = std::thread::spawn(move || read(&file, &sender, false));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut under_way = JoinSet::new();
        while let Some(batch) = batches.recv().await {
            if under_way.len() == concurrency.get() {
                under_way.join_next().await.unwrap().unwrap();
            }
            let transport = transport.clone();
            under_way.spawn(async move {
                let request = Request::new(&batch, &Envelope::Plain, Timestamp(0), false);
                let exchange = transport.post(&request).await;
                assert_eq!(exchange.status(), Some(200), "{exchange:?}");
            });
        }
        under_way.join_all().await;
    });
    reader.join().unwrap();
}

/// Reads batches. Digests are for receipts, and are computed here, as in `ichido send`.
fn read(file: &std::path::Path, sender: &mpsc::Sender<Batch>, has_receipts: bool) {
    let send = |batch: Batch| {
        if has_receipts {
            batch.digest();
        }
        sender.blocking_send(batch).unwrap();
    };
    let mut batcher = Batcher::new(BATCH, 4 << 20);
    for item in Input::open(file).unwrap() {
        let Item::Record(record) = item.unwrap() else { panic!("no record") };
        if let Some(batch) = batcher.push(Record::new(record.raw).unwrap()) {
            send(batch);
        }
    }
    if let Some(batch) = batcher.finish() {
        send(batch);
    }
}
