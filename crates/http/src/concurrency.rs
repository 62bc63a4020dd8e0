//! How much keyed work may be under way at once: in all, for one tenant, and on one connection.
//!
//! A slot is taken before the body of a request is read, and given back when its work has ended. Work goes on after its
//! client hangs up or resets its stream, and so does its slot: without a bound for each connection, one that opens and
//! resets streams would take the slots of everybody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{Kind, Problem};
use crate::rules::Rules;

/// `Retry-After` when there is no slot.
const RETRY_SECONDS: u64 = 1;
/// Requests that may be read without a slot, to see whether their answer is remembered.
const LOOKS: usize = 64;

/// The slots of a layer.
#[derive(Debug)]
pub(crate) struct Slots {
    all: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    tenants: Arc<Tenants>,
    most_per_connection: usize,
}

#[derive(Debug)]
struct Tenants {
    most: usize,
    /// Tenants with work under way, and how much.
    busy: Mutex<HashMap<String, usize>>,
}

/// The share of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection(Arc<Semaphore>);

/// Leave to do keyed work, until it is dropped.
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

/// What a request may do.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// Be claimed and run.
    Work(Slot),
    /// Be read and answered if its answer is remembered. The problem is its answer otherwise.
    Look { _permit: OwnedSemaphorePermit, problem: Problem },
}

impl Slots {
    pub(crate) fn new(rules: &Rules) -> Self {
        let semaphore = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self {
            all: semaphore(rules.inflight_max),
            looks: semaphore(LOOKS),
            tenants: Arc::new(Tenants { most: rules.inflight_max_per_tenant, busy: Mutex::default() }),
            most_per_connection: rules.inflight_max_per_connection.min(Semaphore::MAX_PERMITS),
        }
    }

    /// The share of a new connection.
    pub(crate) fn connection(&self) -> Connection {
        Connection(Arc::new(Semaphore::new(self.most_per_connection)))
    }

    /// Admits a request. A request without a tenant counts for its connection only.
    pub(crate) fn admit(&self, connection: Option<&Connection>, tenant: &str) -> Result<Admitted, Problem> {
        let problem = match self.slot(connection, tenant) {
            Ok(slot) => return Ok(Admitted::Work(slot)),
            Err(why) => Problem::new(Kind::Overloaded, why).retry_after(RETRY_SECONDS),
        };
        match self.looks.clone().try_acquire_owned() {
            Ok(permit) => Ok(Admitted::Look { _permit: permit, problem }),
            Err(_) => Err(problem),
        }
    }

    fn slot(&self, connection: Option<&Connection>, tenant: &str) -> Result<Slot, &'static str> {
        let of_connection = connection.map(|connection| connection.0.clone().try_acquire_owned());
        let of_connection = of_connection.transpose().map_err(
            |_| "too many keyed requests of this connection are under way (inflight_max_per_connection)",
        )?;
        let of_tenant = (!tenant.is_empty()).then(|| self.tenants.slot(tenant));
        let of_tenant = of_tenant
            .map(|slot| {
                slot.ok_or("too many keyed requests of this tenant are under way (inflight_max_per_tenant)")
            })
            .transpose()?;
        let of_all = self.all.clone().try_acquire_owned();
        let of_all = of_all.map_err(|_| "too many keyed requests are under way (inflight_max)")?;
        Ok(Slot { _of_all: of_all, _of_connection: of_connection, _of_tenant: of_tenant })
    }
}

impl Tenants {
    fn slot(self: &Arc<Self>, tenant: &str) -> Option<TenantSlot> {
        let mut busy = self.lock();
        match busy.get_mut(tenant) {
            Some(count) if *count >= self.most => return None,
            Some(count) => *count += 1,
            None if self.most == 0 => return None,
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

    fn slots(all: usize, tenant: usize, connection: usize) -> Slots {
        Slots::new(&Rules {
            inflight_max: all,
            inflight_max_per_tenant: tenant,
            inflight_max_per_connection: connection,
            ..Rules::default()
        })
    }

    #[test]
    fn neither_a_tenant_nor_a_connection_takes_the_slots_of_others() {
        let slots = slots(10, 3, 2);
        let (one, other) = (slots.connection(), slots.connection());
        let first = [slots.slot(Some(&one), "a").unwrap(), slots.slot(Some(&one), "a").unwrap()];
        assert!(slots.slot(Some(&one), "b").unwrap_err().contains("inflight_max_per_connection"));
        let third = slots.slot(Some(&other), "a").unwrap();
        assert!(slots.slot(Some(&other), "a").unwrap_err().contains("inflight_max_per_tenant"));
        assert!(slots.slot(Some(&other), "b").is_ok());
        drop((first, third));
        assert!(slots.tenants.lock().is_empty(), "nobody is busy");
        assert!(slots.slot(Some(&one), "a").is_ok());
    }

    #[test]
    fn a_refusal_keeps_no_part_of_a_slot() {
        let slots = slots(1, 5, 5);
        let connection = slots.connection();
        let only = slots.slot(None, "").unwrap();
        for _ in 0..10 {
            assert!(slots.slot(Some(&connection), "a").unwrap_err().contains("inflight_max)"));
        }
        drop(only);
        assert!(slots.slot(Some(&connection), "a").is_ok());
    }

    #[test]
    fn when_there_is_no_slot_some_may_still_look() {
        let slots = slots(0, 1, 1);
        let looks: Vec<_> = (0..LOOKS).map(|_| slots.admit(None, "").unwrap()).collect();
        assert!(looks.iter().all(|look| matches!(look, Admitted::Look { .. })));
        assert!(slots.admit(None, "").is_err());
        drop(looks);
        assert!(slots.admit(None, "").is_ok());
    }
}
