//! Secrets that senders of events sign with: from the environment, or from the file.

use std::borrow::Cow;
use std::fmt;

use ichido_http::{Preset, Route, Scheme, Secret, Signature};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use ichido_settings::{Invalid, OneOrMany};

/// Where the secrets of a signature scheme are set.
struct Setting {
    scheme: Scheme,
    preset: Preset,
    field: &'static str,
    variable: &'static str,
}

const SETTINGS: [Setting; 3] = [
    Setting {
        scheme: Scheme::Slack,
        preset: Preset::SlackEvents,
        field: "slack_signing_secret",
        variable: "SLACK_SIGNING_SECRET",
    },
    Setting {
        scheme: Scheme::GitHub,
        preset: Preset::GitHub,
        field: "github_webhook_secret",
        variable: "GITHUB_WEBHOOK_SECRET",
    },
    Setting {
        scheme: Scheme::Stripe,
        preset: Preset::StripeEvents,
        field: "stripe_webhook_secret",
        variable: "STRIPE_WEBHOOK_SECRET",
    },
];

/// The secrets of one route in the file: a text or a list.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct RawSecrets(OneOrMany);

impl JsonSchema for RawSecrets {
    fn schema_name() -> Cow<'static, str> {
        "Secrets".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" }, "x-secret": true })
    }
}

/// The secrets in the environment, each a list separated by commas.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    pub(super) slack: Option<ichido_settings::Secret>,
    pub(super) github: Option<ichido_settings::Secret>,
    pub(super) stripe: Option<ichido_settings::Secret>,
}

impl Secrets {
    fn of(&self, preset: Preset) -> Option<&ichido_settings::Secret> {
        match preset {
            Preset::SlackEvents => self.slack.as_ref(),
            Preset::GitHub => self.github.as_ref(),
            Preset::StripeEvents => self.stripe.as_ref(),
            Preset::CloudEvents => None,
        }
    }
}

impl fmt::Debug for RawSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawSecrets(…)")
    }
}

/// What the sender of a preset signs with, if we know it. The environment goes before the file, whose secrets come in the
/// order of [`SETTINGS`].
pub(super) fn signature(
    name: &dyn Fn(&str) -> String,
    preset: Option<Preset>,
    raw: [Option<RawSecrets>; SETTINGS.len()],
    environment: &Secrets,
) -> Result<Option<Signature>, Invalid> {
    let mut signature = None;
    for (setting, given) in SETTINGS.into_iter().zip(raw) {
        let field = name(setting.field);
        if preset == Some(setting.preset) {
            let variable = (setting.variable, environment.of(setting.preset));
            signature = Signature::new(setting.scheme, secrets(variable, field, given)?);
        } else if given.is_some() {
            let wanted = setting.preset.as_str();
            return Err(Invalid::new(field, format!("goes with preset = {wanted:?}")));
        }
    }
    Ok(signature)
}

fn secrets(
    (variable, given): (&str, Option<&ichido_settings::Secret>),
    field: String,
    raw: Option<RawSecrets>,
) -> Result<Vec<Secret>, Invalid> {
    let (name, given) = match (given, raw) {
        (Some(given), _) => {
            let secrets = given.expose().split(',').map(|secret| secret.trim().to_owned());
            (variable.to_owned(), secrets.collect())
        }
        (None, Some(RawSecrets(OneOrMany(given)))) => (field, given),
        (None, None) => return Ok(Vec::new()),
    };
    let empty = || Invalid::new(&name, "is empty; leave it out, or give it a value");
    if given.is_empty() {
        return Err(empty());
    }
    let secret = |given: String| {
        // A line break at its end comes from a file, and no request would ever fit.
        if given.chars().any(char::is_control) {
            return Err(Invalid::new(&name, "contains a line break or another control character"));
        }
        Secret::new(given).ok_or_else(empty)
    };
    given.into_iter().map(secret).collect()
}

/// What to say about a route whose sender signs its requests although we do not check that.
pub fn unchecked(route: &Route) -> Option<String> {
    let setting = SETTINGS.into_iter().find(|setting| route.preset == Some(setting.preset))?;
    let Setting { field, variable, .. } = setting;
    route.signature.is_none().then(|| {
        format!(
            "{}: signatures are not checked, so anyone who can reach this port can send events; set {field} or {variable}",
            route.describe()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(secrets: &[&str]) -> Option<RawSecrets> {
        Some(RawSecrets(OneOrMany(secrets.iter().map(|secret| (*secret).to_owned()).collect())))
    }

    #[test]
    fn a_secret_of_the_file_is_not_printed() {
        let github = || [None, raw(&["hunter2\n"]), None];
        assert_eq!(format!("{:?}", github()), "[None, Some(RawSecrets(…)), None]");
        let name = |field: &str| format!("gateway.routes[0].{field}");
        let broken =
            signature(&name, Some(Preset::GitHub), github(), &Secrets::default()).unwrap_err().to_string();
        assert!(
            broken.contains("routes[0].github_webhook_secret") && !broken.contains("hunter2"),
            "{broken}"
        );
        let stray = signature(&name, Some(Preset::SlackEvents), github(), &Secrets::default())
            .unwrap_err()
            .to_string();
        assert_eq!(stray, "gateway.routes[0].github_webhook_secret: goes with preset = \"github\"");
    }

    #[test]
    fn a_preset_may_have_several_secrets() {
        let name = |field: &str| field.to_owned();
        let stripe = |secrets: &[&str]| {
            signature(&name, Some(Preset::StripeEvents), [None, None, raw(secrets)], &Secrets::default())
        };
        for secrets in [&["whsec_1"][..], &["whsec_1", "whsec_2"]] {
            assert_eq!(stripe(secrets).unwrap().unwrap().scheme(), Scheme::Stripe);
        }
        for secrets in [&[][..], &["whsec_1", ""]] {
            let refused = stripe(secrets).unwrap_err().to_string();
            assert!(refused.starts_with("stripe_webhook_secret: is empty"), "{refused}");
        }
    }
}
