//! Chance is passed in, so that a run can be replayed from its seed.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Where random bytes come from.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Sixteen random bytes.
    fn draw(&self) -> [u8; 16];
}

/// A cryptographically strong generator per thread, seeded by the operating system.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn draw(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        rand::rng().fill_bytes(&mut bytes);
        bytes
    }
}

/// The same bytes for the same seed.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn draw(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        bytes
    }
}
