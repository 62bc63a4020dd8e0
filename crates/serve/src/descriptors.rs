//! The limit of open files: raised at the start, and divided so that no kind of client takes the descriptors of the ledger.
//!
//! Some descriptors are kept for the ledger, the spool, the admin port and the log. Of the others a third is for
//! connections of clients, a third for connections to the service behind, a sixth for request bodies on disk; the rest
//! is for tunnels and whatever else is open for a moment.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept for the process itself; at most a quarter of the limit.
const RESERVE: u64 = 512;
/// More connections are taken only if a setting says so: each takes memory as well.
const CONNECTIONS_MAX: u64 = 16_384;
/// What is assumed where there is no limit.
const UNLIMITED: u64 = 1 << 20;

/// Raises the limit as far as the system allows it.
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::info!(
            from = current.unwrap_or(UNLIMITED),
            to = maximum.unwrap_or(UNLIMITED),
            "raised the limit of open files"
        ),
        Err(error) => tracing::warn!(
            limit = current.unwrap_or(UNLIMITED),
            %error,
            "cannot raise the limit of open files"
        ),
    }
}

/// How many descriptors each use may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Connections of clients to one listener.
    pub connections: u64,
    /// Connections to the service behind.
    pub upstream: u64,
    /// Request bodies on disk.
    pub bodies: u64,
}

impl Descriptors {
    /// By the limit that is in force.
    pub fn now() -> Self {
        Self::of(getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED))
    }

    fn of(limit: u64) -> Self {
        let free = limit - RESERVE.min(limit / 4);
        Self {
            connections: (free / 3).clamp(1, CONNECTIONS_MAX),
            upstream: (free / 3).max(1),
            bodies: (free / 6).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_together_leaves_some_for_the_ledger() {
        for limit in [64, 256, 1024, 4096, 65_536, UNLIMITED] {
            let Descriptors { connections, upstream, bodies } = Descriptors::of(limit);
            assert!(connections + upstream + bodies <= limit - RESERVE.min(limit / 4), "{limit}");
        }
        let small = Descriptors::of(1024);
        assert_eq!(small, Descriptors { connections: 256, upstream: 256, bodies: 128 });
        assert_eq!(Descriptors::of(UNLIMITED).connections, CONNECTIONS_MAX);
    }
}
