//! What must survive does, in every run. What may be lost is lost in some runs and survives in others.

mod content;
mod faults;
mod names;
mod random_writes;
mod restarts;

use std::collections::BTreeSet;

use super::{SECTOR_BYTES, SimulatedDisk};
use crate::log::storage::{Storage, read_all};

/// Enough to see every pattern of survival.
const SEEDS: u64 = 400;

/// Runs a scenario with many seeds and returns the distinct results.
fn results<T: Ord>(scenario: impl Fn(SimulatedDisk) -> T) -> BTreeSet<T> {
    (0..SEEDS).map(|seed| scenario(SimulatedDisk::new(seed))).collect()
}

fn read(disk: &SimulatedDisk, name: &str) -> Option<Vec<u8>> {
    read_all(disk, name).unwrap()
}

/// A disk with one durable file.
fn with_file(disk: SimulatedDisk, name: &str, content: &[u8]) -> SimulatedDisk {
    let file = disk.create(name).unwrap();
    file.write_at(content, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    disk
}

/// The first byte of each sector, after a check that the sector is not torn.
fn sectors(content: &[u8]) -> String {
    let sector = |bytes: &[u8]| {
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn within a sector: {bytes:?}");
        if bytes[0] == 0 { '0' } else { char::from(bytes[0]) }
    };
    content.chunks(SECTOR_BYTES).map(sector).collect()
}

/// Content of whole sectors, one per character.
fn content(sectors: &str) -> Vec<u8> {
    sectors.bytes().flat_map(|byte| [byte; SECTOR_BYTES]).collect()
}

fn set<const N: usize>(texts: [&str; N]) -> BTreeSet<String> {
    texts.map(str::to_owned).into()
}
