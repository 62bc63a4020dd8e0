//! A reproducible random number generator (SplitMix64).

pub(super) struct SeededRandom(u64);

impl SeededRandom {
    /// Adjacent seeds must not be adjacent states of one sequence, or two workers would draw the same nonces.
    pub(super) fn new(seed: u64) -> Self {
        Self(mixed(mixed(seed)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// True with a probability of one in `times`.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }

    pub(super) fn nonce(&mut self) -> String {
        format!("{:016x}{:016x}", self.next(), self.next())
    }

    pub(super) fn shuffled(&mut self, numbers: std::ops::Range<usize>) -> Vec<usize> {
        let mut numbers: Vec<usize> = numbers.collect();
        for last in (1..numbers.len()).rev() {
            let other = usize::try_from(self.next() % (last as u64 + 1)).unwrap();
            numbers.swap(last, other);
        }
        numbers
    }
}

fn mixed(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
