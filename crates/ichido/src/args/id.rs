//! The arguments of `ichido id`.

use clap::Subcommand;

const EVENT_EXAMPLES: &str = "\
Examples:
  ichido id event --date 2025-11-29 --provider anthropic --model claude-3-5-sonnet-20241022 \\
         --app dc279ec4-0860-46e2-a789-d4b4238443de --user 17e91503-c712-4fdb-bcf2-4cd3dbe354ac
  ichido id event --scheme fixed-order --date 2025-12-01 --provider openai --model gpt-4.1 --app a
  ichido id event --scheme v2 --tenant t1 --user-type account --date 2025-12-01 --provider openai --model gpt-4.1 --user u

Values are taken as they are: nothing is trimmed, lowered or renamed. What would make an id ambiguous is refused with
exit code 2: a | inside a value, in sorted and fixed-order.";

const BATCH_EXAMPLES: &str = "\
Examples:
  ichido id batch 2025-11-29_app1 2025-11-29_app2
  ichido id batch dify-2025-11-29-anthropic-claude-3-5-sonnet-20241022-01785a60786c --json

The order of the keys does not matter. It is the key under which ichido send delivers records with these keys.";

const ODDS_EXAMPLES: &str = "\
Examples:
  ichido id odds --per-group 10000                  ten thousand apps and users on one day with one model
  ichido id odds --per-group 10000 --groups 3650    ten years of it
  ichido id odds --per-group 10000000               ten million ids of one day and model

A group is what shares day, provider and model: an id begins with them, so only ids of one group can be alike.
Two different records with one id are found before they are sent, and neither is sent.";

#[derive(Debug, clap::Args)]
pub(crate) struct IdArgs {
    /// Prints JSON instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: IdVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IdVerb {
    /// Prints the source_event_id of a usage record.
    #[command(after_help = EVENT_EXAMPLES)]
    Event(Box<EventArgs>),
    /// Prints the idempotency key of a batch of records.
    #[command(after_help = BATCH_EXAMPLES)]
    Batch {
        /// The keys of the records.
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Prints how likely two different records get one id.
    #[command(after_help = ODDS_EXAMPLES)]
    Odds {
        /// How many ids share day, provider and model.
        #[arg(long, value_name = "N")]
        per_group: u64,
        /// How many such groups there are.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        groups: u64,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct EventArgs {
    /// What is hashed, and how: sorted, fixed-order, v2.
    #[arg(long, default_value = "sorted")]
    pub(crate) scheme: String,
    /// The day, or the first day of the week or month: YYYY-MM-DD.
    #[arg(long)]
    pub(crate) date: String,
    /// The provider, normalised.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) provider: String,
    /// The model, normalised.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) model: String,
    /// The app's id.
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub(crate) app: String,
    /// The user's id.
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub(crate) user: String,
    /// The tenant; only v2 holds it.
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true)]
    pub(crate) tenant: String,
    /// none, end_user or account; only v2 holds it [default: end_user if there is a user].
    #[arg(long, value_name = "TYPE")]
    pub(crate) user_type: Option<String>,
    /// The currency; only v2 holds it.
    #[arg(long, default_value = "USD")]
    pub(crate) currency: String,
    /// daily, weekly or monthly; only v2 holds it.
    #[arg(long, default_value = "daily")]
    pub(crate) period: String,
}
