//! Turns usage events into usage records that a receiver counts once.
//!
//! A source yields [`UsageEvent`]s; a receiver accepts [`Record`]s. This crate turns one into the other; except for
//! the `dify` feature, it needs no runtime, sockets or files. It normalizes names, adds up events by period, and
//! gives each total an id that depends only on what the total covers. Money is decimal throughout.

pub mod aggregate;
pub mod collisions;
#[cfg(feature = "dify")]
pub mod dify;
pub mod event;
pub mod id;
mod interner;
mod mode;
pub mod money;
pub mod name_rules;
pub mod named_enum;
mod period;
mod profile;
pub mod record;
pub mod source;
mod totals;
pub mod transform;
mod zone;

pub use self::aggregate::Aggregator;
pub use self::event::{App, CheckedEvent, UsageEvent, User, UserKind};
pub use self::id::{Scheme, event_id};
pub use self::mode::{Mode, UnsupportedPeriod};
pub use self::name_rules::NameRules;
pub use self::period::Period;
pub use self::profile::Profile;
pub use self::record::{Metadata, Record};
pub use self::totals::{Total, Totals};
pub use self::transform::{Outgoing, Refused, Transform};
pub use self::zone::{UnknownZone, Zone};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
