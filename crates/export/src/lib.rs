//! The export: reads usage period by period, sums it, compares it with what was sent, and gives it to the sender.
//!
//! Invariants:
//! - A period is recorded as sent only when each of its records was delivered or is on disk, in the spool or in failed.
//! - The watermark never passes a period that is not recorded as sent.
//! - Only one export runs at a time.
//! - If the receiver lets a later record replace an earlier one, no total is sent while an older one of the same id is
//!   undelivered.

mod calendar;
mod collect;
mod deliver;
mod export;
pub mod jsonl;
mod pending;
mod plan;
mod reconcile;
mod report;
mod schedule;
pub mod settings;
mod source;
mod state;
pub mod superseded;

use ichido_delivery::conflict::Conflict;
use ichido_delivery::request::Envelope;
use ichido_delivery::settings::{Identity, Settings as Delivery};

use crate::settings::Dify;
use ichido_settings::Invalid;

pub use self::calendar::{Calendar, Days, PeriodRange, RequestedDays};
pub use self::collect::{Collected, RejectedRow};
pub use self::export::Export;
pub use self::plan::{Action, Outgoing, Plan, plan};
pub use self::reconcile::{
    Difference, DifferenceKind, Findings, Others, Receiver, Reconciled, ReconciledPeriod, reconcile,
    reconcile_jsonl,
};
pub use self::report::Report;
pub use self::schedule::Scheduled;
pub use self::state::{Content, FoundSent, SentRecords, State, Watermark};

/// How the sender identifies itself to the receiver of usage records.
pub fn sender_identity() -> Identity {
    Identity {
        user_agent: format!("dify-usage-exporter/1.0.0 ichido/{}", env!("CARGO_PKG_VERSION")),
        source_system: ichido_usage::record::SOURCE_SYSTEM.to_owned(),
    }
}

/// Refuses delivery settings that do not work with an export. Other commands resend spooled batches with the same settings,
/// so the settings themselves must be right.
pub fn check_delivery(delivery: &Delivery, settings: &Dify) -> Result<(), Invalid> {
    if let Envelope::Plain = delivery.envelope {
        return Err(Invalid::new(
            "delivery.envelope",
            "must be api_meter (EXTERNAL_API_ENVELOPE), and EXTERNAL_API_TENANT_ID set: an export sends usage records",
        ));
    }
    if !settings.profile.upserts() && delivery.conflict == Conflict::Batch {
        return Err(Invalid::new(
            "delivery.conflict",
            "must be auto or record (EXTERNAL_API_CONFLICT) with the profile first_wins: with batch, a 409 for one known record \
             would discard the others",
        ));
    }
    Ok(())
}
