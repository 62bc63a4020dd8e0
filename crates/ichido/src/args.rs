//! The arguments, exactly as they were typed. What they mean together is checked in [`crate::settings`].

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

mod id;

pub(crate) use id::{EventArgs, IdArgs, IdVerb};

const EXAMPLES: &str = "\
Examples:
  ichido demo                                    see it at work, with a kill -9 in the middle
  ichido gateway --upstream http://127.0.0.1:5000   make an API safe to retry
  ichido check --ledger postgres://db/app        are the settings and the connection right?
  ichido ledger list --state in-doubt            what does nobody know the end of?
  ichido ledger resolve order-17 --as done       say how it ended
  ichido claims                                  serve the claim API: is this event new? may I run this?
  ichido send usage.jsonl                        deliver records to an API, each one once
  ichido spool list                              what waits to be delivered?
  ichido meter                                   receive usage records, count each one once
  ichido export dify --yesterday                 usage of Dify to the bill, each token once

Settings come from ichido.toml, then the environment, then flags.
Exit codes: 0 done; 2 usage, settings, a store out of reach or held by another; 1 internal error or failed check;
3 something waits in the spool; 4 something is in failed.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  ichido export dify --dry-run --yesterday            what would be sent?
  ichido export dify                                  what is new since the last time
  ichido export dify --from 2025-11-01 --to 2025-11-30
  ichido export dify --month 2025-11 --json
  ichido export jsonl usage.jsonl                     usage events of any other source

[export.dify] in ichido.toml says where Dify is and how usage is summed; DIFY_DATABASE_URL (or DIFY_CONSOLE_URL with
DIFY_ADMIN_KEY, or DIFY_EMAIL and DIFY_PASSWORD) says it as well. Where to and as whom is told as for ichido send, with
EXTERNAL_API_ENVELOPE=api_meter and EXTERNAL_API_TENANT_ID. What was sent is remembered in data/export.
Exit codes: 0 all arrived; 3 something waits; 4 something went to failed; 2 settings, Dify, another export; 1 anything else.";

const RECONCILE_EXAMPLES: &str = "\
Examples:
  ichido reconcile                                    every day that was exported
  ichido reconcile --from 2025-11-01 --to 2025-11-30 --json

Compares by day what Dify has, what was sent, and what the receiver counted (GET on EXTERNAL_API_ENDPOINT, as the meter
answers it). Exit codes: 0 all the same; 1 there are differences; 2 settings, or a side that does not answer.";

const RUN_EXAMPLES: &str = "\
Examples:
  ichido run                                              every minute
  RESEND_CRON='*/15 * * * *' ichido run                   four times an hour
  RESEND_WINDOW='22:00-06:00 Asia/Tokyo' ichido run       at night only

Each part that has a section in ichido.toml is started in this process: [gateway], [meter], [delivery], [export.dify].
Batches that wait are sent again also if EXTERNAL_API_ENDPOINT is set, and without any section.
SIGTERM: what is under way is finished, the rest stays on disk.";

