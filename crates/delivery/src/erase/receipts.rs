//! Ids of records in receipts are overwritten in place with a text of the same length, so that processes can append to the
//! files meanwhile. The rest of a receipt is evidence, and stays.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use ichido_core::to_hex;
use memchr::memmem::Finder;
use sha2::{Digest, Sha256};

use super::{Mode, Subject, Tally};
use crate::disk::{self, Disk};
use crate::receipt::read::{Receipt, ReceiptFiles};

/// The longest line that is read. A longer one is no receipt.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Erases the id of a record from the receipts of a data directory. Receipts name neither users nor channels.
pub fn receipts(root: &Path, subject: &Subject, mode: Mode) -> io::Result<Tally> {
    let mut tally = Tally::default();
    let Subject::Key(id) = subject else {
        let why =
            format!("receipts name records by their ids: they cannot be searched for a {}", subject.kind());
        return Ok(Tally { notes: vec![why], ..tally });
    };
    let files = ReceiptFiles::list(root)?;
    let (needle, mut is_batch_found) = (subject.quoted(), false);
    let finder = Finder::new(&needle);
    for path in files.paths() {
        let disk = Disk::default();
        let file = match disk.open_update(&path) {
            Ok(file) => file,
            // It has expired in the meantime, or is not ours.
            Err(error) if error.kind() == io::ErrorKind::NotFound || disk::is_irregular(&error) => continue,
            Err(error) => return Err(error),
        };
        let (mut lines, mut line, mut at) = (BufReader::new(&file), Vec::new(), 0);
        let mut is_changed = false;
        loop {
            line.clear();
            let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            if finder.find(&line).is_some() {
                let receipt = serde_json::from_slice::<Receipt>(&line).ok();
                let is_batch = receipt.as_ref().is_some_and(|receipt| receipt.batch_idempotency_key == *id);
                is_batch_found |= is_batch;
                // A line that cannot be parsed is torn. It has the text all the same.
                if !is_batch {
                    let places: Vec<_> = finder.find_iter(&line).collect();
                    tally.add(1, 1);
                    for place in places.into_iter().filter(|_| mode == Mode::Erase) {
                        let filler = filler(id, needle.len() - 2);
                        disk.overwrite(&file, &path, filler.as_bytes(), at + place as u64 + 1)?;
                        is_changed = true;
                    }
                }
            }
            at += read as u64;
        }
        if is_changed {
            disk.sync_data(&file, &path)?;
        }
    }
    if is_batch_found {
        tally.notes.push("the key of a batch is a hash of its content, and stays in its receipts".to_owned());
    }
    Ok(tally)
}

/// What replaces an id: as long as the id is in the file.
fn filler(id: &str, length: usize) -> String {
    let text = format!("erased:{}", to_hex(&Sha256::digest(id)));
    text.chars().cycle().take(length).collect()
}
