//! Limits on the keyed requests that run at the same time: in total, per tenant, and per connection.
//!
//! A slot is taken before the body of a request is read, and released when the request has finished. A request keeps
//! running after its client disconnects or resets the stream, and keeps its slot. Without a limit per connection, a client
//! that opens and resets streams could take everyone's slots.
//!
//! The counts outlive the rules: layers with different maxima share them, so a reload neither frees nor forgets a slot.

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    all: Count,
    replay_only: Arc<Semaphore>,
    tenants: Arc<Tenants>,
    max: usize,
    max_per_tenant: usize,
    max_per_connection: usize,
}

/// The number of running requests of each tenant that has any.
#[derive(Debug, Default)]
struct Tenants {
    /// Makes the numbers by which tenants are known here. It is random, so nobody can choose a name that collides.
    hasher: RandomState,
    busy: Mutex<HashMap<u64, usize>>,
}

/// The running requests of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionLimit(Count);

/// A number of running requests.
#[derive(Clone, Debug, Default)]
struct Count(Arc<AtomicUsize>);

/// One of the requests in a [`Count`], until it is dropped.
#[derive(Debug)]
struct Counted(Count);

/// Permission to run a keyed request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _of_all: Counted,
    _of_connection: Option<Counted>,
    _of_tenant: Option<TenantSlot>,
}

#[derive(Debug)]
struct TenantSlot {
    tenants: Arc<Tenants>,
    tenant: u64,
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
        Self {
            all: Count::default(),
            replay_only: Arc::new(Semaphore::new(REPLAY_ONLY_MAX)),
            tenants: Arc::default(),
            max: rules.inflight_max,
            max_per_tenant: rules.inflight_max_per_tenant,
            max_per_connection: rules.inflight_max_per_connection,
        }
    }

    /// The limits of other rules, which count the same requests.
    pub(crate) fn with_rules(&self, rules: &Rules) -> Self {
        let (all, replay_only) = (self.all.clone(), self.replay_only.clone());
        Self { all, replay_only, tenants: self.tenants.clone(), ..Self::new(rules) }
    }

    /// Hashes tenants for [`Self::admit`].
    pub(crate) fn hasher(&self) -> &RandomState {
        &self.tenants.hasher
    }

    /// Admits a request. A request without a tenant counts towards the total and its connection only.
    pub(crate) fn admit(
        &self,
        connection: Option<&ConnectionLimit>,
        tenant: Option<u64>,
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

    fn slot(&self, connection: Option<&ConnectionLimit>, tenant: Option<u64>) -> Result<Slot, &'static str> {
        let of_connection = connection.map(|connection| connection.0.add(self.max_per_connection));
        let of_connection = of_connection
            .map(|slot| {
                slot.ok_or("this connection has too many running requests (inflight_max_per_connection)")
            })
            .transpose()?;
        let of_tenant = tenant.map(|tenant| self.tenants.slot(tenant, self.max_per_tenant));
        let of_tenant = of_tenant
            .map(|slot| slot.ok_or("this tenant has too many running requests (inflight_max_per_tenant)"))
            .transpose()?;
        let of_all = self.all.add(self.max).ok_or("too many requests are running (inflight_max)")?;
        Ok(Slot { _of_all: of_all, _of_connection: of_connection, _of_tenant: of_tenant })
    }
}

impl Count {
    /// Counts one more request, unless there are `max` already.
    fn add(&self, max: usize) -> Option<Counted> {
        let more = |count: usize| (count < max).then_some(count + 1);
        let added = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        added.is_ok().then(|| Counted(self.clone()))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Tenants {
    fn slot(self: &Arc<Self>, tenant: u64, max: usize) -> Option<TenantSlot> {
        let mut busy = self.lock();
        match busy.get_mut(&tenant) {
            Some(count) if *count >= max => return None,
            Some(count) => *count += 1,
            None if max == 0 => return None,
            None => drop(busy.insert(tenant, 1)),
        }
        Some(TenantSlot { tenants: self.clone(), tenant })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
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

    const A: Option<u64> = Some(1);
    const B: Option<u64> = Some(2);
    const C: Option<u64> = Some(3);

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
        let (one, other) = (ConnectionLimit::default(), ConnectionLimit::default());
        let first = [limits.slot(Some(&one), A).unwrap(), limits.slot(Some(&one), A).unwrap()];
        assert!(limits.slot(Some(&one), B).unwrap_err().contains("inflight_max_per_connection"));
        let third = limits.slot(Some(&other), A).unwrap();
        assert!(limits.slot(Some(&other), A).unwrap_err().contains("inflight_max_per_tenant"));
        assert!(limits.slot(Some(&other), B).is_ok());
        drop((first, third));
        assert!(limits.tenants.lock().is_empty(), "nobody is busy");
        assert!(limits.slot(Some(&one), A).is_ok());
    }

    #[test]
    fn a_refused_request_holds_no_part_of_a_slot() {
        let limits = limits(1, 5, 5);
        let connection = ConnectionLimit::default();
        let only = limits.slot(None, None).unwrap();
        for _ in 0..10 {
            assert!(limits.slot(Some(&connection), A).unwrap_err().contains("inflight_max)"));
        }
        drop(only);
        assert!(limits.slot(Some(&connection), A).is_ok());
    }

    #[test]
    fn requests_that_run_when_the_limits_change_keep_their_slots() {
        let before = limits(2, 2, 2);
        let connection = ConnectionLimit::default();
        let running = [(); 2].map(|()| before.slot(Some(&connection), A).unwrap());
        let after = before.with_rules(&Rules {
            inflight_max: 3,
            inflight_max_per_tenant: 1,
            inflight_max_per_connection: 2,
            ..Rules::default()
        });
        let refused = |tenant, connection| after.slot(connection, tenant).unwrap_err();
        assert!(refused(A, None).contains("inflight_max_per_tenant"));
        assert!(refused(B, Some(&connection)).contains("inflight_max_per_connection"));
        let third = after.slot(None, B).unwrap();
        assert!(refused(C, None).contains("inflight_max)"));
        drop((running, third));
        assert!(after.slot(Some(&connection), A).is_ok());
    }

    #[test]
    fn without_a_slot_some_requests_may_still_be_replayed() {
        let limits = limits(0, 1, 1);
        let replay_only: Vec<_> = (0..REPLAY_ONLY_MAX).map(|_| limits.admit(None, None).unwrap()).collect();
        assert!(replay_only.iter().all(|admitted| matches!(admitted, Admitted::ReplayOnly { .. })));
        assert!(limits.admit(None, None).is_err());
        drop(replay_only);
        assert!(limits.admit(None, None).is_ok());
    }
}
