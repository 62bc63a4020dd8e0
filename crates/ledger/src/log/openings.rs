//! Openings: who was alive when.
//!
//! A claim remembers the opening (the *epoch*) in which it was last granted or renewed. When the store is opened
//! again, whoever held it then is gone: claims of the process itself are in doubt from the next opening on, and
//! remote ones get a fresh lease, because their callers could not renew while nobody listened. Nothing is scanned for
//! this: what a record means is worked out when it is read.

use ichido_core::{Doubt, DoubtReason, Holder, Record, State, Timestamp};

use super::reader::{Flaw, Reader, VERSION};

/// Openings that are remembered. A claim that slept through more of them is judged by the oldest.
const REMEMBERED: usize = 512;

/// One opening of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opening {
    epoch: u64,
    opened_at: Timestamp,
    /// The last sign of life of the opening before.
    before_ended_at: Timestamp,
}

/// The openings of a store; the last one is ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Openings(Vec<Opening>);

impl Openings {
    /// The number of the present opening.
    pub(crate) fn epoch(&self) -> u64 {
        self.0.last().map_or(0, |opening| opening.epoch)
    }

    /// Adds the present opening.
    pub(crate) fn begin(&mut self, opened_at: Timestamp, before_ended_at: Timestamp) {
        let epoch = self.epoch() + 1;
        self.0.push(Opening { epoch, opened_at, before_ended_at });
        let surplus = self.0.len().saturating_sub(REMEMBERED);
        self.0.drain(..surplus);
    }

    /// What a record of an earlier opening means in this one.
    pub(crate) fn revive(&self, record: &mut Record, epoch: u64) {
        if record.state != State::Running {
            return;
        }
        let later = self.0.partition_point(|opening| opening.epoch <= epoch);
        for opening in &self.0[later..] {
            match record.holder {
                Holder::Process => {
                    let doubt = Doubt { since: opening.opened_at, reason: DoubtReason::HolderGone };
                    // A lease that had lapsed before stays lapsed: it is in doubt since then.
                    if opening.before_ended_at < record.lease_until() {
                        record.state = State::InDoubt(doubt);
                    }
                    return;
                }
                Holder::Remote if opening.before_ended_at < record.lease_until() => {
                    record.renewed_at = opening.opened_at;
                }
                Holder::Remote => return,
            }
        }
    }

    /// The openings after this one: their numbers, when they began, and the last sign of life before.
    #[cfg(feature = "simulation")]
    pub(crate) fn since(&self, epoch: u64) -> Vec<(u64, Timestamp, Timestamp)> {
        let later = self.0.iter().filter(|opening| opening.epoch > epoch);
        later.map(|opening| (opening.epoch, opening.opened_at, opening.before_ended_at)).collect()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for opening in &self.0 {
            for number in [opening.epoch, opening.opened_at.0, opening.before_ended_at.0] {
                bytes.extend(number.to_be_bytes());
            }
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let mut reader = Reader::versioned(bytes)?;
        let mut openings = Vec::with_capacity(reader.0.len() / 24);
        while !reader.0.is_empty() {
            let epoch = reader.u64()?;
            let opened_at = Timestamp(reader.u64()?);
            let before_ended_at = Timestamp(reader.u64()?);
            openings.push(Opening { epoch, opened_at, before_ended_at });
        }
        Ok(Self(openings))
    }
}
