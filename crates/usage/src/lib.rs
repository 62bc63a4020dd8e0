//! Usage records: what was used, by whom, when, and at what price; counted once.
//!
//! A source gives [`UsageEvent`]s; a receiver takes [`Record`]s. This crate is the way between them, without a runtime,
//! sockets or files: names are made alike, events are summed by day, and each sum gets an id that depends on nothing but what it is
//! a sum of. Money is decimal from end to end.

pub mod event;
pub mod money;
mod period;
mod profile;
pub mod record;
pub mod words;

pub use event::{App, UsageEvent, User, UserKind};
pub use period::Period;
pub use profile::Profile;
pub use record::{DateRange, Envelope, ExportMetadata, Metadata, Record};
