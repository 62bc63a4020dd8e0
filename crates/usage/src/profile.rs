//! What a receiver does with a record it already has. Receivers differ, so a destination declares its profile.

use crate::named_enum::named_enum;

/// How a receiver treats a record it already has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The first record with an id stays. Any other record with that id gets a 409, whatever its content.
    #[default]
    FirstWins,
    /// A record replaces the one with the same id.
    UpsertByEventId,
    /// A record replaces the one with the same tenant, provider, model and day. Finer records must be added up
    /// before they are sent, or the records of a day overwrite each other.
    UpsertByModelDay,
}

named_enum!(Profile, "a receiver's profile", {
    FirstWins = "first_wins",
    UpsertByEventId = "upsert_by_event_id",
    UpsertByModelDay = "upsert_by_model_day",
});

impl Profile {
    /// Whether a later record replaces an earlier one.
    pub fn upserts(self) -> bool {
        match self {
            Self::FirstWins => false,
            Self::UpsertByEventId | Self::UpsertByModelDay => true,
        }
    }
}
