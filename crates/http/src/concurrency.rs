//! Limits on the keyed requests that run at the same time: in total, per tenant, and per connection.
//!
//! A slot is taken before the body of a request is read, and released when the request has finished. A request keeps
//! running after its client disconnects or resets the stream, and keeps its slot. Without a limit per connection, a client
//! that opens and resets streams could take everyone's slots.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{Kind, Problem};
use crate::rules::Rules;

/// `Retry-After` when there is no slot.
const RETRY_AFTER_SECONDS: u64 = 1;
/// Requests that may be read without a slot, to see whether they can be replayed.
const REPLAY_ONLY_MAX: usize = 64;

/// The limits of a layer.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimits {
    all: Arc<Semaphore>,
    replay_only: Arc<Semaphore>,
    tenants: Arc<Tenants>,
    max_per_connection: usize,
}

#[derive(Debug)]
struct Tenants {
    max: usize,
    /// The number of running requests of each tenant that has any.
    busy: Mutex<HashMap<String, usize>>,
}

/// The limit of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit(Arc<Semaphore>);

/// Permission to run a keyed request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _of_all: OwnedSemaphorePermit,
    _of_connection: Option<OwnedSemaphorePermit>,
    _of_tenant: Option<TenantSlot>,
}

#[derive(Debug)]
struct TenantSlot {
    tenants: Arc<Tenants>,
    tenant: String,
}

/// How a request is admitted.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// It may be claimed and run.
    Run(Slot),
    /// It may only be replayed. If there is nothing to replay, the problem is the response.
    ReplayOnly { _permit: OwnedSemaphorePermit, problem: Problem },
}

impl ConcurrencyLimits {
    pub(crate) fn new(rules: &Rules) -> Self {
        let semaphore = |max: usize| Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS)));
        Self {
            all: semaphore(rules.inflight_max),
            replay_only: semaphore(REPLAY_ONLY_MAX),
            tenants: Arc::new(Tenants { max: rules.inflight_max_per_tenant, busy: Mutex::default() }),
            max_per_connection: rules.inflight_max_per_connection.min(Semaphore::MAX_PERMITS),
        }
    }

    /// The limit of a new connection.
    pub(crate) fn connection(&self) -> ConnectionLimit {
        ConnectionLimit(Arc::new(Semaphore::new(self.max_per_connection)))
    }

    /// Admits a request. A request without a tenant counts towards the total and its connection only.
    pub(crate) fn admit(
        &self,
        connection: Option<&ConnectionLimit>,
        tenant: &str,
    ) -> Result<Admitted, Problem> {
        let problem = match self.slot(connection, tenant) {
            Ok(slot) => return Ok(Admitted::Run(slot)),
            Err(detail) => Problem::new(Kind::Overloaded, detail).retry_after(RETRY_AFTER_SECONDS),
        };
        match self.replay_only.clone().try_acquire_owned() {
            Ok(permit) => Ok(Admitted::ReplayOnly { _permit: permit, problem }),
            Err(_) => Err(problem),
        }
    }

    fn slot(&self, connection: Option<&ConnectionLimit>, tenant: &str) -> Result<Slot, &'static str> {
        let of_connection = connection.map(|connection| connection.0.clone().try_acquire_owned());
        let of_connection = of_connection
            .transpose()
            .map_err(|_| "this connection has too many running requests (inflight_max_per_connection)")?;
        let of_tenant = (!tenant.is_empty()).then(|| self.tenants.slot(tenant));
        let of_tenant = of_tenant
            .map(|slot| slot.ok_or("this tenant has too many running requests (inflight_max_per_tenant)"))
            .transpose()?;
        let of_all = self.all.clone().try_acquire_owned();
        let of_all = of_all.map_err(|_| "too many requests are running (inflight_max)")?;
        Ok(Slot { _of_all: of_all, _of_connection: of_connection, _of_tenant: of_tenant })
    }
}

impl Tenants {
    fn slot(self: &Arc<Self>, tenant: &str) -> Option<TenantSlot> {
        let mut busy = self.lock();
        match busy.get_mut(tenant) {
            Some(count) if *count >= self.max => return None,
            Some(count) => *count += 1,
            None if self.max == 0 => return None,
            None => drop(busy.insert(tenant.to_owned(), 1)),
        }
        Some(TenantSlot { tenants: self.clone(), tenant: tenant.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TenantSlot {
    fn drop(&mut self) {
        let mut busy = self.tenants.lock();
        if let Some(count) = busy.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                busy.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(all: usize, tenant: usize, connection: usize) -> ConcurrencyLimits {
        ConcurrencyLimits::new(&Rules {
            inflight_max: all,
            inflight_max_per_tenant: tenant,
            inflight_max_per_connection: connection,
            ..Rules::default()
        })
    }

    #[test]
    fn a_tenant_or_connection_cannot_take_the_slots_of_others() {
        let limits = limits(10, 3, 2);
        let (one, other) = (limits.connection(), limits.connection());
        let first = [limits.slot(Some(&one), "a").unwrap(), limits.slot(Some(&one), "a").unwrap()];
        assert!(limits.slot(Some(&one), "b").unwrap_err().contains("inflight_max_per_connection"));
        let third = limits.slot(Some(&other), "a").unwrap();
        assert!(limits.slot(Some(&other), "a").unwrap_err().contains("inflight_max_per_tenant"));
        assert!(limits.slot(Some(&other), "b").is_ok());
        drop((first, third));
        assert!(limits.tenants.lock().is_empty(), "nobody is busy");
        assert!(limits.slot(Some(&one), "a").is_ok());
    }

    #[test]
    fn a_refused_request_holds_no_part_of_a_slot() {
        let limits = limits(1, 5, 5);
        let connection = limits.connection();
        let only = limits.slot(None, "").unwrap();
        for _ in 0..10 {
            assert!(limits.slot(Some(&connection), "a").unwrap_err().contains("inflight_max)"));
        }
        drop(only);
        assert!(limits.slot(Some(&connection), "a").is_ok());
    }

    #[test]
    fn without_a_slot_some_requests_may_still_be_replayed() {
        let limits = limits(0, 1, 1);
        let replay_only: Vec<_> = (0..REPLAY_ONLY_MAX).map(|_| limits.admit(None, "").unwrap()).collect();
        assert!(replay_only.iter().all(|admitted| matches!(admitted, Admitted::ReplayOnly { .. })));
        assert!(limits.admit(None, "").is_err());
        drop(replay_only);
        assert!(limits.admit(None, "").is_ok());
    }
}
