//! Finds near duplicates among recent texts, in bounded memory.
//!
//! A text becomes a set of features ([`Sketch`]): its character n-grams after NFKC, which works for English and Japanese, and the
//! numbers in it, which weigh more. The similarity of two texts is the Jaccard index of their sets. An index with bands of
//! MinHash values finds candidates without comparing every pair; each candidate is then compared, so a score is never a guess from
//! the bands.
//!
//! The implementation is our own. The crates for this keep what they have indexed until it is removed one by one: they have neither
//! a window nor a limit on memory, and bring a thread pool along.
//!
//! ```
//! use std::sync::Arc;
//! use ichido_core::SystemClock;
//! use ichido_similar::{Keep, Options, SimilarTexts};
//!
//! let texts = Arc::new(SimilarTexts::new(Options::default(), Arc::new(SystemClock::default()), 1));
//! let first = texts.check("", "Ev1", "The nightly backup of the billing database has failed", Keep::Always);
//! first.remembered.map(|remembered| remembered.confirm());
//! let second = texts.check("", "Ev2", "The nightly backup of the billing database has failed!", Keep::IfDifferent);
//! assert_eq!(second.similar.unwrap().event, "Ev1");
//! ```

mod bands;
#[cfg(feature = "corpus")]
pub mod corpus;
mod sketch;
mod texts;

pub use self::sketch::{CHARS_MAX, CHARS_MIN, Sketch};
pub use self::texts::{Checked, Keep, Options, Remembered, SimilarText, SimilarTexts};
