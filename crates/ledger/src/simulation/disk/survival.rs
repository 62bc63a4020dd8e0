//! Decides which pending changes reach the medium when a power loss or a failed sync interrupts them.
//!
//! Independent coin flips alone would almost never lose everything, or exactly one piece. So each interruption first draws
//! a pattern.

use rand::RngExt;
use rand::rngs::StdRng;

/// The position of a change in the order of all changes of the disk.
pub(super) type Sequence = u64;

/// Which of the pending changes survive.
#[derive(Clone, Copy, Debug)]
pub(super) enum Survival {
    Nothing,
    Everything,
    /// Files have grown, but without data.
    LengthsOnly,
    /// Each change with this probability.
    Each(f64),
    /// Only the changes before this one.
    Before(Sequence),
    /// Only the changes after this one.
    After(Sequence),
    /// All changes but this one.
    AllBut(Sequence),
}

impl Survival {
    /// Draws a pattern for these pending changes.
    pub(super) fn draw(pending: impl Iterator<Item = Sequence>, rng: &mut StdRng) -> Self {
        let pending: Vec<Sequence> = pending.collect();
        if pending.is_empty() {
            return Self::Nothing;
        }
        let one = pending[rng.random_range(0..pending.len())];
        match rng.random_range(0..12) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2 => Self::LengthsOnly,
            3..7 => Self::Each(rng.random()),
            7..9 => Self::Before(one),
            9 => Self::After(one),
            _ => Self::AllBut(one),
        }
    }

    /// Whether this change survives.
    pub(super) fn keeps(self, change: Sequence, rng: &mut StdRng) -> bool {
        match self {
            Self::Nothing | Self::LengthsOnly => false,
            Self::Everything => true,
            Self::Each(probability) => rng.random::<f64>() < probability,
            Self::Before(end) => change < end,
            Self::After(start) => change > start,
            Self::AllBut(lost) => change != lost,
        }
    }

    /// Whether the file has grown to the end of this change, with its data or without.
    pub(super) fn keeps_length(self, change: Sequence, rng: &mut StdRng) -> bool {
        match self {
            // A lost piece at the end of a file leaves zeros or a shorter file.
            Self::AllBut(lost) => change != lost || rng.random(),
            Self::LengthsOnly => true,
            Self::Nothing | Self::Everything | Self::Each(_) | Self::Before(_) | Self::After(_) => {
                self.keeps(change, rng)
            }
        }
    }
}
