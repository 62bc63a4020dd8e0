//! Opening the store: make it, or make sure that it is whole.
//!
//! While a store is being made, a file `making` says so: a `store` without it is whole, one with it is made anew, and a
//! missing one beside a high-water mark is a loss, not a beginning. A store is used as it was made, without opening it
//! again: its first journal has room that can be taken ahead (see [`super::ahead`]).

use std::fs;
use std::sync::Arc;

use ichido_core::{Clock, SteadyTime, Timestamp};

use super::engine::{Engine, Expect};
use super::highwater::{self, HighWater, Mark};
use super::holder::{Held, sync_dir};
use super::meta::{self, COMMIT_KEY, Commit, FORMAT_KEY, OPENINGS_KEY};
use super::openings::Openings;
use super::{fault, journal, manifest};
use crate::Result;

/// A store that is open and whole.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) engine: Engine,
    pub(super) last: Commit,
}

/// An opening: a store, its time and its openings.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) store: Store,
    pub(super) time: SteadyTime,
    pub(super) openings: Openings,
    pub(super) high_water: HighWater,
}

/// Opens the store, makes it if there is none, and begins a new epoch.
pub(super) fn begin(held: &Held, clock: Arc<dyn Clock>) -> Result<Begun> {
    let dir = held.dir();
    let mark = read_mark(held)?;
    let mut store = match (held.path("store").exists(), held.path("making").exists()) {
        (true, false) => {
            if mark == Mark::Missing {
                tracing::warn!(dir = %dir.display(), "there is no high-water mark: a store that lost claims is not noticed");
            }
            open(held)?
        }
        (_, true) if mark != Mark::Missing => {
            return Err(fault::damaged(
                dir,
                "a file `making` says that its store is not complete, but it was in use",
            ));
        }
        (false, false) if mark != Mark::Missing => return Err(fault::damaged(dir, "its store is missing")),
        (_, true) | (false, false) => make(held, &*clock)?,
    };
    let time = SteadyTime::start(clock, store.last.time);
    let mut openings = store.engine.openings(dir)?;
    let now = time.now();
    openings.begin(now, store.last.time);
    store.last = Commit { sequence: store.last.sequence + 1, time: now, ..store.last };
    let mut batch = store.engine.batch(2);
    batch.insert(&store.engine.meta, OPENINGS_KEY, openings.encode());
    batch.insert(&store.engine.meta, COMMIT_KEY, store.last.encode().as_slice());
    batch.commit().map_err(|error| fault::engine(dir, "opening", error))?;
    let high_water = HighWater::open(&held.path("high-water"), store.last.sequence)
        .map_err(|error| fault::io(dir, "opening", error))?;
    Ok(Begun { store, time, openings, high_water })
}

/// Opens a store that must be there. Nothing is touched before it is known to hold all that was acknowledged.
pub(super) fn open(held: &Held) -> Result<Store> {
    let dir = held.dir();
    let path = held.path("store");
    let acknowledged = match read_mark(held)? {
        Mark::At(sequence) => sequence,
        Mark::Missing | Mark::Damaged => 0,
    };
    let journals = journal::examine(&path, acknowledged).map_err(|error| fault::journals(dir, error))?;
    if let Some(last) = journals.last.filter(|last| *last < acknowledged) {
        return Err(fault::behind(dir, last, acknowledged));
    }
    manifest::examine(&path).map_err(|error| fault::damaged(dir, error))?;
    let engine = Engine::open(dir, &path, Expect::Whole)?;
    engine.check_format(dir)?;
    let last = engine.last_commit(dir)?.unwrap_or_default();
    if last.sequence < acknowledged.max(journals.last.unwrap_or(0)) {
        return Err(fault::behind(dir, last.sequence, acknowledged));
    }
    Ok(Store { engine, last })
}

fn read_mark(held: &Held) -> Result<Mark> {
    let mark = highwater::read(&held.path("high-water"));
    match mark.map_err(|error| fault::io(held.dir(), "opening", error))? {
        Mark::Damaged => {
            let text = format!(
                "{} cannot be read, so it is not known what was acknowledged; if the store is whole, remove this file",
                held.path("high-water").display()
            );
            Err(crate::Error::new(crate::Kind::Corrupt(text), "opening the ledger"))
        }
        mark @ (Mark::Missing | Mark::At(_)) => Ok(mark),
    }
}

fn make(held: &Held, clock: &dyn Clock) -> Result<Store> {
    let dir = held.dir();
    let io = |error| fault::io(dir, "making", error);
    let (making, place) = (held.path("making"), held.path("store"));
    fs::File::create(&making).and_then(|file| file.sync_all()).map_err(io)?;
    sync_dir(dir).map_err(io)?;
    if place.exists() {
        fs::remove_dir_all(&place).map_err(io)?;
    }
    held.write_format().map_err(io)?;
    let engine = Engine::open(dir, &place, Expect::New)?;
    let last = Commit { sequence: 1, time: clock.now(), swept_to: Timestamp::default() };
    let mut batch = engine.batch(2);
    batch.insert(&engine.meta, FORMAT_KEY, meta::encode_format().as_slice());
    batch.insert(&engine.meta, COMMIT_KEY, last.encode().as_slice());
    batch.commit().map_err(|error| fault::engine(dir, "making", error))?;
    sync_dir(dir).map_err(io)?;
    fs::remove_file(&making).map_err(io)?;
    sync_dir(dir).map_err(io)?;
    Ok(Store { engine, last })
}
