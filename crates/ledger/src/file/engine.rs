//! The engine: a log-structured store, opened with small journals and one keyspace per purpose.
//!
//! | keyspace   | under        | what                                     |
//! |------------|--------------|------------------------------------------|
//! | `grants`   | commit       | claims that were only granted, by commit |
//! | `open`     | index        | other claims, running or in doubt        |
//! | `done`     | index        | completed claims, with small outcomes    |
//! | `outcomes` | index        | large outcomes                           |
//! | `marks`    | index        | marks                                    |
//! | `ends`     | end, commit  | what ends when                           |
//! | `meta`     | name         | format, last commit, openings            |
//!
//! A commit is synced before it is applied to what readers see. So whatever can be read is durable.
//!
//! The engine holds a writer up when its background work lags, in loops that never end if that work has died (as on a
//! full disk). [`Engine::steady`] waits before a commit instead, and notices the death.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PinningPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
    Slice,
};

use super::fault;
use super::fresh::Fresh;
use super::meta::{self, COMMIT_KEY, Commit, FORMAT, FORMAT_KEY, FORMAT_ONE, FORMAT_TWO, OPENINGS_KEY};
use super::openings::Openings;
use crate::{Error, Result};

const KEYSPACES: [&str; 6] = ["meta", "open", "done", "outcomes", "marks", "ends"];
/// Since format 2.
const GRANTS: &str = "grants";
/// Small: hot outcomes are in a cache of our own, filters and indexes are pinned, and the system caches files as well.
const CACHE_BYTES: u64 = 3 * 1024 * 1024;
/// An index has an entry for each block and is in memory: with millions of claims, large blocks keep it small.
const BLOCK_BYTES: u32 = 16 * 1024;
/// What was completed is read by those repeats alone that our own cache does not answer, and ends in their order.
const LARGE_BLOCK_BYTES: u32 = 32 * 1024;
/// The least that the engine allows. What is in the journal is replayed at opening.
const JOURNAL_BYTES: u64 = 64 * 1024 * 1024;
/// One of them does not compact, and while all the others do, it asks in a loop without a pause whether one is free.
const WORKERS: usize = 4;
/// Never reached: we write tables by what the journal has grown ([`FLUSH_BYTES`]).
const MEMTABLE_BYTES: u64 = 128 * 1024 * 1024;
/// After so many bytes of journal, everything is written into tables. What is in tables need not be built up again at
/// opening, and a small memtable is searched faster and takes less memory. The engine begins a new journal only when it
/// writes a table and the journal is longer than 64 MB; if each keyspace went by its own size, the journal would grow
/// to 80 MB and more. Not smaller: each table costs a sync that holds the writer up, and a share in the rewriting of
/// larger tables.
pub(super) const FLUSH_BYTES: u64 = 8_000_000;
/// Tables of the first level that are merged into the next one together. Keys are hashes, so each merge rewrites all of that
/// level: the more it takes along, the fewer times a record is written. Each of them is one more filter to ask.
const RUNS_MERGED: u8 = 8;
/// A level begins at [`RUNS_MERGED`] tables of this size; what is beyond goes down to the next one, table by table.
const TABLE_BYTES: u64 = 8 * 1024 * 1024;
/// Below the counts at which the engine itself would hold us up.
const SEALED_MAX: usize = 3;
const RUNS_MAX: usize = 18;

/// The open store.
pub(super) struct Engine {
    pub(super) db: Database,
    pub(super) meta: Keyspace,
    pub(super) grants: Keyspace,
    pub(super) open: Keyspace,
    pub(super) done: Keyspace,
    pub(super) outcomes: Keyspace,
    pub(super) marks: Keyspace,
    pub(super) ends: Keyspace,
    /// What lies in `grants` and has not ended. It belongs to this engine: whoever still reads from one that is being
    /// closed finds it there.
    pub(super) fresh: Fresh,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

/// Whether a store is to be made or must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    New,
    Whole,
}

impl Engine {
    /// Opens the engine's files in `path`. `dir` is the ledger's directory, for errors.
    ///
    /// The engine panics on some kinds of damage; that is an error here.
    pub(super) fn open(dir: &Path, path: &Path, expect: Expect) -> Result<Self> {
        let opened = catch_unwind(AssertUnwindSafe(|| Self::open_unguarded(path, expect)));
        match opened {
            Ok(Ok(Some(engine))) => Ok(engine),
            Ok(Ok(None)) => Err(fault::damaged(dir, "a keyspace is missing")),
            Ok(Err(error)) => Err(fault::engine(dir, "opening", error)),
            Err(_) => Err(fault::panicked(dir, "opening")),
        }
    }

