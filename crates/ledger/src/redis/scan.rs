//! Scans the claims or marks of a server, or of all nodes of a cluster one after the other.
//!
//! SCAN returns every key that exists from beginning to end. It may return a key twice if the server shrinks its
//! table meanwhile; keys that are created or deleted meanwhile may or may not be returned. A scan stops between two
//! SCAN calls. Only if the smallest SCAN returns more than a page holds, it stops within one: names are sorted, and
//! the position remembers the last one.

use ichido_core::Index;

use super::cluster::Node;
use super::connection::Connection;
use super::position::Position;
use super::store::{Redis, Space};
use crate::{Error, Kind, Result};

/// Most buckets of the server's table that one SCAN visits.
pub(super) const BUCKETS_MAX: usize = 1_000;

/// The records that one SCAN returned, and where the scan continues.
pub(super) struct Batch {
    pub(super) indexes: Vec<Index>,
    /// `None` at the end of the scan.
    pub(super) next: Option<Position>,
}

impl Redis {
    /// The batch at a position: the contents of `count` buckets.
    pub(super) async fn scan(
        &self,
        space: Space,
        at: &Position,
        count: usize,
        doing: &'static str,
    ) -> Result<Batch> {
        let mut command = redis::cmd("SCAN");
        command.arg(at.cursor).arg("MATCH").arg(self.pattern(space)).arg("COUNT").arg(count);
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
        let mut indexes: Vec<_> = names.iter().filter_map(|name| self.index(space, name)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes.retain(|index| at.after.is_none_or(|after| *index > after));
        let next = match cursor {
            0 => following.map(|node| Position { node, ..Position::default() }),
            cursor => Some(Position { node: here, cursor, after: None }),
        };
        Ok(Batch { indexes, next })
    }
}

/// The node of a position, and the id of the next one. Skips a node that no longer exists.
fn around<'a>(nodes: &'a [Node], id: &str, doing: &'static str) -> Result<(&'a Node, Option<String>)> {
    let at = nodes.partition_point(|node| node.id.as_str() < id);
    let here = nodes.get(at).ok_or_else(|| Error::new(Kind::Unavailable, doing))?;
    Ok((here, nodes.get(at + 1).map(|node| node.id.clone())))
}
