//! Server settings that decide what a claim survives.
//!
//! They are read with INFO, because CONFIG is often forbidden.

use redis::Value;

use super::connection::Connection;
use super::error::CallError;
use super::store::Redis;
use crate::{Error, Kind, Result};

const DOING: &str = "checking Redis";

impl Redis {
    /// Warnings about the server, or about each node of a cluster.
    pub(super) async fn warnings(&self) -> Result<Vec<String>> {
        let command = redis::cmd("INFO");
        match &*self.connection {
            Connection::Single(_) => evaluate(&info(self.connection.call(&command).await)?, "Redis"),
            Connection::Cluster(cluster) => {
                let mut warnings = Vec::new();
                for node in cluster.nodes().await.map_err(|failure| failure.into_error(DOING))? {
                    let name = format!("Redis node {}", node.id);
                    warnings.extend(evaluate(&info(cluster.call_node(&node, &command).await)?, &name)?);
                }
                Ok(warnings)
            }
        }
    }
}

fn info(answer: Result<Value, CallError>) -> Result<String> {
    let value = answer.map_err(|failure| failure.into_error(DOING))?;
    redis::from_redis_value(value).map_err(|error| CallError::unsent(error.into()).into_error(DOING))
}

fn evaluate(info: &str, who: &str) -> Result<Vec<String>> {
    let field = |name: &str| {
        let values = info.lines().filter_map(|line| line.trim_end().split_once(':'));
        values.into_iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    };
    if field("role") == "slave" {
        let text = format!("{who} is a replica, which is read-only; name the primary in the URL");
        return Err(Error::new(Kind::Settings(text), DOING));
    }
    let mut warnings = Vec::new();
    let policy = field("maxmemory_policy");
    if policy != "noeviction" {
        let policy = if policy.is_empty() { "unknown" } else { policy };
        warnings.push(format!(
            "{who} has maxmemory_policy {policy}: when its memory is full it may silently evict claims, and their effects \
             will run again; set it to noeviction"
        ));
    }
    // A server that never saves only reports when it started as the time of its last save.
    let saves = field("rdb_bgsave_in_progress") == "1"
        || field("rdb_saves").parse().is_ok_and(|saves: u64| saves > 0);
    if field("aof_enabled") != "1" {
        warnings.push(match saves {
            true => format!(
                "{who} has appendonly off: claims since its last snapshot are lost if it restarts; set appendonly yes"
            ),
            false => format!(
                "{who} has appendonly off and has saved no snapshot: claims do not survive its restart; set \
                 appendonly yes"
            ),
        });
    }
    if field("connected_slaves").parse().is_ok_and(|replicas: u64| replicas > 0) {
        warnings.push(format!(
            "{who} has replicas: it replies before they have the data, so a failover may lose the last claims"
        ));
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durable_server_causes_no_warning() {
        let info = "role:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n";
        assert_eq!(evaluate(info, "Redis").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn server_that_may_lose_claims_causes_warnings() {
        let info = "role:master\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nconnected_slaves:1\r\n";
        let warnings = evaluate(info, "Redis").unwrap().join("\n");
        for text in ["allkeys-lru", "evict claims", "do not survive its restart", "failover"] {
            assert!(warnings.contains(text), "{text}");
        }
    }

    #[test]
    fn replica_is_refused() {
        let error = evaluate("role:slave\r\n", "Redis").unwrap_err();
        assert!(matches!(error.kind(), Kind::Settings(_)));
    }
}
