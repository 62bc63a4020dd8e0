//! Server settings that decide what a claim survives.

use crate::{Error, Kind, Result, Survives};

use super::connections::Connections;
use super::row::column;

const SETTINGS: &str = "
    SELECT
        current_setting('server_version') AS server_version,
        current_setting('server_version_num')::bigint AS server_version_num,
        current_setting('server_encoding') AS server_encoding,
        current_setting('fsync') AS fsync,
        current_setting('full_page_writes') AS full_page_writes,
        current_setting('synchronous_commit') AS synchronous_commit,
        current_setting('transaction_read_only') AS read_only,
        pg_is_in_recovery() AS in_recovery
";

const DOING: &str = "checking PostgreSQL";
/// `MATERIALIZED` needs version 12.
const OLDEST: i64 = 120_000;

/// What the server reports about itself.
pub(super) struct Health {
    version: String,
    too_old: bool,
    unicode: bool,
    fsync: bool,
    full_page_writes: bool,
    synchronous_commit: bool,
    writable: bool,
}

impl Health {
    pub(super) async fn query(connections: &Connections) -> Result<Self> {
        let row = connections.query_one(DOING, SETTINGS, &[]).await?;
        let row = row.ok_or_else(|| Error::new(Kind::Unavailable, DOING))?;
        let on = |name| -> Result<bool> { Ok(column::<&str>(&row, name)? != "off") };
        Ok(Self {
            version: column(&row, "server_version")?,
            too_old: column::<i64>(&row, "server_version_num")? < OLDEST,
            unicode: column::<&str>(&row, "server_encoding")? == "UTF8",
            fsync: on("fsync")?,
            full_page_writes: on("full_page_writes")?,
            synchronous_commit: on("synchronous_commit")?,
            writable: !on("read_only")? && !column::<bool>(&row, "in_recovery")?,
        })
    }

    /// Fails if the server cannot serve as a ledger.
    pub(super) fn require_usable(&self) -> Result<()> {
        if self.too_old {
            let text =
                format!("PostgreSQL {} is not supported; ichido needs version 12 or newer", self.version);
            return Err(Error::new(Kind::Unsupported(text), DOING));
        }
        if !self.writable {
            let text = "the PostgreSQL server is a standby or read-only; name the primary in the URL, or add \
                        target_session_attrs=read-write";
            return Err(Error::new(Kind::Settings(text.to_owned()), DOING));
        }
        Ok(())
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.unicode {
            warnings.push(
                "the encoding of the PostgreSQL database is not UTF8: metadata with unsupported characters is refused",
            );
        }
        if !self.fsync {
            warnings.push(
                "PostgreSQL runs with fsync = off: claims may be lost or corrupted if its host crashes",
            );
        }
        if !self.full_page_writes {
            warnings.push(
                "PostgreSQL runs with full_page_writes = off: claims may be corrupted if its host crashes",
            );
        }
        if !self.synchronous_commit {
            warnings.push(
                "PostgreSQL runs with synchronous_commit = off: the last claims are lost if it crashes",
            );
        }
        warnings.into_iter().map(str::to_owned).collect()
    }

    pub(super) fn survives(&self) -> Vec<Survives> {
        if self.fsync && self.full_page_writes && self.synchronous_commit {
            vec![Survives::ProcessKill, Survives::PowerLoss]
        } else {
            vec![Survives::ProcessKill]
        }
    }
}