const SEND_EXAMPLES: &str = "\
Examples:
  ichido send usage.jsonl                       one JSON object per line
  ichido send january.json february.json.gz     a JSON array, or {\"records\":[…]}; gzip is understood
  export-usage | ichido send -                  from a pipe
  ichido send --dry-run usage.jsonl             how many batches would it be?

EXTERNAL_API_ENDPOINT and EXTERNAL_API_TOKEN (or EXTERNAL_API_TOKEN_FILE) say where to and as whom, or endpoint and
token_file in the section [delivery] of ichido.toml.
What waits in the spool is sent first. A batch that does not arrive waits in data/spool for the next run; what the
receiver refuses, and lines that are no records, lie in data/failed.
Exit codes: 0 all arrived; 3 something waits in the spool; 4 something went to failed; 2 settings; 1 anything else.";

const METER_EXAMPLES: &str = "\
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

const DEMO_EXAMPLES: &str = "\
Examples:
  ichido demo                         half a minute; ends with 1 if a promise was broken
  ichido demo --serve                 then look around in the console; its address is printed
  ichido demo --keep /tmp/demo        leaves every ledger, log and spool there

It needs no settings and no servers, takes free ports on this machine, and leaves nothing behind.";

const GATEWAY_EXAMPLES: &str = "\
Examples:
  ichido gateway --upstream http://127.0.0.1:5000
  ichido gateway --upstream http://127.0.0.1:5000 --optional-key      requests without a key pass
  ichido gateway --config ichido.toml --ledger postgres://db/app      several instances, one ledger

Then, twice: curl -X POST -H 'Idempotency-Key: \"k1\"' -d '{\"qty\":1}' http://127.0.0.1:8080/orders
The rules of a running gateway are published at /.well-known/idempotency.";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ichido completions bash > /etc/bash_completion.d/ichido
  ichido completions zsh > ~/.zfunc/_ichido
  ichido completions fish > ~/.config/fish/completions/ichido.fish";

/// Makes each effect happen once.
#[derive(Debug, Parser)]
#[command(name = "ichido", version, about, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows the product at work on this machine: races, a kill -9, recovery.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// One process of the demo: the one that is killed.
    #[command(hide = true)]
    DemoWorker(WorkerArgs),
    /// The orders API of the demo.
    #[command(hide = true)]
    DemoOrders(DemoOrdersArgs),
    /// Stands before an API in any language and makes it safe to retry.
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(GatewayArgs),
    /// Serves the claim API: events checked once, two-phase claims, inspection and repair, health, metrics.
    Claims(ClaimsArgs),
    /// Delivers records to an API: retries, keeps what does not arrive, sends each once.
    #[command(after_help = SEND_EXAMPLES)]
    Send(SendArgs),
    /// Reads usage, sums it, and delivers each sum once.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Compares what the source has, what was sent, and what the receiver counted.
    #[command(after_help = RECONCILE_EXAMPLES)]
    Reconcile(ReconcileArgs),
    /// The daemon: every part that has a section in the settings, in one process with one admin port.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Looks after batches that wait to be delivered.
    Spool(SpoolArgs),
    /// Looks after batches that were not delivered and need a person.
    Failed(FailedArgs),
    /// Looks after a ledger of claims.
    Ledger(LedgerArgs),
    /// Receives usage records and counts each one once: by day, model, app, user.
    #[command(after_help = METER_EXAMPLES)]
    Meter(MeterArgs),
    /// Computes the ids of usage records and the keys of batches.
    Id(IdArgs),
    /// Checks the settings and the connections, each with a verdict.
    Check(CheckArgs),
    /// Prints what a shell needs to complete commands and flags.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages, one for each command.
    #[command(after_help = "Example:\n  ichido man /usr/local/share/man/man1")]
    Man {
        /// The directory; it is made if it is missing.
        dir: PathBuf,
    },
}

/// Where the settings come from.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Common {
    /// The settings file [default: ichido.toml, if it exists].
    #[arg(long, value_name = "FILE", env = "ICHIDO_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The ledger: memory:, file:DIR, postgres://…, redis://…, rediss://…, dynamodb://TABLE [default: file:data/ledger].
    #[arg(long, value_name = "URL", env = "ICHIDO_LEDGER_URL", hide_env_values = true, global = true)]
    pub(crate) ledger: Option<String>,
    /// Prints JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// How many operations are raced for.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) keys: u32,
    /// How many workers race for them.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) workers: u32,
    /// Keeps the ledger and the log of effects in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Stays up at the end, until Ctrl-C: the console, the gateway, the meter and the sender, with what the demo did.
    #[arg(long)]
    pub(crate) serve: bool,
    /// Prints the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) keys: u32,
    #[arg(long)]
    pub(crate) workers: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DemoOrdersArgs {
    #[arg(long)]
    pub(crate) effects: PathBuf,
    #[arg(long)]
    pub(crate) listen: SocketAddr,
    /// Of so many orders, one loses its answer; 0 for none.
    #[arg(long)]
    pub(crate) loses: u64,
}

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
    #[arg(long, value_name = "ADDRESS", env = "ICHIDO_ADMIN_LISTEN")]
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
    #[arg(long, value_name = "ADDRESS", env = "ICHIDO_ADMIN_LISTEN")]
    pub(crate) admin: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) common: Common,
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
ICHIDO_ADMIN_TOKEN is the token that callers show; off loopback it is required."
)]
pub(crate) struct ClaimsArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8070")]
    pub(crate) listen: SocketAddr,
}

/// What the command line says of the sender.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeliveryFlags {
    /// Where batches go [default: EXTERNAL_API_ENDPOINT, delivery.endpoint].
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) endpoint: Option<String>,
    /// Where spool, failed and notices are [default: DATA_DIR, delivery.data_dir, data].
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data_dir: Option<String>,
}

