//! Appends claims to a segmented log and finds them by hash. This is the store of `file:` ledgers, without its threads.
//!
//! ```text
//! calls ──▶ round: decide ──▶ engine: one frame, write, sync ──▶ view: index, records ──▶ answers
//!                                 │ segment full                    ▲ readers, without the writer
//!                                 ▼                                 │
//!                              jobs, compaction: indexes, dropped and recycled segments
//! ```
//!
//! What must stay true:
//!
//! - **Nothing is answered that is not durable.** A frame is synced before readers can see it, and its callers are answered
//!   after that.
//! - **A failed write or sync stops the store** until it was opened again and its end was written anew (`recovery`).
//! - **A store that fell behind what it acknowledged is not opened** (`high_water`, `scan`).
//! - **Bytes that do not decode are an error**, never an absent claim (`format` and `codec` draw the bytes).
//! - **Segments are dropped from the old end only**, after the log says so (`compaction`).
//! - **Claims of an earlier process are in doubt** from the next opening on (`openings`).
//!
//! Everything durable goes through [`storage`], which a simulated disk implements too.

mod active;
mod call;
mod codec;
mod compaction;
mod engine;
mod fault;
mod format;
mod hash_index;
mod high_water;
mod identity;
mod jobs;
mod open_cache;
mod openings;
mod options;
mod reader;
mod recovery;
mod round;
mod scan;
mod spares;
pub mod storage;
mod verify;
mod view;

pub(crate) use call::{Call, Reply};
pub(crate) use codec::{decode_claim, decode_mark};
pub(crate) use compaction::{Compaction, Effort, Next, is_worth_rotating};
pub(crate) use engine::Engine;
pub(crate) use fault::DENIED;
pub(crate) use format::{Location, RecordKind, segment_name};
pub(crate) use high_water::NAME as HIGH_WATER;
pub(crate) use identity::NAME as IDENTITY;
pub(crate) use options::Options;
pub use options::PlantedBug;
#[cfg(feature = "simulation")]
pub(crate) use recovery::Opened;
pub(crate) use recovery::{Reason, open};
pub(crate) use verify::verify;
pub(crate) use view::View;

/// Whether a file with this name makes its directory a store.
pub(crate) fn is_store_file(name: &str) -> bool {
    name == identity::NAME || name == high_water::NAME || format::parse_name(name, ".log").is_some()
}

/// Whether a backup needs this file, in addition to segments and the high-water mark.
pub(crate) fn is_backed_up(name: &str) -> bool {
    name == identity::NAME
        || format::parse_name(name, ".index").is_some()
        || name.starts_with(codec::OUTCOME_PREFIX)
}

/// Writes the high-water mark of a copy.
pub(crate) fn write_high_water(storage: &dyn storage::Storage, commit: u64) -> std::io::Result<()> {
    let mut mark = high_water::HighWater::open(storage, commit)?;
    mark.sync()
}
