//! A disk in memory that loses, tears, reorders and fails whatever POSIX allows it to.
//!
//! The disk keeps two images. The *live* image is what a running process reads: the page cache and the current names. The
//! *durable* image is what the medium holds. A change reaches the live image at once and is then *pending*:
//!
//! - A write is pending until `File::sync` of its file. It is split at sector boundaries, and the pieces survive a power
//!   loss independently of each other, in any order. The length of the file survives independently too: a file may have
//!   grown without its data and reads as zeros there, or its data may be lost because the file has not grown.
//! - A created, renamed or removed name is pending until `Storage::sync_dir`. Each of these survives independently;
//!   a rename survives as a whole. Synced content without a durable name is lost along with the name.
//! - A failed sync of a file drops its pending writes. Some may have reached the medium. The others remain visible, but
//!   no later sync writes them, although it succeeds. A failed sync of the directory leaves its changes pending.
//!
//! `Storage::create` truncates an existing file in place, as `O_TRUNC` does: the truncation is one more pending change of
//! that file. After a power loss the old content may be back, even mixed with new writes. A model that creates a second
//! file under the same name would be more forgiving, because the content would be entirely old or entirely new. It would
//! also require a sync of the directory, which POSIX does not.
//!
//! A process ends in one of two ways. [`SimulatedDisk::restart`] is a power loss: pending changes survive at random.
//! [`SimulatedDisk::kill`] is `kill -9`: the live image remains, and pending changes remain pending. Both return a new
//! handle, and everything that was opened through an older handle fails from then on. To stop the process halfway
//! through an operation, call [`SimulatedDisk::crash_after`] first.
//!
//! All random choices come from the seed and the number of restarts. They repeat exactly if the operations do, which
//! requires that one thread makes them.

mod counts;
mod directory;
mod faults;
mod inode;
mod state;
mod survival;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::log::storage::{File, Storage};
use directory::InodeId;
use state::State;

pub use counts::Counts;
pub use faults::{Fault, FaultRates, Operation};
pub use inode::SECTOR_BYTES;

/// A handle to a simulated disk. Clones share the disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    /// How often the process had been restarted when this handle was made.
    generation: u64,
}

impl SimulatedDisk {
    /// Creates an empty disk.
    pub fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed))), generation: 0 }
    }

    /// Stops the process now: every operation fails until [`SimulatedDisk::restart`] or [`SimulatedDisk::kill`].
    pub fn crash(&self) {
        self.state().crash();
    }

    /// Lets `changes` more operations complete and crashes in the next one, which may have taken effect or not.
    ///
    /// Only operations that change something count: create, rename, remove, write, sync and sync_dir. A crash during a
    /// read would lead to no state that a crash in the next change does not lead to.
    pub fn crash_after(&self, changes: u64) {
        self.state().crash_after(changes);
    }

    /// Whether operations through this handle fail because of a crash.
    pub fn is_crashed(&self) -> bool {
        self.state().is_stopped(self.generation)
    }

    /// Simulates a power loss and the restart after it: the live image becomes what survived.
    #[must_use = "the old handle no longer works"]
    pub fn restart(&self) -> Self {
        let mut state = self.state();
        state.lose_power();
        self.at_generation(state.generation())
    }

    /// Simulates `kill -9` and the restart after it: the live image stays, and pending changes stay pending.
    #[must_use = "the old handle no longer works"]
    pub fn kill(&self) -> Self {
        let mut state = self.state();
        state.kill();
        self.at_generation(state.generation())
    }

    /// Makes operations fail at random. Replaces earlier rates; restarts do not change them.
    pub fn set_fault_rates(&self, rates: FaultRates) {
        self.state().faults.set_rates(rates);
    }

    /// Makes one operation fail: the next one of this kind after `skipped` others.
    pub fn schedule_fault(&self, operation: Operation, skipped: u64, fault: Fault) {
        self.state().faults.schedule(operation, skipped, fault);
    }

    /// Removes all fault rates and scheduled faults.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Flips a bit at rest, in both images. `bit` is taken modulo 8.
    ///
    /// Fails with `NotFound` if there is no such file, and with `UnexpectedEof` if neither image is that long.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) -> io::Result<()> {
        self.state().flip_bit(name, offset, bit)
    }

    /// The names and lengths of all files in the live image, sorted by name.
    pub fn files(&self) -> Vec<(String, u64)> {
        self.state().files()
    }

    /// The durable length of a file. `None` if its name is not durable.
    pub fn durable_len(&self, name: &str) -> Option<u64> {
        self.state().durable(name).map(|content| content.len() as u64)
    }

    /// The durable content of a file. `None` if its name is not durable.
    pub fn durable_content(&self, name: &str) -> Option<Vec<u8>> {
        self.state().durable(name).map(<[u8]>::to_vec)
    }

    /// What has happened on this disk since it was created, across restarts.
    pub fn counts(&self) -> Counts {
        self.state().counts()
    }

    fn at_generation(&self, generation: u64) -> Self {
        Self { state: Arc::clone(&self.state), generation }
    }

    fn file(&self, (inode, open): (InodeId, Arc<()>)) -> Arc<dyn File> {
        Arc::new(SimulatedFile { disk: self.clone(), inode, _open: open })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without the content of the files, which would drown a test report.
impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDisk").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Storage for SimulatedDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let opened = self.state().open(self.generation, name)?;
        Ok(self.file(opened))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let created = self.state().create(self.generation, name)?;
        Ok(self.file(created))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state().rename(self.generation, from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state().remove(self.generation, name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.state().list(self.generation)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.state().sync_dir(self.generation)
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    inode: InodeId,
    /// Keeps the inode while the file is open, even if its name has been removed.
    _open: Arc<()>,
}

impl File for SimulatedFile {
    fn len(&self) -> io::Result<u64> {
        self.disk.state().len(self.disk.generation, self.inode)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.state().read_at(self.disk.generation, self.inode, bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.state().write_at(self.disk.generation, self.inode, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.state().sync(self.disk.generation, self.inode)
    }
}
