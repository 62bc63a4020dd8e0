//! Finds the one claim that an operator means.

use ichido_core::{Key, Scope, Seen};
use ichido_ledger::{Ledger, Query, StateName, Summary};

use super::{ClaimSelector, PAGE_MAX, Refusal};

/// A claim as it was when it was found.
#[derive(Clone, Debug)]
pub struct FoundClaim {
    /// Its summary.
    pub summary: Summary,
    pub(super) key: Key,
    /// Exactly which claim it was, if no newer one must be changed.
    pub(super) seen: Option<Seen>,
}

/// Finds the claim with this key. Tenant and route narrow the search; if both are given, the key is complete and
/// nothing is searched.
///
/// Claims in `states` are searched first: the ledger may have an index on states, and such a claim is preferred over
/// others with the same key. Otherwise all states are searched, so that a settled claim is refused because it is settled.
pub(super) async fn find(
    ledger: &Ledger,
    selector: &ClaimSelector,
    states: &[StateName],
) -> Result<FoundClaim, Refusal> {
    let mut found: Vec<Summary> = Vec::new();
    if let (Some(tenant), Some(route)) = (&selector.tenant, &selector.route) {
        let key = Key::stored(Scope::new(tenant, route), selector.key.clone())?;
        let now = ledger.settings().clock.now();
        let local = ledger.is_pending_handover(&key);
        let summary = ledger.get(&key).await?.and_then(|record| Summary::of(&record, now));
        found.extend(summary.map(|summary| Summary { local, ..summary }));
    } else {
        for state in states {
            search(ledger, selector, Some(*state), &mut found).await?;
        }
        if found.is_empty() {
            search(ledger, selector, None, &mut found).await?;
        }
        // A claim that changed between two pages or searches may be in both.
        found.sort_by(|one, other| one.index.cmp(&other.index));
        found.dedup_by(|one, other| one.index == other.index);
    }
    match found.len() {
        0 => Err(Refusal::NoSuchClaim),
        1 => {
            let summary = found.remove(0);
            let key = Key::stored(Scope::new(&summary.tenant, &summary.route), summary.key.clone())?;
            Ok(FoundClaim { summary, key, seen: None })
        }
        count => Err(Refusal::Ambiguous { count }),
    }
}

async fn search(
    ledger: &Ledger,
    selector: &ClaimSelector,
    state: Option<StateName>,
    found: &mut Vec<Summary>,
) -> Result<(), Refusal> {
    let mut query = Query { state, prefix: Some(selector.key.clone()), limit: PAGE_MAX, cursor: None };
    loop {
        let page = ledger.list(&query).await?;
        found.extend(page.claims.into_iter().filter(|claim| {
            claim.key == selector.key
                && selector.tenant.as_ref().is_none_or(|tenant| *tenant == claim.tenant)
                && selector.route.as_ref().is_none_or(|route| *route == claim.route)
        }));
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ichido_core::{Claim, Outcome, Settled};

    use super::*;

    #[tokio::test]
    async fn claim_in_a_requested_state_is_preferred() {
        let ledger = ichido_ledger::open("memory:", ichido_ledger::Settings::default()).await.unwrap();
        for (tenant, ends) in [("a", true), ("b", false)] {
            let request = ledger.request(Key::new(Scope::new(tenant, "r"), "k").unwrap());
            let Claim::Granted(grant) = ledger.claim(&request).await.unwrap().claim else { panic!() };
            let settled = match ends {
                true => ledger.complete(&request.key, grant.token, Outcome::kept("x")).await,
                false => ledger.declare_in_doubt(&request.key, grant.token, "who knows".to_owned()).await,
            };
            assert_eq!(settled.unwrap(), Settled::Applied);
        }
        let selector = |key: &str| ClaimSelector { key: key.to_owned(), tenant: None, route: None };
        let in_doubt = find(&ledger, &selector("k"), &[StateName::InDoubt]).await.unwrap();
        assert_eq!(in_doubt.summary.tenant, "b");
        for states in [&[][..], &[StateName::Running]] {
            let several = find(&ledger, &selector("k"), states).await.unwrap_err();
            assert!(matches!(several, Refusal::Ambiguous { count: 2 }), "{several:?}");
        }
        let none = find(&ledger, &selector("other"), &[StateName::InDoubt]).await.unwrap_err();
        assert!(matches!(none, Refusal::NoSuchClaim), "{none:?}");
    }
}