    fn open_unguarded(path: &Path, expect: Expect) -> fjall::Result<Option<Self>> {
        let db = Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES)
            .worker_threads(WORKERS)
            .open()?;
        if expect == Expect::Whole && !KEYSPACES.iter().all(|name| db.keyspace_exists(name)) {
            return Ok(None);
        }
        let lacks_grants = expect == Expect::Whole && !db.keyspace_exists(GRANTS);
        let keyspace = |name: &str| db.keyspace(name, || options(name));
        let meta = keyspace("meta")?;
        if lacks_grants && meta.get(FORMAT_KEY)?.as_deref() != Some(&meta::encode_format(FORMAT_ONE)[..]) {
            return Ok(None);
        }
        Ok(Some(Self {
            meta,
            grants: keyspace(GRANTS)?,
            open: keyspace("open")?,
            done: keyspace("done")?,
            outcomes: keyspace("outcomes")?,
            marks: keyspace("marks")?,
            ends: keyspace("ends")?,
            fresh: Fresh::new(),
            db,
        }))
    }

    /// A batch that is durable once it is committed.
    pub(super) fn batch(&self, capacity: usize) -> OwnedWriteBatch {
        OwnedWriteBatch::with_capacity(self.db.clone(), capacity).durability(Some(PersistMode::SyncData))
    }

    /// Whether the engine still takes commits: a failed write or a dead worker stops it for good.
    pub(super) fn healthy(&self) -> bool {
        self.db.persist(PersistMode::Buffer).is_ok()
    }

    /// Waits until background work has caught up. `false`: it has died.
    pub(super) fn steady(&self) -> bool {
        loop {
            if !self.healthy() {
                return false;
            }
            if !self.keyspaces().any(is_behind) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has what was committed so far written into tables, in the background. [`Engine::end_flush`] is to follow.
    pub(super) fn start_flush(&self) -> fjall::Result<()> {
        self.keyspaces()
            .filter(|keyspace| keyspace.name() != self.meta.name())
            .try_for_each(|keyspace| keyspace.rotate_memtable().map(drop))
    }

    /// The same for the rest, which is small. Of what is in tables by now the copies in memory go: the engine lets go
    /// of them only when it begins to write another table, and without this that would be at the next flush.
    pub(super) fn end_flush(&self) -> fjall::Result<()> {
        self.meta.rotate_memtable().map(drop)
    }

    /// Whether everything that was to be written into tables is there.
    pub(super) fn is_flushed(&self) -> bool {
        self.keyspaces().all(|keyspace| keyspace.tree.sealed_memtable_count() == 0)
    }

    /// Writes everything into tables. After a failed sync the pages of a journal may look clean and yet not be on the
    /// disk; tables are written anew and synced.
    pub(super) fn flush(&self) -> fjall::Result<bool> {
        self.start_flush()?;
        self.end_flush()?;
        while !self.is_flushed() {
            if !self.healthy() {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(true)
    }

    fn keyspaces(&self) -> impl Iterator<Item = &Keyspace> {
        [&self.meta, &self.grants, &self.open, &self.done, &self.outcomes, &self.marks, &self.ends]
            .into_iter()
    }

    /// The last commit, or nothing in a store that is being made.
    pub(super) fn last_commit(&self, dir: &Path) -> Result<Option<Commit>> {
        let value = self.meta_value(dir, COMMIT_KEY)?;
        value.map(|value| Commit::decode(&value).map_err(|flaw| fault::flaw(dir, "meta", flaw))).transpose()
    }

    /// The openings so far.
    pub(super) fn openings(&self, dir: &Path) -> Result<Openings> {
        let value = self.meta_value(dir, OPENINGS_KEY)?;
        let openings = value.map(|value| Openings::decode(&value)).transpose();
        Ok(openings.map_err(|flaw| fault::flaw(dir, "meta", flaw))?.unwrap_or_default())
    }

    /// The format of the store, if it is one that this version reads.
    pub(super) fn check_format(&self, dir: &Path) -> Result<u32> {
        let value = self.meta_value(dir, FORMAT_KEY)?;
        let format = value.as_deref().map_or(Err("it is missing"), meta::decode_format);
        match format.map_err(|flaw| fault::flaw(dir, "meta", flaw))? {
            known @ (FORMAT_ONE | FORMAT_TWO | FORMAT) => Ok(known),
            other => Err(super::holder::other_format(dir, other)),
        }
    }

    fn meta_value(&self, dir: &Path, key: &[u8]) -> Result<Option<Slice>> {
        guarded(dir, || self.meta.get(key))
    }
}

/// Reads from the engine; its errors and panics become ours.
pub(super) fn guarded<T>(dir: &Path, read: impl FnOnce() -> fjall::Result<T>) -> Result<T, Error> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(fault::engine(dir, "reading", error)),
        Err(_) => Err(fault::panicked(dir, "reading")),
    }
}

fn is_behind(keyspace: &Keyspace) -> bool {
    keyspace.tree.sealed_memtable_count() >= SEALED_MAX || keyspace.tree.l0_run_count() >= RUNS_MAX
}

fn options(name: &str) -> KeyspaceCreateOptions {
    // Records are mostly hashes and random bytes, which do not get smaller; outcomes do.
    let compression = match name {
        "done" | "outcomes" => CompressionType::Lz4,
        _ => CompressionType::None,
    };
    let options = KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE_BYTES)
        .compaction_strategy(Arc::new(
            Leveled::default().with_l0_threshold(RUNS_MERGED).with_table_target_size(TABLE_BYTES),
        ))
        .data_block_compression_policy(CompressionPolicy::all(compression));
    match name {
        // Never asked for one key.
        "ends" | GRANTS => options
            .data_block_size_policy(BlockSizePolicy::all(LARGE_BLOCK_BYTES))
            .filter_policy(FilterPolicy::disabled()),
        // Asked only for what is there: what finds it may be on the disk.
        "outcomes" => options.data_block_size_policy(BlockSizePolicy::all(LARGE_BLOCK_BYTES)),
        // Most claims are new: "not here" must be known without a look at the disk.
        _ => options
            .data_block_size_policy(BlockSizePolicy::all(match name {
                "done" => LARGE_BLOCK_BYTES,
                _ => BLOCK_BYTES,
            }))
            .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(
                12.0,
            ))))
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(true)),
    }
}
