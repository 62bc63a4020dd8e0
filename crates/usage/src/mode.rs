//! What is summed together: how much of "where" and "who" a record keeps. Day, provider, model and currency are always kept.

use thiserror::Error;

use crate::named_enum::words;
use crate::period::Period;
use crate::profile::Profile;

/// What a record is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Each model by app and user: the grain that the ids were made for.
    #[default]
    PerModel,
    /// Each user over all apps; the app is empty.
    PerUser,
    /// Each app over all users; the user is empty.
    PerApp,
    /// The whole workspace; app and user are empty.
    Workspace,
    /// Everything that is known is kept, which is what [`Mode::PerModel`] keeps today. The first exporter summed in four ways at once under this word,
    /// and a receiver that added them up would have counted each token four times.
    All,
}

words!(Mode, "an aggregation mode", {
    PerModel = "per_model",
    PerUser = "per_user",
    PerApp = "per_app",
    Workspace = "workspace",
    All = "all",
});

impl Mode {
    /// Whether records tell apps apart.
    pub fn keeps_app(self) -> bool {
        match self {
            Self::PerModel | Self::PerApp | Self::All => true,
            Self::PerUser | Self::Workspace => false,
        }
    }

    /// Whether records tell users apart.
    pub fn keeps_user(self) -> bool {
        match self {
            Self::PerModel | Self::PerUser | Self::All => true,
            Self::PerApp | Self::Workspace => false,
        }
    }
}

/// A grain that a receiver would lose usage with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a receiver of the profile {profile} knows days only: with the period {period} the first day of each would be overwritten"
)]
pub struct WrongPeriod {
    profile: Profile,
    period: Period,
}

impl Profile {
    /// The mode in which records are made for this receiver: never finer than it can keep apart.
    pub fn mode(self, wanted: Mode) -> Mode {
        match self {
            Self::FirstWins | Self::UpsertByEventId => wanted,
            Self::UpsertByModelDay => Mode::Workspace,
        }
    }

    /// Whether this receiver can keep records of this period.
    pub fn period(self, wanted: Period) -> Result<Period, WrongPeriod> {
        match (self, wanted) {
            (Self::UpsertByModelDay, Period::Weekly | Period::Monthly) => {
                Err(WrongPeriod { profile: self, period: wanted })
            }
            (Self::FirstWins | Self::UpsertByEventId, _) | (Self::UpsertByModelDay, Period::Daily) => {
                Ok(wanted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_read_by_its_word_and_an_unknown_one_is_told_which_there_are() {
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse::<Mode>().unwrap(), *mode);
        }
        assert_eq!(
            "both".parse::<Mode>().unwrap_err().to_string(),
            "an aggregation mode must be one of per_model, per_user, per_app, workspace, all, not \"both\""
        );
    }

    #[test]
    fn a_receiver_by_model_and_day_gets_records_of_that_grain() {
        for mode in Mode::ALL {
            assert_eq!(Profile::UpsertByModelDay.mode(*mode), Mode::Workspace);
            assert_eq!(Profile::FirstWins.mode(*mode), *mode);
        }
        assert!(Profile::UpsertByModelDay.period(Period::Daily).is_ok());
        let refusal = Profile::UpsertByModelDay.period(Period::Weekly).unwrap_err().to_string();
        assert!(refusal.contains("weekly") && refusal.contains("overwritten"), "{refusal}");
    }
}
