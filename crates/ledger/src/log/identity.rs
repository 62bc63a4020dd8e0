//! The file that makes a directory a ledger: its format, and the key of its checksums and tags.

use ichido_core::to_hex;

use super::fault::Faults;
use super::storage::{Storage, read_all, replace};
use crate::Result;

/// The name of the file.
pub(crate) const NAME: &str = "format";
/// The format that this version reads and writes.
pub(crate) const FORMAT: u32 = 5;
const TITLE: &str = "ichido ledger, format ";

/// Reads the key of a store. `None` if there is no store yet.
pub(crate) fn read(storage: &dyn Storage, faults: &Faults) -> Result<Option<[u8; 16]>> {
    let bytes = read_all(storage, NAME).map_err(|error| faults.io("opening", error))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.lines();
    let format = lines.next().and_then(|line| line.strip_prefix(TITLE));
    let damaged = || faults.damaged(NAME, 0, "it does not name a format and a key");
    match format {
        Some(format) if format.parse() == Ok(FORMAT) => {}
        Some(other) if other.parse::<u32>().is_ok() => return Err(faults.other_format(other, FORMAT)),
        Some(_) | None => return Err(damaged()),
    }
    let mut fields = lines.next().unwrap_or_default().split(' ');
    let (name, key, checksum) = (fields.next(), fields.next(), fields.next());
    let mut bytes = [0; 16];
    let is_key = name == Some("key") && hex::decode_to_slice(key.unwrap_or_default(), &mut bytes).is_ok();
    let is_intact = checksum == Some(&*checksum_of(&bytes));
    if is_key && is_intact { Ok(Some(bytes)) } else { Err(damaged()) }
}

/// Makes a directory a store with this key.
pub(crate) fn write(storage: &dyn Storage, key: &[u8; 16], faults: &Faults) -> Result<()> {
    let text = format!("{TITLE}{FORMAT}\nkey {} {}\n", to_hex(key), checksum_of(key));
    replace(storage, NAME, text.as_bytes()).map_err(|error| faults.io("creating", error))
}

fn checksum_of(key: &[u8; 16]) -> String {
    to_hex(&crc32c::crc32c(key).to_be_bytes())
}
