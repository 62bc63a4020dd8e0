//! Callers in a closed loop, and what they measure.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::histogram::Histogram;
use crate::process;

/// The measurements of one or more runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measurement {
    pub(crate) latencies: Histogram,
    pub(crate) seconds: f64,
    /// Processor time of this process, callers included.
    cpu_seconds: f64,
}

impl Measurement {
    /// Calls per second.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.calls() as f64 / self.seconds
    }

    /// Processor time per call, in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.latencies.calls() as f64
    }

    pub(crate) fn p99_us(&self) -> f64 {
        self.latencies.percentile_us(0.99)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
    }
}

/// When a run ends.
#[derive(Clone, Debug)]
pub(crate) enum Until {
    /// After this time.
    Time(Duration),
    /// After this many calls.
    Calls(u64),
    /// When this is set.
    Stopped(Arc<AtomicBool>),
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
    run_timed_each(callers, until, |caller| {
        let call = call_of(caller);
        move |number| {
            let reply = call(number);
            async move {
                reply.await;
                Instant::now()
            }
        }
    })
    .await
}

/// Like [`run_load`], for calls with a part that is not timed: a call returns when its timed part ended.
pub(crate) async fn run_timed<F, R>(callers: u64, until: Until, call: F) -> Measurement
where
    F: Fn(u64) -> R + Clone + Send + 'static,
    R: Future<Output = Instant> + Send,
{
    run_timed_each(callers, until, move |_| call.clone()).await
}

async fn run_timed_each<F, R>(callers: u64, until: Until, call_of: impl Fn(u64) -> F) -> Measurement
where
    F: Fn(u64) -> R + Send + 'static,
    R: Future<Output = Instant> + Send,
{
    let (start, cpu) = (Instant::now(), process::cpu_seconds());
    let next = Arc::new(AtomicU64::new(0));
    let tasks = (0..callers).map(|caller| {
        let (call, next, until) = (call_of(caller), next.clone(), until.clone());
        tokio::spawn(async move {
            let mut latencies = Histogram::default();
            loop {
                let (number, begun) = (next.fetch_add(1, Ordering::Relaxed), Instant::now());
                let over = match &until {
                    Until::Time(time) => begun.duration_since(start) >= *time,
                    Until::Calls(calls) => number >= *calls,
                    Until::Stopped(flag) => flag.load(Ordering::Relaxed),
                };
                if over {
                    return latencies;
                }
                let ended = call(number).await;
                latencies.record(ended.duration_since(begun).as_micros() as u64);
            }
        })
    });
    let mut seen = Measurement::default();
    for task in tasks.collect::<Vec<_>>() {
        seen.latencies.merge(&task.await.unwrap());
    }
    seen.seconds = start.elapsed().as_secs_f64();
    seen.cpu_seconds = process::cpu_seconds() - cpu;
    seen
}
