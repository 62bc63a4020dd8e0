//! What a backend guarantees, in terms that an operator understands.

use std::fmt;

use serde::Serialize;

/// The guarantees of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The backend's name, as in its URL.
    pub backend: &'static str,
    /// Who shares the same claims.
    pub reach: Reach,
    /// What an acknowledged claim survives.
    pub survives: Vec<Survives>,
    /// When a record with expired retention is free again.
    pub expiry: Expiry,
    /// How tokens fence off stale holders.
    pub fencing: Fencing,
    /// How claims are listed.
    pub listing: Listing,
    /// Which clock decides whether a lease has lapsed.
    pub clock: StoreClock,
    /// Larger outcomes are replaced by a tombstone.
    pub outcome_bytes: usize,
}

macro_rules! labelled_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $label:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $label)] $variant,)+
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $label,)+ })
            }
        }
    };
}

labelled_enum! {
    /// Who shares the same claims.
    Reach {
        /// One process.
        Process = "process",
        /// All processes of one host, through the process that has the store open.
        Host = "host",
        /// Everyone who can reach the primary server.
        SinglePrimary = "single primary",
        /// Everyone in one region.
        Region = "region",
    }
}

labelled_enum! {
    /// What an acknowledged claim survives.
    Survives {
        /// kill -9.
        ProcessKill = "process kill",
        /// Power loss, with the disk intact.
        PowerLoss = "power loss",
        /// The loss of one machine.
        HostLoss = "host loss",
        /// A failover to a replica.
        Failover = "failover",
    }
}

labelled_enum! {
    /// When a record with expired retention is free again.
    Expiry {
        /// Exactly on time, to the millisecond.
        Exact = "exact",
        /// On time according to the claimant's clock; the record is deleted later.
        Lazy = "lazy",
    }
}

labelled_enum! {
    /// How tokens fence off stale holders.
    Fencing {
        /// Unique tokens, compared for equality.
        Unique = "unique",
    }
}

labelled_enum! {
    /// How claims are listed.
    /// How claims are listed.
    Listing {
        /// Through an index on their state.
        Indexed = "indexed",
        /// By scanning everything, page by page.
        Scan = "scan",
    }
}

labelled_enum! {
    /// Which clock decides whether a lease has lapsed.
    StoreClock {
        /// The process's own steady clock.
        Own = "own",
        /// The server's.
        Server = "server",
        /// None: the claimant watches for a full lease on its own steady clock.
        Watched = "watched",
    }
}

/// Who removes expired records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweeping {
    /// The store itself. A sweep on demand still removes what the store leaves for later.
    ByStore,
    /// The process that serves the ledger, by sweeping periodically.
    ByProcess,
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survives = if self.survives.is_empty() {
            "nothing".to_owned()
        } else {
            self.survives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        write!(
            f,
            "{}: reach {}; survives {survives}; expiry {}; fencing {}; listing {}; clock {}; outcomes up to {} bytes",
            self.backend, self.reach, self.expiry, self.fencing, self.listing, self.clock, self.outcome_bytes
        )
    }
}
