//! Opening the store: make it, or make sure that it is whole.
//!
//! While a store is being made, a file `making` says so: a `store` without it is whole, one with it is made anew, and a
//! missing one beside a high-water mark is a loss, not a beginning. A store is used as it was made, without opening it
//! again: its first journal has room that can be taken ahead (see [`super::ahead`]).

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ichido_core::{Clock, SteadyTime, Timestamp};

use super::engine::{Engine, Expect, guarded};
use super::fresh::Spot;
use super::highwater::{self, HighWater, Mark};
use super::holder::{Held, sync_dir};
use super::meta::{self, COMMIT_KEY, Commit, FORMAT, FORMAT_KEY, FORMAT_ONE, OPENINGS_KEY};
use super::openings::Openings;
use super::{codec, fault, journal, manifest};
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
    let raised = held.format()? == Some(FORMAT_ONE);
    manifest::examine(&path, raised).map_err(|error| fault::damaged(dir, error))?;
    let engine = Engine::open(dir, &path, Expect::Whole)?;
    let format = engine.check_format(dir)?;
    let last = engine.last_commit(dir)?.unwrap_or_default();
    if last.sequence < acknowledged.max(journals.last.unwrap_or(0)) {
        return Err(fault::behind(dir, last.sequence, acknowledged));
    }
    if format != FORMAT {
        raise_format(held, &engine)?;
    }
    settle_grants(dir, &engine)?;
    Ok(Store { engine, last })
}

/// Makes a store of an older format one of ours. It can be read as it is; what is written from now on, only by versions that
/// know of it.
fn raise_format(held: &Held, engine: &Engine) -> Result<()> {
    held.write_format().map_err(|error| fault::io(held.dir(), "opening", error))?;
    let mut batch = engine.batch(1);
    batch.insert(&engine.meta, FORMAT_KEY, meta::encode_format(FORMAT).as_slice());
    batch.commit().map_err(|error| fault::engine(held.dir(), "opening", error))
}

/// Moves grants that did not end to `open`, and empties `grants`.
fn settle_grants(dir: &Path, engine: &Engine) -> Result<()> {
    let mut values = Vec::new();
    for guard in engine.grants.iter() {
        values.push(guarded(dir, || guard.into_inner())?);
    }
    if values.is_empty() {
        return Ok(());
    }
    let flaw = |flaw| fault::flaw(dir, "grants", flaw);
    let (mut granted, mut ended) = (Vec::new(), HashSet::new());
    for (key, value) in &values {
        let sequence = key.first_chunk().copied().map(u64::from_be_bytes);
        let sequence = sequence.filter(|_| key.len() == 8).ok_or("it has no number").map_err(flaw)?;
        let read = codec::decode_grants(value).map_err(flaw)?;
        granted.extend((0..).zip(read.granted).map(|(place, claim)| (Spot { sequence, place }, claim)));
        ended.extend(read.ended);
    }
    let mut batch = engine.batch(values.len());
    for (_, (index, bytes)) in granted.iter().filter(|(spot, _)| !ended.contains(spot)) {
        batch.insert(&engine.open, index.as_bytes().as_slice(), *bytes);
    }
    for (key, _) in &values {
        batch.remove(&engine.grants, key.clone());
    }
    batch.commit().map_err(|error| fault::engine(dir, "opening", error))
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
    batch.insert(&engine.meta, FORMAT_KEY, meta::encode_format(FORMAT).as_slice());
    batch.insert(&engine.meta, COMMIT_KEY, last.encode().as_slice());
    batch.commit().map_err(|error| fault::engine(dir, "making", error))?;
    sync_dir(dir).map_err(io)?;
    fs::remove_file(&making).map_err(io)?;
    sync_dir(dir).map_err(io)?;
    Ok(Store { engine, last })
}
