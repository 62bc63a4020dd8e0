//! File names: `spool_20250118T120530Z_a3f2e1b9c4d5.json`, with `_2` if that name exists, and `.gz` if compressed.

use ichido_core::Timestamp;

use crate::time::compact;

/// The parts of a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName {
    /// The first attempt (spool) or the move (failed), to the second.
    pub at: String,
    /// The start of the batch key.
    pub key: String,
    /// Distinguishes batches whose names would be equal otherwise.
    pub copy: u32,
    /// Whether the file is compressed.
    pub gzip: bool,
}

impl FileName {
    /// The name for a batch.
    pub fn new(at: Timestamp, key: &str, gzip: bool) -> Self {
        let key = crate::batch::key_prefix(key);
        Self { at: compact(at), key: if key.is_empty() { "none" } else { key }.to_owned(), copy: 1, gzip }
    }

    /// Parses a name with this prefix. `None`: the file is not ours.
    pub fn parse(prefix: &str, name: &str) -> Option<Self> {
        let rest = name.strip_prefix(prefix)?.strip_prefix('_')?;
        let (rest, gzip) = match rest.strip_suffix(".json.gz") {
            Some(rest) => (rest, true),
            None => (rest.strip_suffix(".json")?, false),
        };
        let mut parts = rest.split('_');
        let (at, key, copy) = (parts.next()?, parts.next()?, parts.next());
        let copy = copy.map_or(Some(1), |copy| copy.parse().ok())?;
        let is_time = at.len() == 16 && at.ends_with('Z') && at.as_bytes()[8] == b'T';
        let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (parts.next().is_none() && is_time && is_key).then(|| Self {
            at: at.to_owned(),
            key: key.to_owned(),
            copy,
            gzip,
        })
    }

    /// The name as text, with this prefix.
    pub fn text(&self, prefix: &str) -> String {
        let copy = if self.copy > 1 { format!("_{}", self.copy) } else { String::new() };
        let gz = if self.gzip { ".gz" } else { "" };
        format!("{prefix}_{}_{}{copy}.json{gz}", self.at, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::parse_iso;

    #[test]
    fn names_contain_time_and_key() {
        let at = parse_iso("2025-01-18T12:05:30Z").unwrap();
        let name = FileName::new(at, "a3f2e1b9c4d5aaaaaaaa", false);
        assert_eq!(name.text("spool"), "spool_20250118T120530Z_a3f2e1b9c4d5.json");
        assert_eq!(FileName::parse("spool", "spool_20250118T120530Z_a3f2e1b9c4d5.json"), Some(name.clone()));
        let other = FileName { copy: 2, gzip: true, ..name };
        assert_eq!(other.text("failed"), "failed_20250118T120530Z_a3f2e1b9c4d5_2.json.gz");
        assert_eq!(FileName::parse("failed", &other.text("failed")), Some(other));
    }

    #[test]
    fn foreign_names_are_not_parsed() {
        for name in [
            "notes.txt",
            "spool_x_y.json",
            ".half-spool_20250118T120530Z_a.json",
            "spool_20250118T120530Z_.json",
            "spool_20250118T120530Z_a.json.tmp",
            "spool_20250118T120530Z_a_b.json",
            "failed_20250118T120530Z_a.json",
        ] {
            assert_eq!(FileName::parse("spool", name), None, "{name}");
        }
    }
}
