//! The limit on open files: raised at startup, and divided so that clients cannot use up the ledger's descriptors.
//!
//! A reserve is kept for the ledger, the spool, the admin port and the log. Of the rest, one third is for client
//! connections, one third for connections to the upstream, and one sixth for request bodies on disk. What remains is for
//! tunnels and short-lived files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors kept for the process itself; at most a quarter of the limit.
const RESERVE: u64 = 512;
/// More connections are accepted only if a setting asks for them, because each also takes memory.
const CONNECTIONS_MAX: u64 = 16_384;
/// Assumed where the system sets no limit.
const UNLIMITED: u64 = 1 << 20;

/// Raises the limit as far as the system allows.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::info!(
            from = current.unwrap_or(UNLIMITED),
            to = maximum.unwrap_or(UNLIMITED),
            "raised the open file limit"
        ),
        Err(error) => tracing::warn!(
            limit = current.unwrap_or(UNLIMITED),
            %error,
            "cannot raise the open file limit"
        ),
    }
}

/// How many descriptors each use may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Client connections to one listener.
    pub connections: u64,
    /// Connections to the upstream.
    pub upstream: u64,
    /// Request bodies on disk.
    pub bodies: u64,
}

impl Descriptors {
    /// The shares of the limit in force.
    pub fn from_current_limit() -> Self {
        Self::for_limit(getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED))
    }

    fn for_limit(limit: u64) -> Self {
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
    fn the_shares_leave_the_reserve_untouched() {
        for limit in [64, 256, 1024, 4096, 65_536, UNLIMITED] {
            let Descriptors { connections, upstream, bodies } = Descriptors::for_limit(limit);
            assert!(connections + upstream + bodies <= limit - RESERVE.min(limit / 4), "limit {limit}");
        }
        let small = Descriptors::for_limit(1024);
        assert_eq!(small, Descriptors { connections: 256, upstream: 256, bodies: 128 });
        assert_eq!(Descriptors::for_limit(UNLIMITED).connections, CONNECTIONS_MAX);
    }
}