/// The same, for commands that have no ledger.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeliveryArgs {
    /// The settings file [default: ichido.toml, if it exists].
    #[arg(long, value_name = "FILE", env = "ICHIDO_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: DeliveryFlags,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Files with records; - is standard input [default: -].
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Reads and counts, and sends nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Prints what was done as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) source: ExportSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExportSource {
    /// Usage of Dify: its database, or its console.
    Dify(ExportDifyArgs),
    /// Usage events as JSON Lines. A file must hold whole days.
    Jsonl(ExportJsonlArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportDifyArgs {
    #[command(flatten)]
    pub(crate) days: DaysArgs,
    /// The day before today, in the zone of the settings.
    #[arg(long, conflicts_with_all = ["from", "to", "month"])]
    pub(crate) yesterday: bool,
    /// A whole month: YYYY-MM.
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["from", "to"])]
    pub(crate) month: Option<String>,
    /// Also days that are not over. Only for receivers that let a later total replace an earlier one.
    #[arg(long)]
    pub(crate) include_open: bool,
    #[command(flatten)]
    pub(crate) sums: SumsArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportJsonlArgs {
    /// Files of usage events; - is standard input [default: -].
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) sums: SumsArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SumsArgs {
    /// What a record is a sum of: per_model, per_user, per_app, workspace, all.
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// How long: daily, weekly, monthly.
    #[arg(long, value_name = "PERIOD")]
    pub(crate) period: Option<String>,
    /// Prints what would be sent, and sends nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DaysArgs {
    /// The first day: YYYY-MM-DD.
    #[arg(long, value_name = "DAY")]
    pub(crate) from: Option<String>,
    /// The last day [default: yesterday].
    #[arg(long, value_name = "DAY")]
    pub(crate) to: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReconcileArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) days: DaysArgs,
}

#[derive(Debug, clap::Args)]
#[command(mut_arg("json", |json| json.hide(true)))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) delivery: DeliveryFlags,
    /// Where operators ask: health, metrics, claims; off for nowhere [default: 127.0.0.1:9090].
    #[arg(long, value_name = "ADDRESS", env = "ICHIDO_ADMIN_LISTEN")]
    pub(crate) admin: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SpoolArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Prints JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: SpoolVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpoolVerb {
    /// Lists what waits, oldest first.
    List(ListArgs),
    /// Shows everything about a batch: its history and its records.
    Show(BatchArgs),
    /// Tries what waits now.
    #[command(after_help = "Examples:\n  ichido spool resend\n  ichido spool resend a3f2e1b9c4d5 --force")]
    Resend {
        /// Only batches whose key begins so.
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
        /// Also what is not due yet.
        #[arg(long)]
        force: bool,
    },
    /// Reads every file and names what is not as it should be. Changes nothing.
    Fsck,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FailedArgs {
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    /// Prints JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: FailedVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FailedVerb {
    /// Lists what failed, oldest first.
    List(ListArgs),
    /// Shows everything about a batch: its history and its records.
    Show(BatchArgs),
    /// Tries batches again. They keep their history.
    #[command(after_help = "Examples:\n  ichido failed resend a3f2e1b9c4d5\n  ichido failed resend --all")]
    Resend {
        /// Batches whose key begins so.
        #[arg(value_name = "KEY", required_unless_present = "all")]
        keys: Vec<String>,
        /// Every batch.
        #[arg(long, conflicts_with = "keys")]
        all: bool,
    },
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only batches whose key begins so.
    #[arg(long, value_name = "KEY")]
    pub(crate) prefix: Option<String>,
    /// Only batches whose last error holds this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) limit: u32,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BatchArgs {
    /// The key of the batch, or the beginning of it.
    pub(crate) key: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LedgerArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: LedgerVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LedgerVerb {
    /// Creates what the ledger needs: a directory, tables.
    Init,
    /// Lists claims.
    #[command(
        after_help = "Examples:\n  ichido ledger list --state in-doubt\n  ichido ledger list --prefix order- --json"
    )]
    List {
        /// Only claims in this state.
        #[arg(long)]
        state: Option<State>,
        /// Only keys that start so.
        #[arg(long)]
        prefix: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// Where the last list ended.
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Shows everything about a claim.
    Show(KeyArgs),
    /// Says how a claim in doubt ended.
    #[command(
        after_help = "Examples:\n  ichido ledger resolve order-17 --as done --outcome '{\"id\":17}'\n  ichido ledger resolve order-17 --as absent"
    )]
    Resolve {
        #[command(flatten)]
        key: KeyArgs,
        /// done: the effect happened; absent: it did not, and may be tried again.
        #[arg(long = "as", value_name = "END")]
        end: End,
        /// What repeats are answered, with --as done. Without it they learn that the answer was not kept.
        #[arg(long)]
        outcome: Option<String>,
    },
    /// Gives a key back whose effect did not happen.
    Release {
        #[command(flatten)]
        key: KeyArgs,
        /// Also while its lease is good: you know that its holder is gone.
        #[arg(long)]
        force: bool,
    },
    /// Removes what is over: claims past their retention, marks past their end.
    Sweep,
    /// Counts what is stored.
    Stats,
}

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// The caller's key.
    pub(crate) key: String,
    /// Whose key it is, where several have the same.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// Which operation it is for, where several have the same.
    #[arg(long)]
    pub(crate) route: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum State {
    Running,
    InDoubt,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum End {
    Done,
    Absent,
}
