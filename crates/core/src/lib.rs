//! Claims: their vocabulary and their rules.
//!
//! This crate defines keys, fingerprints, tokens and records, and the state table as pure functions ([`rules`]). It has no
//! runtime, no sockets and no files. Every ledger backend either calls these functions or is tested to agree with them.
//! The model check in `tests/it/model` drives the same functions.

mod batch_key;
mod caller;
mod claim;
mod digest;
mod entropy;
mod error_chain;
mod fingerprint;
mod id;
mod key;
mod limits;
pub mod mark;
mod metadata;
mod outcome;
mod record;
mod settle;
mod time;
mod to_hex;

pub mod rules;

pub use batch_key::{batch_key, by_utf16};
pub use caller::Caller;
pub use claim::{Claim, ClaimRequest, Grant, InDoubtPolicy};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use error_chain::error_chain;
pub use fingerprint::Fingerprint;
pub use id::{Nonce, ParseIdError, Token};
pub use key::{Index, Key, MarkKey, Scope};
pub use limits::{LimitError, Limits};
pub use metadata::Metadata;
pub use outcome::Outcome;
pub use record::{Done, Doubt, DoubtReason, Holder, Phase, Record, State};
pub use settle::{Adopted, CurrentState, Resolution, Resolved, Seen, Settle, Settled};
pub use time::{Clock, ManualClock, SteadyTime, SystemClock, Timestamp};
pub use to_hex::to_hex;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
