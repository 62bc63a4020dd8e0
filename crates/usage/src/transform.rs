//! Turns totals into records with ids. A total that cannot become a record is reported with the reason; the others
//! go on.
//!
//! Different records with the same id are found here, and none of them is sent: a receiver would keep one and
//! silently lose the usage of the others.

use thiserror::Error;

use crate::event::UserKind;
use crate::id::{self, Scheme, Writer};
use crate::money;
use crate::period::Period;
use crate::profile::Profile;
use crate::record::{self, Metadata, Record, SOURCE_SYSTEM};
use crate::totals::{Total, Totals};

mod duplicates;

use duplicates::{Duplicate, Duplicates};

/// How records are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// The scheme of their ids.
    pub scheme: Scheme,
    /// What the receiver can keep apart.
    pub profile: Profile,
    /// Whether records name the user, for whom API_Meter's schema has no field.
    pub include_users: bool,
}

impl Default for Transform {
    fn default() -> Self {
        Self { scheme: Scheme::default(), profile: Profile::default(), include_users: true }
    }
}

/// A record and its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The tenant.
    pub tenant: String,
    /// The record.
    pub record: Record,
}

/// A record that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Refused {
    /// The tenant.
    pub tenant: String,
    /// The record as far as it could be made, for those who look into failed. Its id is empty if it has none.
    pub record: Box<Record>,
    /// Why it cannot be sent.
    pub reason: Reason,
}

/// Why a total cannot become a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// It gets no id.
    #[error(transparent)]
    Id(#[from] id::Error),
    /// Its cost is too large for a decimal.
    #[error("cost_actual: {0}")]
    Cost(money::Error),
    /// The record is inconsistent in itself.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// Another record has the same id.
    #[error("source_event_id: another record has the same id {id}: {difference}")]
    SameId {
        /// The id.
        id: String,
        /// How the two records differ.
        difference: String,
    },
    /// The receiver would overwrite one record with the other.
    #[error(
        "usage_date, provider, model: another record has the same values, and a receiver with the profile {profile} keeps only one: {difference}"
    )]
    SameModelDay {
        /// The receiver's profile.
        profile: Profile,
        /// How the two records differ.
        difference: String,
    },
}

impl Transform {
    /// Makes a record of each total, in the order of the totals.
    ///
    /// All ids are computed up front, because a duplicate is known only when every id is. Each record then takes
    /// its own.
    pub fn records<'a>(self, totals: &'a Totals) -> impl Iterator<Item = Result<Outgoing, Refused>> + 'a {
        let mut writer = Writer::new(self.scheme);
        let ids: Vec<Result<String, id::Error>> = totals
            .iter()
            .map(|total| writer.write(&total.id_parts(totals.period())).map(str::to_owned))
            .collect();
        let duplicates = Duplicates::find(self.profile, totals, &ids);
        totals.iter().zip(ids).enumerate().map(move |(index, (total, id))| {
            let (id, id_error) = match id {
                Ok(id) => (id, None),
                Err(error) => (String::new(), Some(error)),
            };
            let record = self.record(totals.period(), &total, id);
            let refusal = match duplicates.of(index) {
                Some(duplicate) => Some(self.duplicate(totals, &total, &record, duplicate)),
                None => refusal(&total, id_error, &record),
            };
            let tenant = total.tenant.to_owned();
            match refusal {
                None => Ok(Outgoing { tenant, record }),
                Some(reason) => Err(Refused { tenant, record: Box::new(record), reason }),
            }
        })
    }

    fn record(self, period: Period, total: &Total<'_>, id: String) -> Record {
        let user = Some(total.user_id).filter(|user| self.include_users && !user.is_empty());
        let kind = Some(total.user_kind).filter(|kind| self.include_users && *kind != UserKind::None);
        Record {
            usage_date: total.usage_date,
            provider: total.provider.to_owned(),
            model: total.model.to_owned(),
            input_tokens: total.input_tokens,
            output_tokens: total.output_tokens,
            total_tokens: total.input_tokens.saturating_add(total.output_tokens),
            request_count: total.requests,
            cost_actual: total.cost.unwrap_or_default(),
            currency: total.currency.to_owned(),
            metadata: Metadata {
                source_system: SOURCE_SYSTEM.to_owned(),
                source_event_id: id,
                source_app_id: total.app_id.to_owned(),
                source_app_name: total.app_name.to_owned(),
                aggregation_method: period.method().to_owned(),
                source_user_id: user.map(str::to_owned),
                source_user_type: kind,
                debugger_request_count: Some(total.debugger_requests).filter(|count| *count > 0),
            },
        }
    }

    fn duplicate(self, totals: &Totals, total: &Total<'_>, record: &Record, duplicate: Duplicate) -> Reason {
        let (Duplicate::SameId(other) | Duplicate::SameModelDay(other)) = duplicate;
        let difference = totals.get(other).map(|other| difference(total, &other)).unwrap_or_default();
        match duplicate {
            Duplicate::SameId(_) => {
                Reason::SameId { id: record.metadata.source_event_id.clone(), difference }
            }
            Duplicate::SameModelDay(_) => Reason::SameModelDay { profile: self.profile, difference },
        }
    }
}

/// Why a record without a duplicate cannot be sent, if it cannot.
fn refusal(total: &Total<'_>, id_error: Option<id::Error>, record: &Record) -> Option<Reason> {
    match (total.cost, id_error) {
        (Err(error), _) => Some(Reason::Cost(error)),
        (Ok(_), Some(error)) => Some(Reason::Id(error)),
        (Ok(_), None) => record.check().err().map(Reason::Record),
    }
}

/// Describes how two totals differ.
fn difference(one: &Total<'_>, other: &Total<'_>) -> String {
    if (one.app_id, one.user_id) == (other.user_id, other.app_id) && one.app_id != one.user_id {
        return format!(
            "app and user are swapped in the other record (app {:?}, user {:?})",
            other.app_id, other.user_id
        );
    }
    let fields = [
        ("app", one.app_id, other.app_id),
        ("user", one.user_id, other.user_id),
        ("kind of user", one.user_kind.as_str(), other.user_kind.as_str()),
        ("currency", one.currency, other.currency),
    ];
    let differ = fields.iter().filter(|(_, one, other)| one != other);
    let differences: Vec<String> =
        differ.map(|(name, one, other)| format!("{name} {one:?} here, {other:?} there")).collect();
    differences.join("; ")
}

#[cfg(test)]
mod tests;
