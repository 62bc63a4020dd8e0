//! The one claim that an operator means.

use ichido_core::{Key, Scope};
use ichido_ledger::{Ledger, Query, Summary};

use super::{PAGE_MAX, Refusal, Which};

/// A claim as it was when it was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) summary: Summary,
    pub(super) key: Key,
}

/// The one claim with this text, in whatever state; tenant and route narrow the search.
///
/// With both given the key is known, and nothing is searched. Otherwise claims are looked for in every state: a word on a
/// claim that has ended must be refused because it has, not because no other claim of that name is open.
pub(super) async fn find(ledger: &Ledger, which: &Which) -> Result<Found, Refusal> {
    let mut found: Vec<Summary> = Vec::new();
    if let (Some(tenant), Some(route)) = (&which.tenant, &which.route) {
        let key = Key::new(Scope::new(tenant, route), which.key.clone())?;
        let now = ledger.settings().clock.now();
        found.extend(ledger.look(&key).await?.and_then(|record| Summary::of(&record, now)));
    } else {
        search(ledger, which, &mut found).await?;
        // A claim that changed between two pages may be on both.
        found.sort_by(|one, other| one.index.cmp(&other.index));
        found.dedup_by(|one, other| one.index == other.index);
    }
    match found.len() {
        0 => Err(Refusal::NoSuchClaim),
        1 => {
            let summary = found.remove(0);
            let key = Key::new(Scope::new(&summary.tenant, &summary.route), summary.key.clone())?;
            Ok(Found { summary, key })
        }
        count => Err(Refusal::Several { count }),
    }
}

async fn search(ledger: &Ledger, which: &Which, found: &mut Vec<Summary>) -> Result<(), Refusal> {
    let mut query = Query { state: None, prefix: Some(which.key.clone()), limit: PAGE_MAX, cursor: None };
    loop {
        let page = ledger.list(&query).await?;
        found.extend(page.claims.into_iter().filter(|claim| {
            claim.key == which.key
                && which.tenant.as_ref().is_none_or(|tenant| *tenant == claim.tenant)
                && which.route.as_ref().is_none_or(|route| *route == claim.route)
        }));
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(()),
        }
    }
}
