//! Decides which operations fail.

use std::io;

use rand::RngExt;
use rand::rngs::StdRng;

/// An operation of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opens a file.
    Open,
    /// Creates or truncates a file.
    Create,
    /// Renames a file.
    Rename,
    /// Removes a file.
    Remove,
    /// Lists the files.
    List,
    /// Syncs the names.
    SyncDir,
    /// Reads the length of a file.
    Len,
    /// Reads from a file.
    Read,
    /// Writes to a file.
    Write,
    /// Syncs a file.
    Sync,
}

impl Operation {
    /// Whether the operation changes an image.
    pub(super) fn is_change(self) -> bool {
        match self {
            Self::Open | Self::List | Self::Len | Self::Read => false,
            Self::Create | Self::Rename | Self::Remove | Self::SyncDir | Self::Write | Self::Sync => true,
        }
    }

    fn can_need_space(self) -> bool {
        match self {
            Self::Open | Self::Remove | Self::List | Self::Len | Self::Read => false,
            Self::Create | Self::Rename | Self::SyncDir | Self::Write | Self::Sync => true,
        }
    }
}

/// Why an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `EIO`: the device failed. The operation may have taken effect.
    Io,
    /// `ENOSPC`: the disk is full. A name has not changed; a write may have been cut short.
    NoSpace,
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        Self::from_raw_os_error(match fault {
            Fault::Io => 5,
            Fault::NoSpace => 28,
        })
    }
}

/// The probabilities, from 0 to 1, with which operations fail.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultRates {
    /// Open, list, len and read.
    pub read: f64,
    /// Write.
    pub write: f64,
    /// Sync of a file.
    pub sync: f64,
    /// Create, rename and remove.
    pub name: f64,
    /// Sync of the directory.
    pub sync_dir: f64,
}

impl FaultRates {
    /// The same probability for every operation.
    pub fn all(rate: f64) -> Self {
        Self { read: rate, write: rate, sync: rate, name: rate, sync_dir: rate }
    }

    fn of(&self, operation: Operation) -> f64 {
        match operation {
            Operation::Open | Operation::List | Operation::Len | Operation::Read => self.read,
            Operation::Write => self.write,
            Operation::Sync => self.sync,
            Operation::Create | Operation::Rename | Operation::Remove => self.name,
            Operation::SyncDir => self.sync_dir,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    rates: FaultRates,
    scheduled: Vec<Scheduled>,
}

#[derive(Debug)]
struct Scheduled {
    operation: Operation,
    skipped: u64,
    fault: Fault,
}

impl Faults {
    pub(super) fn set_rates(&mut self, rates: FaultRates) {
        self.rates = rates;
    }

    pub(super) fn schedule(&mut self, operation: Operation, skipped: u64, fault: Fault) {
        self.scheduled.push(Scheduled { operation, skipped, fault });
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Decides whether this operation fails.
    pub(super) fn draw(&mut self, operation: Operation, rng: &mut StdRng) -> Option<Fault> {
        self.take_scheduled(operation).or_else(|| {
            let rate = self.rates.of(operation);
            // Without faults, draw nothing: it would cost time on every operation.
            if rate <= 0.0 || rng.random::<f64>() >= rate {
                None
            } else if operation.can_need_space() && rng.random() {
                Some(Fault::NoSpace)
            } else {
                Some(Fault::Io)
            }
        })
    }

    fn take_scheduled(&mut self, operation: Operation) -> Option<Fault> {
        let mut due = None;
        for (index, scheduled) in self.scheduled.iter_mut().enumerate() {
            if scheduled.operation == operation {
                if scheduled.skipped > 0 {
                    scheduled.skipped -= 1;
                } else if due.is_none() {
                    due = Some(index);
                }
            }
        }
        due.map(|index| self.scheduled.remove(index).fault)
    }
}
