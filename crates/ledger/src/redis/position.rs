//! How far a scan over the claims has come.

use std::fmt;

use ichido_core::Index;

use crate::{Error, Kind, Result};

/// How far a scan has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// The node's id; empty on a single server, and at the beginning.
    pub(super) node: String,
    pub(super) cursor: u64,
    /// The last name of the batch at this cursor that was processed.
    pub(super) after: Option<Index>,
}

impl Position {
    /// The same batch, behind a claim.
    pub(super) fn after(&self, claim: Index) -> Self {
        Self { after: Some(claim), ..self.clone() }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.node, self.cursor)?;
        self.after.map_or(Ok(()), |after| after.fmt(f))
    }
}

impl std::str::FromStr for Position {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let read = || {
            let [node, cursor, after] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
            let after = if after.is_empty() { None } else { Some(after.parse().ok()?) };
            Some(Self { node: node.to_owned(), cursor: cursor.parse().ok()?, after })
        };
        let invalid = || Kind::Unsupported("invalid cursor: it is not from this ledger".to_owned());
        read().ok_or_else(|| Error::new(invalid(), "listing claims in Redis"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_round_trips_through_text() {
        let start = Position::default();
        assert_eq!(start.to_string().parse::<Position>().unwrap(), start);
        let middle = Position { node: "a1".to_owned(), cursor: 77, after: None };
        let middle = middle.after(Index::from_bytes([9; 32]));
        assert_eq!(middle.to_string().parse::<Position>().unwrap(), middle);
        for wrong in ["", "::", "a:b:", "a:1", "a:1:zz", "a:1::"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }
}
