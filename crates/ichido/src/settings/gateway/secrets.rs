//! Secrets that senders of events sign with: from the environment, or from the file.

use std::fmt;

use ichido_http::{Preset, Secret, Signature};
use serde::Deserialize;

use super::super::text;
use crate::exit::Failure;

const SLACK_VARIABLE: &str = "SLACK_SIGNING_SECRET";
const GITHUB_VARIABLE: &str = "GITHUB_WEBHOOK_SECRET";

/// A secret as it stands in the file.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct RawSecret(String);

impl fmt::Debug for RawSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawSecret(…)")
    }
}

/// What the sender signs with, if we know it. The environment goes before the file.
pub(super) fn signature(
    name: &dyn Fn(&str) -> String,
    preset: Option<Preset>,
    slack: Option<RawSecret>,
    github: Option<RawSecret>,
) -> Result<Option<Signature>, Failure> {
    let stray = |field: &str, preset: Preset| {
        Err(Failure::usage(format!("{} goes with preset = {:?}", name(field), preset.as_str())))
    };
    let (slack_field, github_field) = ("slack_signing_secret", "github_webhook_secret");
    if slack.is_some() && preset != Some(Preset::SlackEvents) {
        return stray(slack_field, Preset::SlackEvents);
    }
    if github.is_some() && preset != Some(Preset::GitHub) {
        return stray(github_field, Preset::GitHub);
    }
    match preset {
        Some(Preset::SlackEvents) => {
            Ok(secret(SLACK_VARIABLE, name(slack_field), slack)?.map(Signature::Slack))
        }
        Some(Preset::GitHub) => {
            Ok(secret(GITHUB_VARIABLE, name(github_field), github)?.map(Signature::GitHub))
        }
        Some(Preset::StripeEvents | Preset::CloudEvents) | None => Ok(None),
    }
}

fn secret(variable: &str, field: String, raw: Option<RawSecret>) -> Result<Option<Secret>, Failure> {
    let (name, given) = match text(variable)? {
        Some(given) => (variable.to_owned(), given),
        None => match raw {
            Some(RawSecret(given)) => (field, given),
            None => return Ok(None),
        },
    };
    // A line break at its end comes from a file, and no request would ever fit.
    if given.chars().any(char::is_control) {
        return Err(Failure::usage(format!("{name} holds a line break or another control character")));
    }
    match Secret::new(given) {
        Some(secret) => Ok(Some(secret)),
        None => Err(Failure::usage(format!("{name} is empty; leave it out, or give it a value"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_of_the_file_is_not_printed() {
        let raw = || Some(RawSecret("hunter2\n".to_owned()));
        assert_eq!(format!("{:?}", raw()), "Some(RawSecret(…))");
        let name = |field: &str| format!("gateway.routes[0].{field}");
        let broken = signature(&name, Some(Preset::GitHub), None, raw()).unwrap_err().to_string();
        assert!(
            broken.contains("routes[0].github_webhook_secret") && !broken.contains("hunter2"),
            "{broken}"
        );
        let stray = signature(&name, Some(Preset::GitHub), raw(), None).unwrap_err().to_string();
        assert_eq!(stray, "gateway.routes[0].slack_signing_secret goes with preset = \"slack-events\"");
    }
}
