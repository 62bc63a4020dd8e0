//! What a receiver does with a record that it knows already. Both kinds of receiver exist, so a destination says which it is.

use crate::named_enum::words;

/// The habits of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The first record of an id stays; another is answered 409, whatever it holds.
    #[default]
    FirstWins,
    /// A record replaces the one with the same id.
    UpsertByEventId,
    /// A record replaces the one of the same tenant, provider, model and day. What is finer than that must be summed before it is
    /// sent, or the records of a day overwrite each other.
    UpsertByModelDay,
}

words!(Profile, "a receiver's profile", {
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
