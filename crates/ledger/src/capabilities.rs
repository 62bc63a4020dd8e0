//! What a backend promises, in words that an operator can read.

use std::fmt;

use serde::Serialize;

/// The promises of a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The backend's name, as in its URL.
    pub backend: &'static str,
    /// Who sees the same claims.
    pub reach: Reach,
    /// What an acknowledged claim survives.
    pub survives: Vec<Survives>,
    /// When an expired record is free again.
    pub expiry: Expiry,
    /// How tokens fence.
    pub fencing: Fencing,
    /// How claims are listed.
    pub listing: Listing,
    /// Whose clock judges leases.
    pub clock: StoreClock,
    /// Outcomes larger than this leave a tombstone.
    pub outcome_bytes: usize,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $word,)+ })
            }
        }
    };
}

words! {
    /// Who sees the same claims.
    Reach {
        /// One process.
        Process = "process",
        /// The processes of one host, through the one that holds the store.
        Host = "host",
        /// Everyone who reaches the primary server.
        SinglePrimary = "single primary",
        /// Everyone in one region.
        Region = "region",
    }
}

words! {
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

words! {
    /// When an expired record is free again.
    Expiry {
        /// At its time, to the millisecond.
        Exact = "exact",
        /// At its time, judged by the asker's clock; deletion lags behind.
        Lazy = "lazy",
    }
}

words! {
    /// How tokens fence.
    Fencing {
        /// Unique tokens, compared for equality.
        Unique = "unique",
    }
}

words! {
    /// How claims are listed.
    Listing {
        /// By an index on their state.
        Indexed = "indexed",
        /// By a paged scan of everything.
        Scan = "scan",
    }
}

words! {
    /// Whose clock judges leases.
    StoreClock {
        /// The process's own, which does not jump.
        Own = "own",
        /// The server's.
        Server = "server",
        /// None: a lapse is watched for a full lease on the asker's steady clock.
        Watched = "watched",
    }
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
