//! Arguments of the servers: `ichido gateway`, `meter`, `claims` and `run`, and of `ichido health`, which probes them.

use std::net::SocketAddr;

use ichido_settings::Flag;

use super::{Common, DeliveryFlags, flag};

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  ichido run                                              resend spooled batches every minute
  RESEND_CRON='*/15 * * * *' ichido run                   every 15 minutes
  RESEND_WINDOW='22:00-06:00 Asia/Tokyo' ichido run       at night only

Every component that has a section in ichido.toml is started: [gateway], [meter], [delivery] and [export.dify].
The sender is also started if EXTERNAL_API_ENDPOINT is set, or if there is no such section.
On SIGTERM, requests that are running are finished; batches that are not sent stay on disk.";

pub(super) const METER_EXAMPLES: &str = "\
Examples:
  ichido meter                                              one tenant, local only, database data/meter.db
  METER_TOKENS=acme=s3cret ichido meter --listen 0.0.0.0:8090 --db postgres://db/usage

Send usage:
  EXTERNAL_API_ENDPOINT=http://127.0.0.1:8090/v1/usage EXTERNAL_API_ALLOW_HTTP_LOOPBACK=on EXTERNAL_API_TOKEN=none \\
    ichido send usage.jsonl
Query usage:
  curl 'http://127.0.0.1:8090/v1/usage?from=2025-11-01&to=2025-11-30&group_by=day,model'
  curl 'http://127.0.0.1:8090/v1/usage?group_by=app&format=csv'
  curl 'http://127.0.0.1:8090/v1/receipts?batch=…'

METER_TOKENS (tenant=token,…) lists who may send. It is required unless the meter listens on loopback only.
METER_PROFILE decides what a record with a known id does: first_wins, upsert_by_event_id or upsert_by_model_day.";

pub(super) const GATEWAY_EXAMPLES: &str = "\
Examples:
  ichido gateway --upstream http://127.0.0.1:5000
  ichido gateway --upstream http://127.0.0.1:5000 --optional-key      forward requests without a key
  ichido gateway --config ichido.toml --ledger postgres://db/app      share a ledger between instances

Run this twice:
  curl -X POST -H 'Idempotency-Key: \"k1\"' -d '{\"qty\":1}' http://127.0.0.1:8080/orders
The second response is a replay. A running gateway publishes its rules at /.well-known/idempotency.";

#[derive(Debug, clap::Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// URL of the API: http://HOST:PORT or https://HOST [ICHIDO_GATEWAY_UPSTREAM].
    #[allow(rustdoc::broken_intra_doc_links, reason = "the help text names a variable, not an item")]
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<String>,
    /// Listen address [default: 127.0.0.1:8080; ICHIDO_GATEWAY_LISTEN].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Admin listen address, or "off" to disable [default: 127.0.0.1:9090; ICHIDO_ADMIN_LISTEN].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Forward requests without a key, unprotected.
    #[arg(long)]
    pub(crate) optional_key: bool,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("json", |json| json.hide(true)), mut_arg("ledger", |ledger| ledger.hide(true)))]
pub(crate) struct MeterArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Listen address [default: 127.0.0.1:8090].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Database: sqlite:FILE or postgres://… [default: sqlite:data/meter.db].
    #[arg(long, value_name = "URL")]
    pub(crate) db: Option<String>,
    /// Admin listen address, or "off" to disable [default: 127.0.0.1:9090; ICHIDO_ADMIN_LISTEN].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("json", |json| json.hide(true)),
    after_long_help = "\
Examples:
  ichido claims                                                             use the embedded ledger in data/ledger
  ichido claims --ledger 'dynamodb://processed-events?region=us-east-1'     share a table between instances
  ichido claims --lambda-extension                                          inside a Lambda function, for its handler

Ask whether an event is new (run this twice):
  curl -s -H 'Content-Type: application/json' -d '{\"events\":[{\"key\":\"Ev1\"}]}' http://127.0.0.1:8070/v1/events/check
Claim an operation, then complete it with the token from the response:
  curl -s -H 'Content-Type: application/json' -d '{\"key\":\"order-17\"}' http://127.0.0.1:8070/v1/claims
  curl -s -H 'Content-Type: application/json' -d '{\"key\":\"order-17\",\"token\":\"…\",\"outcome\":{\"id\":17}}' \\
       http://127.0.0.1:8070/v1/claims/complete
List and resolve claims in doubt:
  curl -s 'http://127.0.0.1:8070/v1/claims?state=in-doubt'
  ichido ledger resolve order-17 --as done       uses the admin port of the process that holds the ledger

/openapi.json describes the API. During an outage of a shared ledger, ledger.fallback answers, and responses say so.
Callers authenticate with ICHIDO_ADMIN_TOKEN (at least 16 characters), which is required unless the address is loopback."
)]
pub(crate) struct ClaimsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Listen address.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8070")]
    pub(crate) listen: SocketAddr,
    /// Run as an extension of an AWS Lambda function, inside its sandbox.
    #[arg(long)]
    pub(crate) lambda_extension: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("ledger", |ledger| ledger.hide(true)),
    after_long_help = "\
Examples:
  ichido health                                    the admin port of the settings
  ichido health --admin 127.0.0.1:8070             ichido claims
  ichido health --admin https://10.0.0.5:9090      the certificate is not verified, and nothing secret is sent

Exit codes:
  0  ready, or alive with --live
  1  anything else

With --admin, no settings are read, so that a mistake in the settings file does not make a running process look unhealthy."
)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Admin port: HOST:PORT or a URL [default: admin.listen; ICHIDO_ADMIN_LISTEN].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
    /// Only check that the process is alive, not that its components work.
    #[arg(long)]
    pub(crate) live: bool,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("json", |json| json.hide(true)))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) delivery: DeliveryFlags,
    /// Admin listen address, or "off" to disable [default: 127.0.0.1:9090; ICHIDO_ADMIN_LISTEN].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin: Option<String>,
}

impl GatewayArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let own = [
            flag("gateway.upstream", "--upstream", &self.upstream),
            flag("gateway.listen", "--listen", &self.listen),
            flag("admin.listen", "--admin", &self.admin),
        ];
        self.common.flags().into_iter().chain(own).collect()
    }
}

impl MeterArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let own = [
            flag("meter.listen", "--listen", &self.listen),
            flag("meter.db", "--db", &self.db),
            flag("admin.listen", "--admin", &self.admin),
        ];
        self.common.flags().into_iter().chain(own).collect()
    }
}

impl RunArgs {
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let own = [flag("admin.listen", "--admin", &self.admin)];
        self.common.flags().into_iter().chain(self.delivery.flags()).chain(own).collect()
    }
}
