//! Checks a ledger that no process has open.

use std::path::Path;

use super::holder::Held;
use crate::log::storage::Disk;
use crate::log::{self, Options};
use crate::{Result, Verified};

/// Reads and checks everything in the ledger in `dir`, and changes nothing. Blocks for as long as that takes.
pub fn verify(dir: &Path) -> Result<Verified> {
    let held = Held::take_to_read(dir)?;
    let options = Options::standard(held.dir().display().to_string());
    let verified = log::verify(&Disk::read_only(held.dir()), &options);
    held.release();
    verified
}
