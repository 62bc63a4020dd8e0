//! The disk behind its lock: every operation, and what interrupts it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::counts::Counts;
use super::directory::{Directory, InodeId};
use super::faults::{Fault, Faults, Operation};
use super::inode::Inode;
use super::survival::{Sequence, Survival};

/// A file cannot grow larger. A wrong offset must not exhaust the memory of the test.
const MAX_FILE_BYTES: usize = 1 << 30;

#[derive(Debug)]
pub(super) struct State {
    pub(super) faults: Faults,
    seed: u64,
    /// The number of restarts. Handles of an older generation fail.
    generation: u64,
    rng: StdRng,
    directory: Directory,
    inodes: BTreeMap<InodeId, Inode>,
    next_inode: InodeId,
    next_sequence: Sequence,
    changes_before_crash: Option<u64>,
    is_crashed: bool,
    counts: Counts,
}

/// How an operation ends.
#[derive(Clone, Copy)]
enum Fate {
    Completes,
    Fails(Fault),
    Crashes,
}

impl Fate {
    fn result(self) -> io::Result<()> {
        match self {
            Self::Completes => Ok(()),
            Self::Fails(fault) => Err(fault.into()),
            Self::Crashes => Err(crashed()),
        }
    }
}

/// Starts, crashes, and what a driver may ask.
impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            faults: Faults::default(),
            seed,
            generation: 0,
            rng: random_stream(seed, 0),
            directory: Directory::default(),
            inodes: BTreeMap::new(),
            next_inode: 0,
            next_sequence: 0,
            changes_before_crash: None,
            is_crashed: false,
            counts: Counts::default(),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn crash(&mut self) {
        self.is_crashed = true;
    }

    pub(super) fn crash_after(&mut self, changes: u64) {
        self.changes_before_crash = Some(changes);
    }

    pub(super) fn is_stopped(&self, generation: u64) -> bool {
        self.is_crashed || generation != self.generation
    }

    pub(super) fn lose_power(&mut self) {
        self.counts.power_losses += 1;
        self.start_generation();
        // One pattern for the whole disk keeps its order across files; separate patterns break it.
        let common = self.rng.random::<bool>().then(|| {
            let files = self.inodes.values().flat_map(Inode::pending);
            Survival::draw(self.directory.pending().chain(files), &mut self.rng)
        });
        let names = common.unwrap_or_else(|| Survival::draw(self.directory.pending(), &mut self.rng));
        self.directory.lose_power(names, &mut self.rng);
        self.drop_nameless();
        for inode in self.inodes.values_mut() {
            let survival = common.unwrap_or_else(|| Survival::draw(inode.pending(), &mut self.rng));
            inode.interrupt(survival, &mut self.rng);
            inode.reload();
        }
    }

    pub(super) fn kill(&mut self) {
        self.counts.kills += 1;
        self.start_generation();
        self.drop_nameless();
    }

    pub(super) fn flip_bit(&mut self, name: &str, offset: u64, bit: u8) -> io::Result<()> {
        let id = self.directory.live(name).ok_or(io::ErrorKind::NotFound)?;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        if inode(&mut self.inodes, id)?.flip_bit(offset, bit) {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    pub(super) fn files(&self) -> Vec<(String, u64)> {
        let length = |id| self.inodes.get(&id).map_or(0, |inode| inode.live().len() as u64);
        self.directory.names().map(|(name, id)| (name.to_owned(), length(id))).collect()
    }

    pub(super) fn durable(&self, name: &str) -> Option<&[u8]> {
        Some(self.inodes.get(&self.directory.durable(name)?)?.durable())
    }

    /// Invalidates all handles.
    fn start_generation(&mut self) {
        self.generation += 1;
        self.rng = random_stream(self.seed, self.generation);
        self.is_crashed = false;
        self.changes_before_crash = None;
    }

    /// Frees the files that nobody can reach: handles of earlier generations do not count.
    fn drop_nameless(&mut self) {
        let named = self.directory.inodes();
        self.inodes.retain(|id, _| named.contains(id));
    }
}

/// The operations. Each takes the generation of its handle.
impl State {
    pub(super) fn open(&mut self, generation: u64, name: &str) -> io::Result<(InodeId, Arc<()>)> {
        self.begin(generation, Operation::Open)?.result()?;
        let id = self.directory.live(name).ok_or(io::ErrorKind::NotFound)?;
        Ok((id, inode(&mut self.inodes, id)?.open()))
    }

    pub(super) fn create(&mut self, generation: u64, name: &str) -> io::Result<(InodeId, Arc<()>)> {
        let fate = self.begin(generation, Operation::Create)?;
        if !self.changes_name(fate) {
            fate.result()?;
        }
        let id = match self.directory.live(name) {
            Some(id) => {
                inode(&mut self.inodes, id)?.truncate(&mut self.next_sequence);
                id
            }
            None => {
                let id = self.next_inode;
                self.next_inode += 1;
                self.inodes.insert(id, Inode::default());
                self.directory.create(name, id, &mut self.next_sequence);
                id
            }
        };
        fate.result()?;
        Ok((id, inode(&mut self.inodes, id)?.open()))
    }

    pub(super) fn rename(&mut self, generation: u64, from: &str, to: &str) -> io::Result<()> {
        let fate = self.begin(generation, Operation::Rename)?;
        if self.changes_name(fate) {
            self.directory.rename(from, to, &mut self.next_sequence)?;
        }
        fate.result()
    }

    pub(super) fn remove(&mut self, generation: u64, name: &str) -> io::Result<()> {
        let fate = self.begin(generation, Operation::Remove)?;
        if self.changes_name(fate) {
            self.directory.remove(name, &mut self.next_sequence)?;
        }
        fate.result()
    }

    pub(super) fn list(&mut self, generation: u64) -> io::Result<Vec<String>> {
        self.begin(generation, Operation::List)?.result()?;
        let mut names: Vec<String> = self.directory.names().map(|(name, _)| name.to_owned()).collect();
        // A real directory has no order either.
        names.shuffle(&mut self.rng);
        Ok(names)
    }

    pub(super) fn sync_dir(&mut self, generation: u64) -> io::Result<()> {
        let fate = self.begin(generation, Operation::SyncDir)?;
        let is_synced = match fate {
            Fate::Completes => true,
            Fate::Fails(_) => false,
            Fate::Crashes => self.rng.random(),
        };
        if is_synced {
            self.directory.sync();
            let named = self.directory.inodes();
            self.inodes.retain(|id, inode| inode.is_open() || named.contains(id));
        }
        fate.result()
    }

    pub(super) fn len(&mut self, generation: u64, id: InodeId) -> io::Result<u64> {
        self.begin(generation, Operation::Len)?.result()?;
        Ok(inode(&mut self.inodes, id)?.live().len() as u64)
    }

    pub(super) fn read_at(
        &mut self,
        generation: u64,
        id: InodeId,
        bytes: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        self.begin(generation, Operation::Read)?.result()?;
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let rest = inode(&mut self.inodes, id)?.live().get(start..).unwrap_or_default();
        bytes.copy_from_slice(rest.get(..bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    pub(super) fn write_at(
        &mut self,
        generation: u64,
        id: InodeId,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let fate = self.begin(generation, Operation::Write)?;
        self.counts.bytes_written += bytes.len() as u64;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if offset.saturating_add(bytes.len()) > MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let written = match fate {
            Fate::Completes => bytes.len(),
            Fate::Fails(_) | Fate::Crashes => match self.rng.random_range(0..4) {
                0 => 0,
                1 => bytes.len(),
                _ => self.rng.random_range(0..=bytes.len()),
            },
        };
        inode(&mut self.inodes, id)?.write(offset, &bytes[..written], &mut self.next_sequence);
        fate.result()
    }

    pub(super) fn sync(&mut self, generation: u64, id: InodeId) -> io::Result<()> {
        let fate = self.begin(generation, Operation::Sync)?;
        let inode = inode(&mut self.inodes, id)?;
        match fate {
            Fate::Completes => inode.sync(),
            Fate::Fails(_) => {
                let survival = Survival::draw(inode.pending(), &mut self.rng);
                inode.interrupt(survival, &mut self.rng);
            }
            // If the sync has not completed, any part of the data may survive: it is still pending.
            Fate::Crashes => {
                if self.rng.random() {
                    inode.sync();
                }
            }
        }
        fate.result()
    }

    /// Counts an operation and decides how it ends. Fails if the process is not running.
    fn begin(&mut self, generation: u64, operation: Operation) -> io::Result<Fate> {
        if self.is_stopped(generation) {
            return Err(crashed());
        }
        self.counts.count(operation);
        if operation.is_change() {
            match &mut self.changes_before_crash {
                Some(0) => {
                    self.crash();
                    return Ok(Fate::Crashes);
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        Ok(match self.faults.draw(operation, &mut self.rng) {
            Some(fault) => {
                self.counts.faults += 1;
                Fate::Fails(fault)
            }
            None => Fate::Completes,
        })
    }

    /// Whether an operation on a name takes effect, although it may not complete.
    fn changes_name(&mut self, fate: Fate) -> bool {
        match fate {
            Fate::Completes => true,
            Fate::Fails(Fault::NoSpace) => false,
            Fate::Fails(Fault::Io) | Fate::Crashes => self.rng.random(),
        }
    }
}

/// A file that is named or open. Only a defect of the simulation can lose it.
fn inode(inodes: &mut BTreeMap<InodeId, Inode>, id: InodeId) -> io::Result<&mut Inode> {
    inodes.get_mut(&id).ok_or_else(|| io::Error::other("simulated disk lost an inode"))
}

fn random_stream(seed: u64, generation: u64) -> StdRng {
    // The odd constant keeps the streams of neighbouring seeds apart.
    StdRng::seed_from_u64(seed.wrapping_add(generation.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

fn crashed() -> io::Error {
    io::Error::other("simulated crash")
}
