//! The names: the live ones, the durable ones, and the changes in between.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::sync::Arc;

use rand::rngs::StdRng;

use super::survival::{Sequence, Survival};

/// Identifies a file regardless of its name. Never reused.
pub(super) type InodeId = u64;

type Names = BTreeMap<Arc<str>, InodeId>;

#[derive(Debug, Default)]
pub(super) struct Directory {
    live: Names,
    /// Equals `live` if nothing is pending.
    durable: Names,
    pending: Vec<(Sequence, Change)>,
}

#[derive(Debug)]
enum Change {
    Create { name: Arc<str>, inode: InodeId },
    Rename { to: Arc<str>, inode: InodeId },
    Remove { name: Arc<str> },
}

impl Directory {
    /// The file that a running process finds under this name.
    pub(super) fn live(&self, name: &str) -> Option<InodeId> {
        self.live.get(name).copied()
    }

    /// The file that has this name on the medium.
    pub(super) fn durable(&self, name: &str) -> Option<InodeId> {
        self.durable.get(name).copied()
    }

    /// The live names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, InodeId)> {
        self.live.iter().map(|(name, inode)| (&**name, *inode))
    }

    /// Gives a new file a name.
    pub(super) fn create(&mut self, name: &str, inode: InodeId, next: &mut Sequence) {
        self.change(Change::Create { name: name.into(), inode }, next);
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, next: &mut Sequence) -> io::Result<()> {
        let inode = self.live(from).ok_or(io::ErrorKind::NotFound)?;
        if from != to {
            self.change(Change::Rename { to: to.into(), inode }, next);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str, next: &mut Sequence) -> io::Result<()> {
        self.live(name).ok_or(io::ErrorKind::NotFound)?;
        self.change(Change::Remove { name: name.into() }, next);
        Ok(())
    }

    /// Makes all names durable.
    pub(super) fn sync(&mut self) {
        if !self.pending.is_empty() {
            self.pending.clear();
            self.durable.clone_from(&self.live);
        }
    }

    /// Makes some of the pending changes durable, in order, and forgets the others.
    pub(super) fn lose_power(&mut self, survival: Survival, rng: &mut StdRng) {
        if self.pending.is_empty() {
            return;
        }
        for (sequence, change) in mem::take(&mut self.pending) {
            if survival.keeps(sequence, rng) {
                change.apply(&mut self.durable);
            }
        }
        self.live.clone_from(&self.durable);
    }

    /// All files that have a name, or that a pending change may give one.
    pub(super) fn inodes(&self) -> BTreeSet<InodeId> {
        let pending = self.pending.iter().filter_map(|(_, change)| change.inode());
        self.live.values().chain(self.durable.values()).copied().chain(pending).collect()
    }

    /// The sequence numbers of the pending changes.
    pub(super) fn pending(&self) -> impl Iterator<Item = Sequence> {
        self.pending.iter().map(|(sequence, _)| *sequence)
    }

    fn change(&mut self, change: Change, next: &mut Sequence) {
        change.apply(&mut self.live);
        self.pending.push((*next, change));
        *next += 1;
    }
}

impl Change {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { name, inode } => {
                names.insert(Arc::clone(name), *inode);
            }
            Self::Rename { to, inode } => {
                // If an earlier rename was lost, the file still has an older name.
                names.retain(|_, named| named != inode);
                names.insert(Arc::clone(to), *inode);
            }
            Self::Remove { name } => {
                names.remove(name);
            }
        }
    }

    fn inode(&self) -> Option<InodeId> {
        match self {
            Self::Create { inode, .. } | Self::Rename { inode, .. } => Some(*inode),
            Self::Remove { .. } => None,
        }
    }
}
