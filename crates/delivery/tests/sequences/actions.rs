//! What may happen, in any order.

use std::io::ErrorKind;

use ichido_delivery::disk::Op;
use proptest::prelude::*;

use crate::faults::{End, Plan};
use crate::receiver::{Knows, Says};

/// Batches that are there to be sent, and how many records each has.
pub(crate) const BATCHES: [usize; 6] = [1, 2, 3, 5, 8, 1];

/// What stays the same in a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A bit for each batch: whether one of its records is refused.
    pub(crate) bad: u8,
    /// A bit for each batch: whether the receiver has one of its records already.
    pub(crate) known: u8,
    /// What the receiver recognises.
    pub(crate) knows: Knows,
    /// The receiver speaks of each record.
    pub(crate) by_record: bool,
    /// Files are packed.
    pub(crate) gzip: bool,
    /// The receiver takes no more at once.
    pub(crate) most_records: usize,
    /// `SPOOL_MAX_BYTES`
    pub(crate) max_bytes: u32,
    /// There are hours for sending again.
    pub(crate) window: bool,
    /// Requests in a second.
    pub(crate) rate: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            bad: 0,
            known: 0,
            knows: Knows::default(),
            by_record: false,
            gzip: false,
            most_records: 100,
            max_bytes: 0,
            window: false,
            rate: 0,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// A caller gives a batch.
    Send(usize),
    /// A caller gives what is no record.
    Broken(u8),
    /// The process goes over what waits.
    Pass,
    /// The process is asked to end, and another one begins when it is needed.
    Stop,
    /// The process dies between two operations.
    Kill,
    /// The coming operations go otherwise.
    Plan(Plan),
    /// The receiver does these things next.
    Script(Vec<Says>),
    /// The receiver knows the token, or no longer.
    Token(bool),
    /// Time passes.
    Wait(u32),
    /// The wall clock is set by so many seconds.
    Jump(i32),
    /// An operator, beside the process: tries what waits now.
    Resend { force: bool, only: Option<usize> },
    /// An operator takes batches out of failed.
    FailedResend { only: Option<usize> },
    /// An operator looks: list, show, fsck.
    Look,
    /// A file in the spool is damaged.
    Damage(usize),
    /// A file of someone else is put there.
    Stray,
    /// The channel for notices works, or does not.
    Channel(bool),
}

pub(crate) fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        12 => (0..BATCHES.len()).prop_map(Move::Send),
        1 => (0u8..3).prop_map(Move::Broken),
        8 => Just(Move::Pass),
        2 => Just(Move::Stop),
        2 => Just(Move::Kill),
        8 => plan().prop_map(Move::Plan),
        10 => prop::collection::vec(says(), 1..7).prop_map(Move::Script),
        2 => any::<bool>().prop_map(Move::Token),
        4 => (0u32..200_000).prop_map(Move::Wait),
        2 => (-1_000_000i32..1_000_000).prop_map(Move::Jump),
        3 => (any::<bool>(), prop::option::of(0..BATCHES.len()))
            .prop_map(|(force, only)| Move::Resend { force, only }),
        2 => prop::option::of(0..BATCHES.len()).prop_map(|only| Move::FailedResend { only }),
        1 => Just(Move::Look),
        1 => (0usize..4).prop_map(Move::Damage),
        1 => Just(Move::Stray),
        1 => any::<bool>().prop_map(Move::Channel),
    ];
    prop::collection::vec(one, 1..14)
}

fn plan() -> impl Strategy<Value = Plan> {
    let op = prop::sample::select(vec![
        Op::Create,
        Op::Write,
        Op::Sync,
        Op::Rename,
        Op::SyncDir,
        Op::Remove,
        Op::Read,
    ]);
    let kind = prop::sample::select(vec![
        ErrorKind::StorageFull,
        ErrorKind::StorageFull,
        ErrorKind::PermissionDenied,
        ErrorKind::ReadOnlyFilesystem,
        ErrorKind::Other,
    ]);
    let end = prop_oneof![2 => Just(End::Death), 1 => (kind, 1u32..4).prop_map(|(kind, times)| End::Error(kind, times))];
    // At a point that has a name, or anywhere.
    prop_oneof![
        (prop::option::weighted(0.7, op), 0u32..4, end.clone()).prop_map(|(op, after, end)| Plan {
            op,
            after,
            end
        }),
        (0u32..40, end).prop_map(|(after, end)| Plan { op: None, after, end }),
    ]
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        4 => Just(Says::Take),
        3 => Just(Says::TakeAndHangUp),
        2 => Just(Says::TakeAndDie),
        1 => Just(Says::Die),
        6 => prop::sample::select(vec![500u16, 502, 503, 504, 408, 429]).prop_map(Says::Status),
        1 => prop::sample::select(vec![401u16, 403, 404, 302, 501]).prop_map(Says::Status),
        2 => (prop::sample::select(vec![429u16, 503]), 0u32..200_000)
            .prop_map(|(status, seconds)| Says::RetryAfter(status, seconds)),
        2 => Just(Says::Timeout),
        2 => any::<bool>().prop_map(|fails| Says::Slow { fails }),
        3 => Just(Says::HangUp),
        1 => Just(Says::Tls),
        2 => Just(Says::Half),
    ]
}
