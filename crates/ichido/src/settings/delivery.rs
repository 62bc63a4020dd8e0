//! `[delivery]`: what the environment says of the sender. A key is the variable's name in small letters, without
//! `EXTERNAL_API_`. Secrets have none: a token, a webhook and a mail server's password come from the environment, or from a
//! file that `token_file` names.

use serde::Deserialize;

macro_rules! keys {
    ($($key:ident: $kind:ty = $variable:literal,)*) => {
        /// The section, as it was written.
        #[derive(Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct RawDelivery {
            $($key: Option<$kind>,)*
        }

        impl RawDelivery {
            /// The value of a variable as the environment would hold it, and the name that it has here.
            pub(crate) fn get(&self, variable: &str) -> Option<(&'static str, String)> {
                match variable {
                    $($variable => {
                        self.$key.as_ref().map(|value| (concat!("delivery.", stringify!($key)), value.to_string()))
                    })*
                    _ => None,
                }
            }
        }

        #[cfg(test)]
        const KEYS: &[(&str, &str)] = &[$((stringify!($key), $variable),)*];
    };
}

keys! {
    endpoint: String = "EXTERNAL_API_ENDPOINT",
    token_file: String = "EXTERNAL_API_TOKEN_FILE",
    timeout_ms: u64 = "EXTERNAL_API_TIMEOUT_MS",
    user_agent: String = "EXTERNAL_API_USER_AGENT",
    ca_file: String = "EXTERNAL_API_CA_FILE",
    conflict: String = "EXTERNAL_API_CONFLICT",
    envelope: String = "EXTERNAL_API_ENVELOPE",
    tenant_id: String = "EXTERNAL_API_TENANT_ID",
    gzip: bool = "EXTERNAL_API_GZIP",
    allow_http_loopback: bool = "EXTERNAL_API_ALLOW_HTTP_LOOPBACK",
    max_retries: u64 = "MAX_RETRIES",
    max_spool_retries: u64 = "MAX_SPOOL_RETRIES",
    retry_backoff_ms: u64 = "RETRY_BACKOFF_MS",
    retry_jitter: bool = "RETRY_JITTER",
    retry_after_max: String = "RETRY_AFTER_MAX",
    batch_size: u64 = "BATCH_SIZE",
    data_dir: String = "DATA_DIR",
    send_rate_per_second: u64 = "SEND_RATE_PER_SECOND",
    resend_cron: String = "RESEND_CRON",
    resend_window: String = "RESEND_WINDOW",
    spool_gzip: bool = "SPOOL_GZIP",
    spool_max_bytes: u64 = "SPOOL_MAX_BYTES",
    spool_retention_days: u64 = "SPOOL_RETENTION_DAYS",
    receipt_retention_days: u64 = "RECEIPT_RETENTION_DAYS",
    notify_email_to: String = "NOTIFY_EMAIL_TO",
    notify_email_from: String = "NOTIFY_EMAIL_FROM",
}

/// An address may hold a password, until it is refused for that.
impl std::fmt::Debug for RawDelivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawDelivery").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_variable_in_small_letters() {
        for (key, variable) in KEYS {
            let name = variable.strip_prefix("EXTERNAL_API_").unwrap_or(variable);
            assert_eq!(*key, name.to_lowercase());
        }
        let text = "endpoint = \"https://api.example/\"\nmax_retries = 5\nspool_gzip = true\n";
        let raw: RawDelivery = toml::from_str(text).unwrap();
        let value = |variable| raw.get(variable).map(|(_, value)| value);
        assert_eq!(value("EXTERNAL_API_ENDPOINT").as_deref(), Some("https://api.example/"));
        assert_eq!(raw.get("MAX_RETRIES"), Some(("delivery.max_retries", "5".to_owned())));
        assert_eq!(value("SPOOL_GZIP").as_deref(), Some("true"));
        assert_eq!((value("BATCH_SIZE"), value("EXTERNAL_API_TOKEN")), (None, None));
    }

    #[test]
    fn secrets_and_other_kinds_of_values_are_no_settings() {
        for text in [
            "token = \"x\"",
            "slack_webhook_url = \"x\"",
            "smtp_url = \"x\"",
            "endpoint = [1]",
            "max_retries = \"5\"",
        ] {
            assert!(toml::from_str::<RawDelivery>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_example_of_the_documentation_shows_every_key_and_its_default() {
        let page = include_str!("../../../../docs/configuration.md");
        let section =
            page.split("```toml\n[delivery]").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let shown: RawDelivery = toml::from_str(section).unwrap();
        for (key, variable) in KEYS {
            assert!(shown.get(variable).is_some(), "{key} is not shown");
        }
        let read = |raw: &RawDelivery| {
            let get = |name: &str| {
                Ok(match name {
                    "EXTERNAL_API_ENDPOINT" => Some("https://api.example/".to_owned()),
                    "EXTERNAL_API_TOKEN_FILE" => Some("token".to_owned()),
                    _ => raw.get(name).map(|(_, value)| value),
                })
            };
            let identity = ichido_export::sender_identity();
            format!("{:?}", ichido_delivery::settings::Settings::read(&get, &identity).unwrap())
        };
        assert_eq!(read(&shown), read(&RawDelivery::default()));
    }
}
