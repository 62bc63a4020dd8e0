//! Usage records: what was used, by whom, when, and at what price; counted once.
//!
//! A source gives [`UsageEvent`]s; a receiver takes [`Record`]s. This crate is the way between them, without a runtime,
//! sockets or files: names are made alike, events are summed by day, and each sum gets an id that depends on nothing but what it is
//! a sum of. Money is decimal from end to end.

mod aggregate;
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

pub use aggregate::{Aggregate, Plan};
pub use event::{App, CheckedEvent, UsageEvent, User, UserKind};
pub use id::{Scheme, event_id};
pub use mode::{Mode, WrongPeriod};
pub use name_rules::Names;
pub use period::Period;
pub use profile::Profile;
pub use record::{Metadata, Record};
pub use totals::{Sum, Sums};
pub use transform::{Outgoing, Refused, Transform};
pub use zone::{UnknownZone, Zone};
