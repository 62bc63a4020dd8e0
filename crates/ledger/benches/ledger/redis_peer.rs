//! Redis as a peer: durable `SET NX`.

use crate::load::{Until, run_load_each};

/// Redis, called by one program or by one program per caller.
pub(crate) struct Redis {
    client: redis::Client,
    shared: redis::aio::MultiplexedConnection,
    run: u32,
}

impl Redis {
    /// The Redis to compare with, if there is one.
    pub(crate) async fn find() -> Option<Self> {
        let client = redis::Client::open(std::env::var("ICHIDO_BENCH_REDIS_URL").ok()?).unwrap();
        let shared = client.get_multiplexed_async_connection().await.expect("ICHIDO_BENCH_REDIS_URL");
        Some(Self { client, shared, run: std::process::id() })
    }

    /// Callers in one program: their commands are sent together, and Redis syncs once for all that it has read.
    pub(crate) async fn one_connection(&self, callers: u64, until: Until, round: u64) -> f64 {
        self.run_load(callers, until, format!("one-{round}"), vec![self.shared.clone()]).await
    }

    /// Independent callers.
    pub(crate) async fn connection_each(&self, callers: u64, until: Until, round: u64) -> f64 {
        let mut connections = Vec::new();
        for _ in 0..callers {
            connections.push(self.client.get_multiplexed_async_connection().await.unwrap());
        }
        self.run_load(callers, until, format!("each-{round}"), connections).await
    }

    async fn run_load(
        &self,
        callers: u64,
        until: Until,
        family: String,
        connections: Vec<redis::aio::MultiplexedConnection>,
    ) -> f64 {
        let run = self.run;
        let each = run_load_each(callers, until, move |caller| {
            let redis = connections[usize::try_from(caller).unwrap() % connections.len()].clone();
            let family = family.clone();
            move |number| {
                let (mut redis, family) = (redis.clone(), family.clone());
                async move {
                    let mut set = redis::cmd("SET");
                    set.arg(format!("bench-{run}-{family}-{number}")).arg("v".repeat(100)).arg("NX");
                    let answer: Option<String> = set.query_async(&mut redis).await.unwrap();
                    assert_eq!(answer.as_deref(), Some("OK"));
                }
            }
        });
        each.await.rate()
    }
}
