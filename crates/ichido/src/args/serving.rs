//! The arguments of what serves: `ichido gateway`, `meter`, `claims`, `run`.

use std::net::SocketAddr;

use super::{Common, DeliveryFlags};

/// Where an admin port is, from the environment.
pub(crate) const ADMIN_VARIABLE: &str = "ICHIDO_ADMIN_LISTEN";

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  ichido run                                              every minute
  RESEND_CRON='*/15 * * * *' ichido run                   four times an hour
  RESEND_WINDOW='22:00-06:00 Asia/Tokyo' ichido run       at night only

Each part that has a section in ichido.toml is started in this process: [gateway], [meter], [delivery], [export.dify].
Batches that wait are sent again also if EXTERNAL_API_ENDPOINT is set, and without any section.
SIGTERM: what is under way is finished, the rest stays on disk.";

pub(super) const METER_EXAMPLES: &str = "\
Examples:
  ichido meter                                              one tenant, on this machine, counted in data/meter.db
  METER_TOKENS=acme=s3cret ichido meter --listen 0.0.0.0:8090 --db postgres://db/usage

Send to it:
  EXTERNAL_API_ENDPOINT=http://127.0.0.1:8090/v1/usage EXTERNAL_API_ALLOW_HTTP_LOOPBACK=on EXTERNAL_API_TOKEN=none \\
    ichido send usage.jsonl
Ask it:
  curl 'http://127.0.0.1:8090/v1/usage?from=2025-11-01&to=2025-11-30&group_by=day,model'
  curl 'http://127.0.0.1:8090/v1/usage?group_by=app&format=csv'
  curl 'http://127.0.0.1:8090/v1/receipts?batch=…'

METER_TOKENS (tenant=token,…) says who may send; off loopback it is required. METER_PROFILE says what happens to a record
that is there already: first_wins, upsert_by_event_id or upsert_by_model_day.";

pub(super) const GATEWAY_EXAMPLES: &str = "\
Examples:
  ichido gateway --upstream http://127.0.0.1:5000
  ichido gateway --upstream http://127.0.0.1:5000 --optional-key      requests without a key pass
  ichido gateway --config ichido.toml --ledger postgres://db/app      several instances, one ledger

Then, twice: curl -X POST -H 'Idempotency-Key: \"k1\"' -d '{\"qty\":1}' http://127.0.0.1:8080/orders
The rules of a running gateway are published at /.well-known/idempotency.";

#[derive(Debug, clap::Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Where the service is: http://HOST:PORT or https://HOST.
    #[arg(long, value_name = "URL", env = "ICHIDO_GATEWAY_UPSTREAM")]
    pub(crate) upstream: Option<String>,
    /// Where requests are taken [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS", env = "ICHIDO_GATEWAY_LISTEN")]
    pub(crate) listen: Option<String>,
    /// Where operators ask: health, metrics, claims; off for nowhere [default: 127.0.0.1:9090].
    #[arg(long, value_name = "ADDRESS", env = ADMIN_VARIABLE)]
    pub(crate) admin: Option<String>,
    /// Lets requests without a key pass unprotected.
    #[arg(long)]
    pub(crate) optional_key: bool,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("json", |json| json.hide(true)), mut_arg("ledger", |ledger| ledger.hide(true)))]
pub(crate) struct MeterArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Where batches are taken [default: 127.0.0.1:8090].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Where records are counted: sqlite:FILE or postgres://… [default: sqlite:data/meter.db].
    #[arg(long, value_name = "URL")]
    pub(crate) db: Option<String>,
    /// Where operators ask: health, metrics; off for nowhere [default: 127.0.0.1:9090].
    #[arg(long, value_name = "ADDRESS", env = ADMIN_VARIABLE)]
    pub(crate) admin: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    mut_arg("json", |json| json.hide(true)),
    after_help = "\
Examples:
  ichido claims                                                  on the embedded ledger in data/ledger
  ichido claims --ledger 'dynamodb://processed-events?region=us-east-1'     several instances, one table

Is this event new? Twice:
  curl -s -H 'Content-Type: application/json' -d '{\"events\":[{\"key\":\"Ev1\"}]}' http://127.0.0.1:8070/v1/events/check
May I run this? Then complete with the token of the answer:
  curl -s -H 'Content-Type: application/json' -d '{\"key\":\"order-17\"}' http://127.0.0.1:8070/v1/claims
  curl -s -H 'Content-Type: application/json' -d '{\"key\":\"order-17\",\"token\":\"…\",\"outcome\":{\"id\":17}}' \\
       http://127.0.0.1:8070/v1/claims/complete
What does nobody know the end of?
  curl -s 'http://127.0.0.1:8070/v1/claims?state=in-doubt'
  ichido ledger resolve order-17 --as done       goes through this process while it holds the ledger

Every path is described at /openapi.json. While a ledger that is a server is out, ledger.fallback answers, and says so.
ICHIDO_ADMIN_TOKEN is the token that callers show; off loopback it is required, with at least 16 characters."
)]
pub(crate) struct ClaimsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8070")]
    pub(crate) listen: SocketAddr,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("json", |json| json.hide(true)))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) delivery: DeliveryFlags,
    /// Where operators ask: health, metrics, claims; off for nowhere [default: 127.0.0.1:9090].
    #[arg(long, value_name = "ADDRESS", env = ADMIN_VARIABLE)]
    pub(crate) admin: Option<String>,
}
