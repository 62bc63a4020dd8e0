//! Walking over the claims of a server, or of all nodes of a cluster one after the other.
//!
//! SCAN promises that whatever is there from beginning to end is seen; it may be seen twice if the server shrinks its
//! table meanwhile, and what comes or goes meanwhile may or may not be seen. A walk stops between two SCANs; only where
//! even the smallest SCAN returns more than a page holds, it stops within one: names are sorted, and the position
//! remembers the last one.

use ichido_core::Index;

use super::cluster::Node;
use super::connection::Connection;
use super::position::Position;
use super::store::Redis;
use crate::{Error, Kind, Result};

/// Buckets of the server's table that one SCAN looks at, at most.
pub(super) const BUCKETS_MAX: usize = 1_000;

/// Claims that one SCAN returned, and where the walk goes on from there.
pub(super) struct Batch {
    pub(super) claims: Vec<Index>,
    /// None at the end of the walk.
    pub(super) next: Option<Position>,
}

impl Redis {
    /// The batch at a position: what `count` buckets hold.
    pub(super) async fn scan(&self, at: &Position, count: usize, doing: &'static str) -> Result<Batch> {
        let mut command = redis::cmd("SCAN");
        command.arg(at.cursor).arg("MATCH").arg(self.claim_pattern()).arg("COUNT").arg(count);
        let (answer, here, following) = match &*self.connection {
            Connection::Single(_) => (self.connection.call(&command).await, String::new(), None),
            Connection::Cluster(cluster) => {
                let nodes = cluster.nodes().await.map_err(|failure| failure.into_error(doing))?;
                let (here, following) = around(&nodes, &at.node, doing)?;
                (cluster.call_node(here, &command).await, here.id.clone(), following)
            }
        };
        let value = answer.map_err(|failure| failure.into_error(doing))?;
        let (cursor, names): (u64, Vec<String>) = redis::from_redis_value(value)
            .map_err(|error| super::error::CallError::sent(error.into()).into_error(doing))?;
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
