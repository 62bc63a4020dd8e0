//! What `ichido send` is compared with: the same reader, batching and client, with as many requests under way, but
//! nothing is stored. If it crashes, whatever is in its memory is lost.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::Timestamp;
use ichido_delivery::endpoint::Endpoint;
use ichido_delivery::input::{Input, Item};
use ichido_delivery::request::{Envelope, Request};
use ichido_delivery::tls_roots::TlsRoots;
use ichido_delivery::token::{Source, Token};
use ichido_delivery::transport::{HttpTransport, Options, Transport};
use ichido_delivery::{Batch, Batcher, Record};
use secrecy::SecretString;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// As in `ichido send`.
const AHEAD: usize = 16;
const BATCH: usize = 100;

/// `bare URL FILE CONCURRENCY`
pub(crate) fn run(role: &[String]) {
    let [name, url, file, concurrency] = role else { panic!("unknown role {role:?}") };
    assert_eq!(name, "bare");
    let concurrency: NonZeroUsize = concurrency.parse().unwrap();
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
    let reader = std::thread::spawn(move || read(&file, &sender));
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

fn read(file: &std::path::Path, sender: &mpsc::Sender<Batch>) {
    let mut batcher = Batcher::new(BATCH, 4 << 20);
    for item in Input::open(file).unwrap() {
        let Item::Record(record) = item.unwrap() else { panic!("no record") };
        if let Some(batch) = batcher.push(Record::new(record.raw).unwrap()) {
            sender.blocking_send(batch).unwrap();
        }
    }
    if let Some(batch) = batcher.finish() {
        sender.blocking_send(batch).unwrap();
    }
}
