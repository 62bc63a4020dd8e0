//! Walking over the claims of a server, or of all nodes of a cluster one after the other.
//!
//! SCAN promises that whatever is there from beginning to end is seen; it may be seen twice if the server shrinks its
//! table meanwhile, and what comes or goes meanwhile may or may not be seen. A walk stops between two SCANs; only where
//! even the smallest SCAN returns more than a page holds, it stops within one: names are sorted, and the position
//! remembers the last one.

use std::fmt;

use ichido_core::Index;

use super::Redis;
use super::cluster::Node;
use super::link::Link;
use crate::{Error, Kind, Result};

/// Buckets of the server's table that one SCAN looks at, at most.
pub(super) const MOST: usize = 1_000;

/// How far a walk has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// The node's id; empty on a single server, and at the beginning.
    node: String,
    cursor: u64,
    /// The last name of the batch at this cursor that was dealt with.
    after: Option<Index>,
}

/// Claims that one SCAN returned, and where the walk goes on from there.
pub(super) struct Batch {
    pub(super) claims: Vec<Index>,
    /// None at the end of the walk.
    pub(super) next: Option<Position>,
}

impl Position {
    /// The same batch, beyond a claim.
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
        let wrong = || Kind::Unsupported("the cursor is not one of this ledger's".to_owned());
        read().ok_or_else(|| Error::new(wrong(), "listing claims in Redis"))
    }
}

impl Redis {
    /// The batch at a position: what `count` buckets hold.
    pub(super) async fn scan(&self, at: &Position, count: usize, doing: &'static str) -> Result<Batch> {
        let mut command = redis::cmd("SCAN");
        command.arg(at.cursor).arg("MATCH").arg(self.claim_pattern()).arg("COUNT").arg(count);
        let (answer, here, following) = match &*self.link {
            Link::Single(_) => (self.link.call(&command).await, String::new(), None),
            Link::Cluster(cluster) => {
                let nodes = cluster.nodes().await.map_err(|failure| failure.into_error(doing))?;
                let (here, following) = around(&nodes, &at.node, doing)?;
                (cluster.call_node(here, &command).await, here.id.clone(), following)
            }
        };
        let value = answer.map_err(|failure| failure.into_error(doing))?;
        let (cursor, names): (u64, Vec<String>) = redis::from_redis_value(value)
            .map_err(|error| super::failure::Failure::sent(error.into()).into_error(doing))?;
        let mut claims: Vec<_> = names.iter().filter_map(|name| self.claim_index(name)).collect();
        claims.sort_unstable();
        claims.dedup();
        claims.retain(|claim| at.after.is_none_or(|after| *claim > after));
        let next = match cursor {
            0 => following.map(|node| Position { node, ..Position::default() }),
            cursor => Some(Position { node: here, cursor, after: None }),
        };
        Ok(Batch { claims, next })
    }
}

/// The node of a position, and the id of the one after it. A node that is gone is passed over.
fn around<'a>(nodes: &'a [Node], id: &str, doing: &'static str) -> Result<(&'a Node, Option<String>)> {
    let at = nodes.partition_point(|node| node.id.as_str() < id);
    let here = nodes.get(at).ok_or_else(|| Error::new(Kind::Unavailable, doing))?;
    Ok((here, nodes.get(at + 1).map(|node| node.id.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
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
