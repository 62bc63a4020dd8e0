//! The ledger's URL, and the client for it.
//!
//! `dynamodb://TABLE?region=R&endpoint=URL&multi_region=confirmed`, with optional parameters. `dynamodb:` alone, or
//! with parameters only, uses the table of the environment. Credentials come from the usual AWS chain (environment,
//! profile, container, instance), never from the URL: a URL with credentials is refused.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Region;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use url::Url;

use crate::{Error, Kind, Result};

/// The default of the Slack bots that share the table.
const DEFAULT_TABLE: &str = "slack-classify-bot-processed-events";
const DEFAULT_REGION: &str = "us-east-1";
/// A server that does not accept connections within this time is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A safety net for callers without a deadline; the handle's deadline is shorter.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(30);

/// The checked URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) table: String,
    pub(super) region: String,
    pub(super) endpoint: Option<String>,
    pub(super) regions: Regions,
}

/// Whether the table may be written in several regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regions {
    /// It may not: a table with replicas is refused.
    One,
    /// The operator confirmed that only one region writes, or that two grants for one key are acceptable.
    Confirmed,
}

impl Settings {
    /// Parses a URL. `variable` looks up an environment variable.
    pub(super) fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let url = Url::parse(text).map_err(|_| {
            invalid("the ledger's URL is invalid; expected dynamodb://TABLE?region=R&endpoint=URL")
        })?;
        if url.scheme() != "dynamodb" {
            return Err(invalid("the ledger's URL must start with dynamodb:"));
        }
        refuse_credentials(&url, "the ledger's URL")?;
        if url.port().is_some() || !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(invalid(
                "the ledger's URL is invalid; expected dynamodb://TABLE?region=R&endpoint=URL",
            ));
        }
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let table = url.host_str().filter(|host| !host.is_empty()).map(str::to_owned);
        let table =
            table.or_else(|| variable("DEDUP_TABLE_NAME")).unwrap_or_else(|| DEFAULT_TABLE.to_owned());
        let region = variable("AWS_REGION").unwrap_or_else(|| DEFAULT_REGION.to_owned());
        let mut settings = Self { table, region, endpoint: None, regions: Regions::One };
        for (name, value) in url.query_pairs() {
            settings.take(&name, &value)?;
        }
        settings.check()?;
        Ok(settings)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "region" => value.clone_into(&mut self.region),
            "endpoint" => self.endpoint = Some(checked_endpoint(value)?),
            "multi_region" if value == "confirmed" => self.regions = Regions::Confirmed,
            "multi_region" => {
                return Err(invalid("multi_region in the ledger's URL must be \"confirmed\""));
            }
            _ => {
                let known = "region, endpoint, multi_region";
                return Err(invalid(format!(
                    "unknown parameter {name:?} in the ledger's URL; the parameters are {known}"
                )));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let plain = |extra: &'static str| move |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
        if !(3..=255).contains(&self.table.len()) || !self.table.chars().all(plain("_.-")) {
            return Err(invalid(
                "the table of a dynamodb: ledger must have 3 to 255 characters of A-Z a-z 0-9 _ . -",
            ));
        }
        if self.region.is_empty() || !self.region.chars().all(plain("-")) {
            return Err(invalid("the region of a dynamodb: ledger must be a name like eu-central-1"));
        }
        Ok(())
    }

    /// A client that does not retry: only the handle knows the deadline, and it retries.
    pub(super) async fn client(&self) -> Client {
        let http = aws_smithy_http_client::Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let timeouts =
            TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_timeout(OPERATION_TIMEOUT);
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .region(Region::new(self.region.clone()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts.build());
        if let Some(endpoint) = &self.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        Client::new(&loader.load().await)
    }
}

fn checked_endpoint(text: &str) -> Result<String> {
    let url = Url::parse(text).map_err(|_| invalid("the endpoint in the ledger's URL is not a URL"))?;
    refuse_credentials(&url, "the endpoint in the ledger's URL")?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(invalid("the endpoint in the ledger's URL must start with http:// or https://"));
    }
    Ok(text.to_owned())
}

fn refuse_credentials(url: &Url, what: &str) -> Result<()> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(());
    }
    Err(invalid(format!(
        "{what} must not contain credentials; provide them through the AWS credential chain"
    )))
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(Kind::Settings(text.into()), "parsing the ledger's URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Settings> {
        Settings::parse(url, |_| None)
    }

    fn refusal(url: &str) -> String {
        parse(url).unwrap_err().to_string()
    }

    #[test]
    fn bare_url_means_the_shared_table() {
        let bare = parse("dynamodb:").unwrap();
        assert_eq!((bare.table.as_str(), bare.region.as_str()), (DEFAULT_TABLE, "us-east-1"));
        let environment = |name: &str| match name {
            "DEDUP_TABLE_NAME" => Some("my-events".to_owned()),
            "AWS_REGION" => Some("ap-northeast-1".to_owned()),
            _ => None,
        };
        let named = Settings::parse("dynamodb:", environment).unwrap();
        assert_eq!((named.table.as_str(), named.region.as_str()), ("my-events", "ap-northeast-1"));
        let text = Settings::parse("dynamodb://Other_Table?region=eu-west-1", environment).unwrap();
        assert_eq!((text.table.as_str(), text.region.as_str()), ("Other_Table", "eu-west-1"));
        let only = parse("dynamodb:?endpoint=http://127.0.0.1:8000").unwrap();
        assert_eq!(
            (only.table.as_str(), only.endpoint.as_deref()),
            (DEFAULT_TABLE, Some("http://127.0.0.1:8000"))
        );
    }

    #[test]
    fn error_names_the_setting_and_echoes_no_secret() {
        for url in [
            "dynamodb://AKIA:hunter2@table-name",
            "dynamodb://table-name?endpoint=http%3A%2F%2Fuser%3Ahunter2%40host",
            "dynamodb://table-name?secret=hunter2",
            "dynamodb://table-name/hunter2",
            "dynamodb://table-name?multi_region=hunter2",
            "dynamodb://table-name?region=hunter2%20x",
            "dynamodb://hunter2%20x",
            "dynamo://hunter2",
        ] {
            assert!(!refusal(url).contains("hunter2"), "{}", refusal(url));
        }
        assert!(refusal("dynamodb://table-name?secret=x").contains("\"secret\""));
        assert!(refusal("dynamodb://t").contains("3 to 255"));
    }

    #[test]
    fn several_regions_need_confirmation() {
        assert_eq!(parse("dynamodb://events").unwrap().regions, Regions::One);
        assert_eq!(parse("dynamodb://events?multi_region=confirmed").unwrap().regions, Regions::Confirmed);
        assert!(refusal("dynamodb://events?multi_region=yes").contains("confirmed"));
    }
}
