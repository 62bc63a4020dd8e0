//! The actions that may happen, in any order.

use std::io::ErrorKind;

use ichido_delivery::disk::Op;
use proptest::prelude::*;

use super::faults::{Fault, FaultKind};
use super::receiver::{Behavior, Dedup};

/// The batches to send: the number of records of each.
pub(crate) const BATCHES: [usize; 6] = [1, 2, 3, 5, 8, 1];

/// What stays the same during a test case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// A bit per batch: whether one of its records is rejected.
    pub(crate) bad: u8,
    /// A bit per batch: whether the receiver already has one of its records.
    pub(crate) known: u8,
    /// What the receiver deduplicates.
    pub(crate) dedup: Dedup,
    /// The receiver returns a result for each record.
    pub(crate) by_record: bool,
    /// Files are compressed.
    pub(crate) gzip: bool,
    /// The most records that the receiver accepts in one request.
    pub(crate) records_max: usize,
    /// `SPOOL_MAX_BYTES`
    pub(crate) max_bytes: u32,
    /// `RESEND_WINDOW` is set.
    pub(crate) window: bool,
    /// Requests per second.
    pub(crate) rate: u32,
    /// How requests overlap.
    pub(crate) overlap: Overlap,
}

/// How requests overlap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overlap {
    /// `SEND_CONCURRENCY`
    pub(crate) concurrency: usize,
    /// How long after a request its response arrives.
    pub(crate) latency_ms: u64,
}

pub(crate) fn overlap() -> impl Strategy<Value = Overlap> {
    (1usize..5, prop::sample::select(vec![0u64, 50]))
        .prop_map(|(concurrency, latency_ms)| Overlap { concurrency, latency_ms })
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            bad: 0,
            known: 0,
            dedup: Dedup::default(),
            by_record: false,
            gzip: false,
            records_max: 100,
            max_bytes: 0,
            window: false,
            rate: 0,
            overlap: Overlap { concurrency: 4, latency_ms: 0 },
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A caller sends a batch.
    Send(usize),
    /// A caller sends several batches together, perhaps the same one twice.
    SendGroup(Vec<usize>),
    /// A caller sends an invalid input item.
    Invalid(u8),
    /// The process makes a pass over the spool.
    Pass,
    /// The process is asked to stop. Another one starts when it is needed.
    Stop,
    /// The process crashes between two operations.
    Kill,
    /// A fault is injected into a later operation.
    Fault(Fault),
    /// The receiver behaves like this next.
    Script(Vec<Behavior>),
    /// The receiver accepts the token, or no longer.
    Token(bool),
    /// Time passes.
    Wait(u32),
    /// The wall clock is set forward or back by this many seconds.
    SetClock(i32),
    /// An operator resends spooled batches while the process is running.
    Resend { force: bool, only: Option<usize> },
    /// An operator resends failed batches.
    FailedResend { only: Option<usize> },
    /// An operator reads: list, show, fsck.
    Look,
    /// A file in the spool is damaged.
    Damage(usize),
    /// A foreign file is put into the spool.
    ForeignFile,
    /// The channel for notices works, or does not.
    Channel(bool),
}

pub(crate) fn actions() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        6 => (0..BATCHES.len()).prop_map(Action::Send),
        6 => prop::collection::vec(0..BATCHES.len(), 2..6).prop_map(Action::SendGroup),
        1 => (0u8..3).prop_map(Action::Invalid),
        8 => Just(Action::Pass),
        2 => Just(Action::Stop),
        2 => Just(Action::Kill),
        8 => fault().prop_map(Action::Fault),
        10 => prop::collection::vec(behavior(), 1..7).prop_map(Action::Script),
        2 => any::<bool>().prop_map(Action::Token),
        4 => (0u32..200_000).prop_map(Action::Wait),
        2 => (-1_000_000i32..1_000_000).prop_map(Action::SetClock),
        3 => (any::<bool>(), prop::option::of(0..BATCHES.len()))
            .prop_map(|(force, only)| Action::Resend { force, only }),
        2 => prop::option::of(0..BATCHES.len()).prop_map(|only| Action::FailedResend { only }),
        1 => Just(Action::Look),
        1 => (0usize..4).prop_map(Action::Damage),
        1 => Just(Action::ForeignFile),
        1 => any::<bool>().prop_map(Action::Channel),
    ];
    prop::collection::vec(one, 1..14)
}

fn fault() -> impl Strategy<Value = Fault> {
    let op = prop::sample::select(vec![
        Op::Create,
        Op::Write,
        Op::Sync,
        Op::Rename,
        Op::SyncDir,
        Op::Remove,
        Op::Read,
    ]);
    let error = prop::sample::select(vec![
        ErrorKind::StorageFull,
        ErrorKind::StorageFull,
        ErrorKind::PermissionDenied,
        ErrorKind::ReadOnlyFilesystem,
        ErrorKind::Other,
    ]);
    let kinds = prop_oneof![2 => Just(FaultKind::Crash), 1 => (error, 1u32..4).prop_map(|(kind, times)| FaultKind::Error(kind, times))];
    // At a specific kind of operation, or anywhere.
    prop_oneof![
        (prop::option::weighted(0.7, op), 0u32..4, kinds.clone()).prop_map(|(op, after, kind)| Fault {
            op,
            after,
            kind
        }),
        (0u32..40, kinds).prop_map(|(after, kind)| Fault { op: None, after, kind }),
    ]
}

fn behavior() -> impl Strategy<Value = Behavior> {
    prop_oneof![
        4 => Just(Behavior::Accept),
        3 => Just(Behavior::AcceptAndDisconnect),
        2 => Just(Behavior::AcceptAndCrash),
        1 => Just(Behavior::Crash),
        6 => prop::sample::select(vec![500u16, 502, 503, 504, 408, 429]).prop_map(Behavior::Status),
        1 => prop::sample::select(vec![401u16, 403, 404, 302, 501]).prop_map(Behavior::Status),
        2 => (prop::sample::select(vec![429u16, 503]), 0u32..200_000)
            .prop_map(|(status, seconds)| Behavior::RetryAfter(status, seconds)),
        2 => Just(Behavior::Timeout),
        2 => any::<bool>().prop_map(|fails| Behavior::Slow { fails }),
        3 => Just(Behavior::Disconnect),
        1 => Just(Behavior::Tls),
        2 => Just(Behavior::Half),
    ]
}
