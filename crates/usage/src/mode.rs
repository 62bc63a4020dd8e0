//! Which events share a total: how much a record keeps of app and user. Day, provider, model and currency are
//! always kept.

use thiserror::Error;

use crate::named_enum::named_enum;
use crate::period::Period;
use crate::profile::Profile;

/// How finely usage is aggregated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By model, app and user: the granularity that ids are designed for.
    #[default]
    PerModel,
    /// By model and user, over all apps; the app is empty.
    PerUser,
    /// By model and app, over all users; the user is empty.
    PerApp,
    /// By model, for the whole workspace; app and user are empty.
    Workspace,
    /// Everything that is known, which today is the same as [`Mode::PerModel`]. It does not mean all other modes at
    /// once: a receiver that added those up would count each token several times.
    All,
}

named_enum!(Mode, "an aggregation mode", {
    PerModel = "per_model",
    PerUser = "per_user",
    PerApp = "per_app",
    Workspace = "workspace",
    All = "all",
});

impl Mode {
    /// Whether records are kept apart by app.
    pub fn keeps_app(self) -> bool {
        match self {
            Self::PerModel | Self::PerApp | Self::All => true,
            Self::PerUser | Self::Workspace => false,
        }
    }

    /// Whether records are kept apart by user.
    pub fn keeps_user(self) -> bool {
        match self {
            Self::PerModel | Self::PerUser | Self::All => true,
            Self::PerApp | Self::Workspace => false,
        }
    }
}

/// A period with which the receiver would lose usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a receiver with the profile {profile} keeps one record per day: with the period {period}, the first day of each period would be overwritten"
)]
pub struct UnsupportedPeriod {
    profile: Profile,
    period: Period,
}

impl Profile {
    /// Returns the mode for this receiver: never finer than the receiver can keep apart.
    pub fn mode(self, wanted: Mode) -> Mode {
        match self {
            Self::FirstWins | Self::UpsertByEventId => wanted,
            Self::UpsertByModelDay => Mode::Workspace,
        }
    }

    /// Returns the period, or an error if this receiver cannot keep its records apart.
    pub fn period(self, wanted: Period) -> Result<Period, UnsupportedPeriod> {
        match (self, wanted) {
            (Self::UpsertByModelDay, Period::Weekly | Period::Monthly) => {
                Err(UnsupportedPeriod { profile: self, period: wanted })
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
    fn unknown_mode_lists_the_known_ones() {
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse::<Mode>().unwrap(), *mode);
        }
        assert_eq!(
            "both".parse::<Mode>().unwrap_err().to_string(),
            "an aggregation mode must be one of per_model, per_user, per_app, workspace, all, not \"both\""
        );
    }

    #[test]
    fn receiver_by_model_and_day_gets_records_of_that_granularity() {
        for mode in Mode::ALL {
            assert_eq!(Profile::UpsertByModelDay.mode(*mode), Mode::Workspace);
            assert_eq!(Profile::FirstWins.mode(*mode), *mode);
        }
        assert!(Profile::UpsertByModelDay.period(Period::Daily).is_ok());
        let refusal = Profile::UpsertByModelDay.period(Period::Weekly).unwrap_err().to_string();
        assert!(refusal.contains("weekly") && refusal.contains("overwritten"), "{refusal}");
    }
}
