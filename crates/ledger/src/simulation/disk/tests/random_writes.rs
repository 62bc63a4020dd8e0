//! Random histories: each byte has a value that it may have; equal seeds give equal histories.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::{Counts, FaultRates, SimulatedDisk};
use super::read;
use crate::log::storage::Storage;

const FILE_BYTES: usize = 3_000;

/// What a byte may be after a power loss: what was last synced, or anything written since.
struct Model {
    live: Vec<u8>,
    allowed: Vec<Vec<u8>>,
    synced_length: usize,
}

impl Model {
    fn new(content: Vec<u8>) -> Self {
        let mut allowed = vec![vec![0]; FILE_BYTES];
        for (allowed, byte) in allowed.iter_mut().zip(&content) {
            *allowed = vec![*byte];
        }
        Self { synced_length: content.len(), live: content, allowed }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.live.resize(self.live.len().max(offset + bytes.len()), 0);
        self.live[offset..offset + bytes.len()].copy_from_slice(bytes);
        for (allowed, byte) in self.allowed[offset..].iter_mut().zip(bytes) {
            allowed.push(*byte);
        }
    }

    fn check(&self, survived: &[u8]) {
        assert!((self.synced_length..=self.live.len()).contains(&survived.len()));
        for (byte, allowed) in survived.iter().zip(&self.allowed) {
            assert!(allowed.contains(byte));
        }
    }
}

#[test]
fn every_byte_is_synced_or_was_written_later() {
    for seed in 0..30 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut disk = SimulatedDisk::new(seed);
        disk.create("a").unwrap();
        disk.sync_dir().unwrap();
        for _restart in 0..10 {
            let mut model = Model::new(read(&disk, "a").unwrap());
            let file = disk.open("a").unwrap();
            for _write in 0..rng.random_range(0..20) {
                let offset = rng.random_range(0..FILE_BYTES);
                let bytes = vec![rng.random(); rng.random_range(1..=FILE_BYTES - offset)];
                file.write_at(&bytes, offset as u64).unwrap();
                model.write(offset, &bytes);
                assert!(read(&disk, "a").unwrap() == model.live, "seed {seed}");
                if rng.random_bool(0.2) {
                    file.sync().unwrap();
                    model = Model::new(model.live);
                }
            }
            disk = disk.restart();
            model.check(&read(&disk, "a").unwrap());
        }
    }
}

/// Everything observable after a random history with faults, crashes and restarts.
fn history(seed: u64) -> (Vec<bool>, BTreeMap<String, Vec<u8>>, Counts) {
    let mut rng = StdRng::seed_from_u64(17);
    let mut disk = SimulatedDisk::new(seed);
    disk.set_fault_rates(FaultRates::all(0.05));
    let mut results = Vec::new();
    for _restart in 0..20 {
        disk.crash_after(rng.random_range(0..40));
        for _operation in 0..30 {
            let name = ["a", "b", "c"][rng.random_range(0..3)];
            let content = vec![rng.random(); rng.random_range(0..2_000)];
            let offset = rng.random_range(0..2_000);
            results.push(match rng.random_range(0..6) {
                0 => disk.create(name).is_ok(),
                1 => disk.rename(name, "a").is_ok(),
                2 => disk.sync_dir().is_ok(),
                3 => disk.remove(name).is_ok(),
                4 => disk.open(name).and_then(|file| file.sync()).is_ok(),
                _ => disk.open(name).and_then(|file| file.write_at(&content, offset)).is_ok(),
            });
        }
        disk = if rng.random() { disk.restart() } else { disk.kill() };
    }
    disk.clear_faults();
    let files = disk.files().into_iter().map(|(name, _)| (name.clone(), read(&disk, &name).unwrap()));
    (results, files.collect(), disk.counts())
}

#[test]
fn equal_seeds_give_equal_histories() {
    for seed in 0..20 {
        assert_eq!(history(seed), history(seed));
        assert_ne!(history(seed), history(seed + 1));
    }
}
