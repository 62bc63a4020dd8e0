//! Callers in a closed loop, and what they measure.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ichido_core::{
    ClaimRequest, Entropy, Fingerprint, Holder, InDoubtPolicy, Key, Metadata, Nonce, SystemEntropy, Token,
};
use tokio::time::Instant;

/// The measurements of a run.
#[derive(Debug, Default)]
pub(crate) struct Measurement {
    /// Calls per second.
    pub(crate) rate: f64,
    latencies_us: Vec<u32>,
}

impl Measurement {
    /// The latency that this share of the calls did not exceed, in microseconds.
    pub(crate) fn percentile_us(&self, share: f64) -> f64 {
        let at = (self.latencies_us.len() as f64 * share) as usize;
        f64::from(*self.latencies_us.get(at.min(self.latencies_us.len().saturating_sub(1))).unwrap_or(&0))
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After this time.
    Time(Duration),
    /// After this many calls.
    Calls(u64),
}

/// Runs `callers` tasks that call again as soon as they get a reply. Each call has its own number.
pub(crate) async fn run_load<F, R>(callers: u64, until: Until, call: F) -> Measurement
where
    F: Fn(u64) -> R + Clone + Send + 'static,
    R: Future<Output = ()> + Send,
{
    run_load_each(callers, until, move |_| call.clone()).await
}

/// The same, with a separate call function per caller.
pub(crate) async fn run_load_each<F, R>(callers: u64, until: Until, call_of: impl Fn(u64) -> F) -> Measurement
where
    F: Fn(u64) -> R + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let tasks = (0..callers).map(|caller| {
        let (call, next) = (call_of(caller), next.clone());
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            let mut then = Instant::now();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let over = match until {
                    Until::Time(time) => then.duration_since(start) >= time,
                    Until::Calls(calls) => number >= calls,
                };
                if over {
                    return latencies;
                }
                call(number).await;
                let now = Instant::now();
                latencies.push(u32::try_from(now.duration_since(then).as_micros()).unwrap_or(u32::MAX));
                then = now;
            }
        })
    });
    let mut seen = Measurement::default();
    for task in tasks.collect::<Vec<_>>() {
        seen.latencies_us.extend(task.await.unwrap());
    }
    seen.rate = seen.latencies_us.len() as f64 / start.elapsed().as_secs_f64();
    seen.latencies_us.sort_unstable();
    seen
}

/// A request for key number `number` of a family.
pub(crate) fn request(family: &str, number: u64) -> ClaimRequest {
    let draw = || SystemEntropy.draw();
    ClaimRequest {
        key: Key::unscoped(format!("{family}-{number:010}")).unwrap(),
        fingerprint: Fingerprint::from_bytes([7; 32]),
        caller: None,
        nonce: Nonce::from_bytes(draw()),
        token: Token::from_bytes(draw()),
        lease_ms: 30_000,
        retention_ms: 86_400_000,
        holder: Holder::Process,
        metadata: Metadata::default(),
        in_doubt: InDoubtPolicy::Reject,
    }
}
