//! A source of randomness is passed in, so that tests can repeat a run from its seed.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A source of random bytes.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Sixteen random bytes.
    fn draw(&self) -> [u8; 16];
}

/// A cryptographically secure generator per thread, seeded by the operating system.
#[derive(Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn draw(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        rand::rng().fill_bytes(&mut bytes);
        bytes
    }
}

/// A generator that gives the same bytes for the same seed.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    /// Creates a generator from a seed.
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
