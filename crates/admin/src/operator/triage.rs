//! Claims in doubt, oldest first: how many there are on which route and for which reason, and which ones.
//!
//! No ledger can list claims by age or by reason, so all of them are read, up to [`SCANNED_MAX`].

use std::collections::BTreeMap;
use std::time::Duration;

use ichido_core::Timestamp;
use ichido_ledger::{Error, Ledger, Query, StateName, Summary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::wire::PAGE_MAX;

/// The most claims in doubt that are read.
pub const SCANNED_MAX: u64 = 10_000;
/// The most groups. Others are counted, but not shown.
pub const GROUPS_MAX: usize = 100;

/// Which claims in doubt to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriageFilter {
    /// Only on this route, such as `POST /orders`.
    pub route: Option<String>,
    /// Only with a reason that contains this text.
    pub reason: Option<String>,
    /// Only of this caller: the tenant of the key.
    pub tenant: Option<String>,
    /// Only if they have been in doubt for at least this time.
    pub older_than: Option<Duration>,
}

/// Claims in doubt: counts by route and reason, and the oldest of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Triage {
    /// How many claims match.
    pub matched: u64,
    /// Whether all claims in doubt were read.
    pub complete: bool,
    /// The ledger is unavailable: these are only the claims that this process granted during the outage.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// Counts by route and reason, the largest first.
    pub groups: Vec<Group>,
    /// The claims, oldest first.
    pub claims: Vec<Summary>,
}

/// Claims in doubt on one route, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = DoubtGroup)]
pub struct Group {
    /// The route of their scope.
    pub route: String,
    /// Why they are in doubt.
    pub reason: String,
    /// How many there are.
    pub count: u64,
    /// When the oldest of them became in doubt, in milliseconds since the epoch.
    #[schema(value_type = u64)]
    pub oldest: Timestamp,
}

impl TriageFilter {
    /// Whether it lets every claim pass.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What it says, for the audit log.
    pub fn describe(&self) -> String {
        let quoted = |name: &str, text: &Option<String>| text.as_ref().map(|text| format!("{name} {text:?}"));
        let parts = [
            quoted("route", &self.route),
            quoted("reason", &self.reason),
            quoted("tenant", &self.tenant),
            self.older_than.map(|age| format!("older than {} s", age.as_secs())),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
    }

    fn wants(&self, claim: &Summary, now: Timestamp) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|wanted| wanted == text);
        let reason = claim.doubt_reason.as_deref().unwrap_or_default();
        let age = Duration::from_millis(claim.doubt_since.map_or(0, |since| now.ms_since(since)));
        is(&self.route, &claim.route)
            && is(&self.tenant, &claim.tenant)
            && self.reason.as_ref().is_none_or(|wanted| reason.contains(wanted.as_str()))
            && self.older_than.is_none_or(|wanted| age >= wanted)
    }
}

/// Claims in doubt that match, at most `limit` of them.
pub(super) async fn triage(ledger: &Ledger, filter: &TriageFilter, limit: usize) -> Result<Triage, Error> {
    let now = ledger.settings().clock.now();
    let mut query = Query { state: Some(StateName::InDoubt), prefix: None, limit: PAGE_MAX, cursor: None };
    let mut triage = Triage::default();
    let mut groups = BTreeMap::new();
    let mut scanned = 0;
    loop {
        let page = ledger.list(&query).await?;
        scanned += page.claims.len() as u64;
        triage.degraded |= page.degraded;
        for claim in page.claims.into_iter().filter(|claim| filter.wants(claim, now)) {
            triage.matched += 1;
            add(&mut groups, &claim);
            triage.claims.push(claim);
        }
        oldest(&mut triage.claims, limit);
        query.cursor = page.cursor;
        triage.complete = query.cursor.is_none();
        if triage.complete || scanned >= SCANNED_MAX {
            break;
        }
    }
    triage.groups = groups.into_values().collect();
    triage.groups.sort_by(|one, other| other.count.cmp(&one.count).then(one.oldest.cmp(&other.oldest)));
    triage.groups.truncate(GROUPS_MAX);
    Ok(triage)
}

fn add(groups: &mut BTreeMap<(String, String), Group>, claim: &Summary) {
    let reason = claim.doubt_reason.clone().unwrap_or_default();
    let since = claim.doubt_since.unwrap_or(claim.renewed_at);
    let group = groups.entry((claim.route.clone(), reason.clone()));
    let group =
        group.or_insert_with(|| Group { route: claim.route.clone(), reason, count: 0, oldest: since });
    group.count += 1;
    group.oldest = group.oldest.min(since);
}

fn oldest(claims: &mut Vec<Summary>, limit: usize) {
    claims.sort_by(|one, other| one.doubt_since.cmp(&other.doubt_since).then(one.index.cmp(&other.index)));
    // A claim that changed between two pages may be on both.
    claims.dedup_by(|one, other| one.index == other.index);
    claims.truncate(limit);
}
