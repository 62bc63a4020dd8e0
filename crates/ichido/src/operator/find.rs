//! The one claim that an operator means.

use ichido_core::{Key, Scope};
use ichido_ledger::{Ledger, Query, StateName, Summary};

use super::{PAGE_MAX, Refusal, Which};

/// The one claim with this text, in one of these states; tenant and route narrow the search.
///
/// With both given the key is known, and nothing is searched. Otherwise the states keep the search short where the
/// ledger has an index on them.
pub(super) async fn find(
    ledger: &Ledger,
    which: &Which,
    states: &[Option<StateName>],
) -> Result<(Summary, Key), Refusal> {
    let mut found: Vec<Summary> = Vec::new();
    if let (Some(tenant), Some(route)) = (&which.tenant, &which.route) {
        let key = Key::new(Scope::new(tenant, route), which.key.clone())?;
        let now = ledger.settings().clock.now();
        found.extend(ledger.look(&key).await?.and_then(|record| Summary::of(&record, now)));
    } else {
        for state in states {
            search(ledger, which, *state, &mut found).await?;
        }
        // A claim whose lease lapsed between two searches was found by both.
        found.sort_by(|one, other| one.index.cmp(&other.index));
        found.dedup_by(|one, other| one.index == other.index);
    }
    match found.len() {
        0 => Err(Refusal::NoSuchClaim),
        1 => {
            let summary = found.remove(0);
            let key = Key::new(Scope::new(&summary.tenant, &summary.route), summary.key.clone())?;
            Ok((summary, key))
        }
        count => Err(Refusal::Several { count }),
    }
}

async fn search(
    ledger: &Ledger,
    which: &Which,
    state: Option<StateName>,
    found: &mut Vec<Summary>,
) -> Result<(), Refusal> {
    let mut query = Query { state, prefix: Some(which.key.clone()), limit: PAGE_MAX, cursor: None };
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
