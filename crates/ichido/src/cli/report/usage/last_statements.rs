//! The last statement of each month, tenant and app, in `data/statements`, to say what changed since.
//!
//! ```text
//! data/statements/                                 0700
//!   usage_2026-11_<16 hex of tenant and app>.json  0600: when the statement was made, its rows and its digest
//! ```

use std::path::{Path, PathBuf};

use ichido_core::to_hex;
use ichido_delivery::disk::{self, Disk};
use ichido_meter::statement::Usage;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::scope::Scope;
use ichido_serve::Failure;

const PREFIX: &str = "usage_";
/// The most statements that are remembered. Those of the oldest months are forgotten first.
const STATEMENTS_MAX: usize = 500;
/// The largest statement.
pub(super) const STATEMENT_BYTES_MAX: u64 = 256 << 20;

/// A statement that was made before.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LastStatement {
    pub(super) created_at: String,
    /// The same, in milliseconds since the epoch.
    pub(super) made_at_ms: i64,
    pub(super) digest: String,
    #[serde(flatten)]
    pub(super) usage: Usage,
}

pub(super) struct LastStatements {
    dir: PathBuf,
}

impl LastStatements {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { dir: data_dir.join("statements") }
    }

    pub(super) fn read(&self, scope: &Scope) -> Result<Option<LastStatement>, Failure> {
        let path = self.dir.join(name(scope));
        let unreadable = |problem: String| {
            let path = path.display();
            Failure::usage(format!(
                "cannot read the last statement {path}: {problem}; remove the file to start over"
            ))
        };
        match disk::read_regular(&path, STATEMENT_BYTES_MAX) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(last) => Ok(Some(last)),
                Err(error) => Err(unreadable(error.to_string())),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(error.to_string())),
        }
    }

    /// Remembers a statement instead of the one before.
    pub(super) fn write(&self, scope: &Scope, last: &LastStatement) -> Result<(), Failure> {
        let written = || -> std::io::Result<()> {
            disk::create_private_dir(&self.dir)?;
            Disk::default().replace(&self.dir, &name(scope), &serde_json::to_vec(last)?)?;
            self.forget_oldest()
        };
        written().map_err(|error| {
            Failure::internal(format!("cannot remember the statement in {}: {error}", self.dir.display()))
        })
    }

    fn forget_oldest(&self) -> std::io::Result<()> {
        let mut names = disk::file_names(&self.dir)?;
        names.retain(|name| name.starts_with(PREFIX));
        // The month is the first part of a name.
        names.sort_unstable();
        for name in names.iter().take(names.len().saturating_sub(STATEMENTS_MAX)) {
            std::fs::remove_file(self.dir.join(name))?;
        }
        Ok(())
    }
}

fn name(scope: &Scope) -> String {
    let Scope { tenant, month, app } = scope;
    let hash = Sha256::digest(serde_json::json!([tenant, app]).to_string());
    format!("{PREFIX}{month}_{}.json", &to_hex(&hash)[..16])
}
