//! Arguments of `ichido id`.

use clap::Subcommand;

const EVENT_EXAMPLES: &str = "\
Examples:
  ichido id event --date 2025-11-29 --provider anthropic --model claude-3-5-sonnet-20241022 \\
         --app dc279ec4-0860-46e2-a789-d4b4238443de --user 17e91503-c712-4fdb-bcf2-4cd3dbe354ac
  ichido id event --scheme fixed-order --date 2025-12-01 --provider openai --model gpt-4.1 --app a
  ichido id event --scheme v2 --tenant t1 --user-type account --date 2025-12-01 --provider openai --model gpt-4.1 --user u

Values are used as they are: they are not trimmed, lowercased or renamed. In sorted and fixed-order, a | inside a value
would make the id ambiguous, and is an error (exit code 2).";

const BATCH_EXAMPLES: &str = "\
Examples:
  ichido id batch 2025-11-29_app1 2025-11-29_app2
  ichido id batch dify-2025-11-29-anthropic-claude-3-5-sonnet-20241022-01785a60786c --json

The order of the record keys does not matter. ichido send uses this key for a batch of these records.";

const ODDS_EXAMPLES: &str = "\
Examples:
  ichido id odds --per-group 10000                  ten thousand apps and users on one day with one model
  ichido id odds --per-group 10000 --groups 3650    ten years of it
  ichido id odds --per-group 10000000               ten million ids of one day and model

Ids start with day, provider and model, so only ids that share these (a group) can collide. The export finds two
different records with the same id before it sends them, and sends neither.";

#[derive(Debug, clap::Args)]
pub(crate) struct IdArgs {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: IdVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IdVerb {
    /// Print the source_event_id of a usage record.
    #[command(after_long_help = EVENT_EXAMPLES)]
    Event(Box<EventArgs>),
    /// Print the idempotency key of a batch of records.
    #[command(after_long_help = BATCH_EXAMPLES)]
    Batch {
        /// Keys of the records.
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Print how likely it is that two different records get the same id.
    #[command(after_long_help = ODDS_EXAMPLES)]
    Odds {
        /// Number of ids that share day, provider and model.
        #[arg(long, value_name = "N")]
        per_group: u64,
        /// Number of such groups.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        groups: u64,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct EventArgs {
    /// Id scheme: sorted, fixed-order or v2.
    #[arg(long, default_value = "sorted")]
    pub(crate) scheme: String,
    /// Day, or first day of the week or month: YYYY-MM-DD.
    #[arg(long)]
    pub(crate) date: String,
    /// Provider, normalised.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) provider: String,
    /// Model, normalised.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) model: String,
    /// Id of the app.
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub(crate) app: String,
    /// Id of the user.
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub(crate) user: String,
    /// Tenant; v2 only.
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub(crate) tenant: String,
    /// none, end_user or account; v2 only [default: end_user if there is a user].
    #[arg(long, value_name = "TYPE")]
    pub(crate) user_type: Option<String>,
    /// Currency; v2 only.
    #[arg(long, default_value = "USD")]
    pub(crate) currency: String,
    /// daily, weekly or monthly; v2 only.
    #[arg(long, default_value = "daily")]
    pub(crate) period: String,
}
