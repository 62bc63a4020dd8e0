//! The arguments of `ichido config`.

use clap::Subcommand;

use super::Common;

pub(super) const CONFIG_EXAMPLES: &str = "\
Examples:
  ichido config show                      every setting, its value and where it comes from
  ichido config default > ichido.toml     a settings file to start from
  ichido config default --env > .env      the same as environment variables
  ichido config schema > schema.json      a JSON Schema, for completion in editors

Secrets are shown as ***.";

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: ConfigVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print the settings in effect, and where each value comes from.
    Show {
        /// Include settings that have their default value.
        #[arg(long)]
        all: bool,
    },
    /// Print a settings file in which every setting is commented out and shows its default.
    Default {
        /// Print environment variables instead.
        #[arg(long)]
        env: bool,
    },
    /// Print the JSON Schema of ichido.toml.
    Schema,
}
