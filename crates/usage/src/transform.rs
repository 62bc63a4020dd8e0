//! From sums to records with ids. A sum that can be no record is kept with its reason, and the others go on.
//!
//! Two different records with one id are found here, and neither is sent: a receiver would keep one of them and lose the other's usage in
//! silence.

use thiserror::Error;

use crate::event::UserKind;
use crate::id::{self, Scheme, Writer};
use crate::money;
use crate::period::Period;
use crate::profile::Profile;
use crate::record::{self, Metadata, Record, SOURCE_SYSTEM};
use crate::totals::{Sum, Sums};

mod duplicates;

use duplicates::{Duplicate, Duplicates};

/// How records are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// The scheme of their ids.
    pub scheme: Scheme,
    /// What their receiver can keep apart.
    pub profile: Profile,
    /// Whether they name the user, which API_Meter's schema has no field for.
    pub users: bool,
}

impl Default for Transform {
    fn default() -> Self {
        Self { scheme: Scheme::default(), profile: Profile::default(), users: true }
    }
}

/// A record, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The tenant.
    pub tenant: String,
    /// The record.
    pub record: Record,
}

/// A record that cannot be sent, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct Refused {
    /// The tenant.
    pub tenant: String,
    /// The record as far as it could be made, for those who look into failed. Its id is empty if it has none.
    pub record: Box<Record>,
    /// Why.
    pub reason: Reason,
}

/// Why a sum is no record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// It gets no id.
    #[error(transparent)]
    Id(#[from] id::Error),
    /// Its cost cannot be written.
    #[error("cost_actual: {0}")]
    Cost(money::Error),
    /// It makes no sense in itself.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// Another record has the same id.
    #[error("source_event_id: another record has the id {id} too: {difference}")]
    SameId {
        /// The id.
        id: String,
        /// What tells the two apart.
        difference: String,
    },
    /// Another record would overwrite it at the receiver, or be overwritten.
    #[error(
        "usage_date, provider, model: another record has the same, and a receiver of the profile {profile} keeps one: {difference}"
    )]
    SameModelDay {
        /// The receiver's profile.
        profile: Profile,
        /// What tells the two apart.
        difference: String,
    },
}

impl Transform {
    /// Makes a record of each sum, in the order of the sums.
    ///
    /// All ids are computed up front, because a duplicate is known only when every id is. Each record then takes its own.
    pub fn records<'a>(self, sums: &'a Sums) -> impl Iterator<Item = Result<Outgoing, Refused>> + 'a {
        let mut writer = Writer::new(self.scheme);
        let ids: Vec<Result<String, id::Error>> =
            sums.iter().map(|sum| writer.write(&sum.id_parts(sums.period())).map(str::to_owned)).collect();
        let duplicates = Duplicates::find(self.profile, sums, &ids);
        sums.iter().zip(ids).enumerate().map(move |(index, (sum, id))| {
            let (id, id_error) = match id {
                Ok(id) => (id, None),
                Err(error) => (String::new(), Some(error)),
            };
            let record = self.record(sums.period(), &sum, id);
            let refusal = match duplicates.of(index) {
                Some(duplicate) => Some(self.duplicate(sums, &sum, &record, duplicate)),
                None => refusal(&sum, id_error, &record),
            };
            let tenant = sum.tenant.to_owned();
            match refusal {
                None => Ok(Outgoing { tenant, record }),
                Some(reason) => Err(Refused { tenant, record: Box::new(record), reason }),
            }
        })
    }

    fn record(self, period: Period, sum: &Sum<'_>, id: String) -> Record {
        let user = Some(sum.user_id).filter(|user| self.users && !user.is_empty());
        let kind = Some(sum.user_kind).filter(|kind| self.users && *kind != UserKind::None);
        Record {
            usage_date: sum.usage_date,
            provider: sum.provider.to_owned(),
            model: sum.model.to_owned(),
            input_tokens: sum.input_tokens,
            output_tokens: sum.output_tokens,
            total_tokens: sum.input_tokens.saturating_add(sum.output_tokens),
            request_count: sum.requests,
            cost_actual: sum.cost.unwrap_or_default(),
            currency: sum.currency.to_owned(),
            metadata: Metadata {
                source_system: SOURCE_SYSTEM.to_owned(),
                source_event_id: id,
                source_app_id: sum.app_id.to_owned(),
                source_app_name: sum.app_name.to_owned(),
                aggregation_method: period.method().to_owned(),
                source_user_id: user.map(str::to_owned),
                source_user_type: kind,
                debugger_request_count: Some(sum.debugger_requests).filter(|count| *count > 0),
            },
        }
    }

    fn duplicate(self, sums: &Sums, sum: &Sum<'_>, record: &Record, duplicate: Duplicate) -> Reason {
        let (Duplicate::SameId(other) | Duplicate::SameModelDay(other)) = duplicate;
        let difference = sums.get(other).map(|other| difference(sum, &other)).unwrap_or_default();
        match duplicate {
            Duplicate::SameId(_) => {
                Reason::SameId { id: record.metadata.source_event_id.clone(), difference }
            }
            Duplicate::SameModelDay(_) => Reason::SameModelDay { profile: self.profile, difference },
        }
    }
}

/// Why a record without a duplicate cannot be sent, if it cannot.
fn refusal(sum: &Sum<'_>, id_error: Option<id::Error>, record: &Record) -> Option<Reason> {
    match (sum.cost, id_error) {
        (Err(error), _) => Some(Reason::Cost(error)),
        (Ok(_), Some(error)) => Some(Reason::Id(error)),
        (Ok(_), None) => record.check().err().map(Reason::Record),
    }
}

/// What tells two sums apart, in words for people.
fn difference(one: &Sum<'_>, other: &Sum<'_>) -> String {
    if (one.app_id, one.user_id) == (other.user_id, other.app_id) && one.app_id != one.user_id {
        return format!(
            "its app and user are this one's user and app ({:?}, {:?})",
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
    let words: Vec<String> =
        differ.map(|(name, one, other)| format!("{name} {one:?} here, {other:?} there")).collect();
    words.join("; ")
}

#[cfg(test)]
mod tests;
