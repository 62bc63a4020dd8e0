//! Databases for single tests, and batches to fill them.

use std::sync::Arc;

use ichido_core::{Nonce, SystemEntropy};
use ichido_meter::batch::{Batch, Context};
use ichido_meter::outcome::Outcome;
use ichido_meter::report::{Group, GroupBy, ReportQuery};
use ichido_meter::{Options, Store, open};
use ichido_testkit::pgbouncer::PgBouncer;
use ichido_testkit::required_env;
use ichido_usage::Profile;
use serde_json::{Value, json};

/// A database for one test.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) dir: Option<tempfile::TempDir>,
    _pooler: Option<PgBouncer>,
}

impl Database {
    pub(crate) fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", dir.path().join("data/meter.db").display());
        Self { url, dir: Some(dir), _pooler: None }
    }

    pub(crate) fn postgres() -> Self {
        let url = required_env("ICHIDO_TEST_POSTGRES_URL");
        let schema = format!("m_{}", Nonce::draw(&SystemEntropy));
        Self { url: format!("{url}?schema={schema}&pool=8"), dir: None, _pooler: None }
    }

    /// Behind a pooler in transaction mode.
    pub(crate) fn pooled() -> Self {
        let pooler = PgBouncer::start("transaction", 3);
        let url = pooler.url(&format!("m_{}", Nonce::draw(&SystemEntropy)));
        Self { url: format!("{url}&pool=8"), dir: None, _pooler: Some(pooler) }
    }

    /// The schema in PostgreSQL, and a direct connection.
    pub(crate) async fn client(&self) -> (String, tokio_postgres::Client) {
        let schema = self.url.split_once("schema=").unwrap().1.split('&').next().unwrap().to_owned();
        let server = self.url.split('?').next().unwrap();
        let url = format!("{server}?sslmode=disable");
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        (schema, client)
    }

    pub(crate) async fn open(&self, profile: Profile) -> Meter {
        Meter { store: open(&self.url, Options { profile }).await.unwrap(), profile }
    }
}

/// An open database, and the profile it was opened with.
#[derive(Clone)]
pub(crate) struct Meter {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) profile: Profile,
}

/// The names of outcomes.
pub(crate) type Outcomes = Vec<&'static str>;

impl Meter {
    /// Counts a plain batch of the tenant `t`.
    pub(crate) async fn count(&self, key: &str, records: &[Value]) -> Outcomes {
        self.count_for("t", json!({"batchIdempotencyKey": key, "records": records})).await
    }

    /// Counts an export with this time, in seconds since the epoch.
    pub(crate) async fn export(&self, second: i64, records: &[Value]) -> Outcomes {
        let at = format!("1970-01-01T00:00:{second:02}Z");
        let body = json!({"tenant_id": "t", "export_metadata": {"export_timestamp": at}, "records": records});
        self.count_for("t", body).await
    }

    pub(crate) async fn count_for(&self, tenant: &str, body: Value) -> Outcomes {
        let batch = batch(tenant, &body, self.profile);
        let outcomes = self.store.count(Arc::new(batch)).await.unwrap();
        outcomes.iter().map(Outcome::as_str).collect()
    }

    /// The sums of the tenant `t`.
    pub(crate) async fn sums(&self, by: &[GroupBy]) -> Vec<Group> {
        let query = ReportQuery {
            tenant: "t".to_owned(),
            from: None,
            to: None,
            group_by: by.to_vec(),
            ..ReportQuery::default()
        };
        self.store.report(&query).await.unwrap()
    }

    /// The only sum of the tenant `t`: requests, tokens, cost.
    pub(crate) async fn sum(&self) -> (i64, i64, String) {
        let mut sums = self.sums(&[]).await;
        assert_eq!(sums.len(), 1, "{sums:?}");
        let sum = sums.remove(0);
        (sum.request_count, sum.total_tokens, sum.cost_actual)
    }
}

pub(crate) fn batch(tenant: &str, body: &Value, profile: Profile) -> Batch {
    let context = Context { tenant, key: None, received_at: 1_000, profile };
    Batch::read(body.to_string().as_bytes(), &context).unwrap()
}

/// A record of a day in November 2025.
pub(crate) fn record(id: &str, day: u32, requests: u64, cost: &str) -> Value {
    json!({
        "usage_date": format!("2025-11-{day:02}"), "provider": "anthropic", "model": "claude",
        "input_tokens": 10 * requests, "output_tokens": 5 * requests, "total_tokens": 15 * requests,
        "request_count": requests, "cost_actual": cost, "currency": "USD",
        "metadata": {"source_system": "dify", "source_event_id": id, "source_app_id": "app-1",
                     "source_app_name": "Support", "aggregation_method": "daily_sum"},
    })
}

/// Sets a value in a record.
pub(crate) fn with(mut record: Value, pointer: &str, value: impl Into<Value>) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    record.pointer_mut(parent).unwrap()[field] = value.into();
    record
}
