//! Secrets that senders of events sign with: from the environment, or from the file.

use std::borrow::Cow;
use std::fmt;

use ichido_http::{Preset, Route, Secret, Signature};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use ichido_settings::{Invalid, OneOrMany};

/// Where the secrets of a signature scheme are set.
struct Setting {
    preset: Preset,
    field: &'static str,
    variable: &'static str,
}

const SETTINGS: [Setting; 4] = [
    Setting { preset: Preset::SlackEvents, field: "slack_signing_secret", variable: "SLACK_SIGNING_SECRET" },
    Setting { preset: Preset::GitHub, field: "github_webhook_secret", variable: "GITHUB_WEBHOOK_SECRET" },
    Setting {
        preset: Preset::StripeEvents,
        field: "stripe_webhook_secret",
        variable: "STRIPE_WEBHOOK_SECRET",
    },
    Setting {
        preset: Preset::StandardWebhooks,
        field: "standard_webhooks_secret",
        variable: "STANDARD_WEBHOOKS_SECRET",
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
    pub(super) standard_webhooks: Option<ichido_settings::Secret>,
}

impl Secrets {
    fn of(&self, preset: Preset) -> Option<&ichido_settings::Secret> {
        match preset {
            Preset::SlackEvents => self.slack.as_ref(),
            Preset::GitHub => self.github.as_ref(),
            Preset::StripeEvents => self.stripe.as_ref(),
            Preset::StandardWebhooks => self.standard_webhooks.as_ref(),
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
            let (name, secrets) = match (environment.of(setting.preset), given) {
                (Some(given), _) => {
                    let secrets = given.expose().split(',').map(|secret| secret.trim().to_owned());
                    (setting.variable.to_owned(), RawSecrets(OneOrMany(secrets.collect())))
                }
                (None, Some(given)) => (field, given),
                (None, None) => continue,
            };
            let secrets = given_secrets(&name, secrets)?;
            let verified = setting.preset.scheme().map(|scheme| Signature::new(scheme, &secrets)).transpose();
            signature = verified.map_err(|error| Invalid::new(&name, error.to_string()))?.flatten();
        } else if given.is_some() {
            let wanted = setting.preset.as_str();
            return Err(Invalid::new(field, format!("goes with preset = {wanted:?}")));
        }
    }
    Ok(signature)
}

/// Checks the secrets of a setting.
pub(super) fn given_secrets(
    name: &str,
    RawSecrets(OneOrMany(given)): RawSecrets,
) -> Result<Vec<Secret>, Invalid> {
    let empty = || Invalid::new(name, "is empty; leave it out, or give it a value");
    if given.is_empty() {
        return Err(empty());
    }
    let secret = |given: String| {
        // A line break at its end comes from a file, and no request would ever fit.
        if given.chars().any(char::is_control) {
            return Err(Invalid::new(name, "contains a line break or another control character"));
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
    use ichido_http::Scheme;

    use super::*;

    fn raw(secrets: &[&str]) -> Option<RawSecrets> {
        Some(RawSecrets(OneOrMany(secrets.iter().map(|secret| (*secret).to_owned()).collect())))
    }

    #[test]
    fn a_secret_of_the_file_is_not_printed() {
        let github = || [None, raw(&["hunter2\n"]), None, None];
        assert_eq!(format!("{:?}", github()), "[None, Some(RawSecrets(…)), None, None]");
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
    fn secrets_of_standard_webhooks_have_a_form() {
        let name = |field: &str| field.to_owned();
        let check = |secret: &str| {
            let given = [None, None, None, raw(&[secret])];
            signature(&name, Some(Preset::StandardWebhooks), given, &Secrets::default())
        };
        assert!(check("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap().is_some());
        assert!(check("whpk_PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=").unwrap().is_some());
        for wrong in ["whsec_", "whsec_hunter2!", "whpk_aHVudGVyMg=="] {
            let message = check(wrong).unwrap_err().to_string();
            assert_eq!(message, "standard_webhooks_secret: is neither whsec_<base64> nor whpk_<base64>");
        }
    }

    #[test]
    fn a_preset_may_have_several_secrets() {
        let name = |field: &str| field.to_owned();
        let stripe = |secrets: &[&str]| {
            let given = [None, None, raw(secrets), None];
            signature(&name, Some(Preset::StripeEvents), given, &Secrets::default())
        };
        for secrets in [&["whsec_1"][..], &["whsec_1", "whsec_2"]] {
            assert_eq!(stripe(secrets).unwrap().unwrap().scheme(), &Scheme::Stripe);
        }
        for secrets in [&[][..], &["whsec_1", ""]] {
            let refused = stripe(secrets).unwrap_err().to_string();
            assert!(refused.starts_with("stripe_webhook_secret: is empty"), "{refused}");
        }
    }
}
