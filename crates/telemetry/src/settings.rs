//! `[telemetry]`: where traces and metrics are sent.

use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use ichido_settings::{Invalid, Secret};
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::Deserialize;

/// The only protocol that is spoken.
const HTTP_PROTOBUF: &str = "http/protobuf";

/// `[telemetry]` as it was written. The variables are those that OpenTelemetry defines.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawTelemetry {
    /// The OpenTelemetry collector that gets traces and metrics, such as `http://127.0.0.1:4318`. Not set: none.
    #[schemars(extend("x-env" = "OTEL_EXPORTER_OTLP_ENDPOINT", "x-url" = true))]
    otlp_endpoint: Option<String>,
    /// Headers for the collector: `name=value`, separated by commas.
    #[schemars(extend("x-env" = "OTEL_EXPORTER_OTLP_HEADERS", "x-env-only" = true))]
    otlp_headers: Option<Secret>,
    /// How the collector is spoken to. Only `http/protobuf` is supported.
    #[schemars(extend("x-env" = "OTEL_EXPORTER_OTLP_PROTOCOL"))]
    otlp_protocol: String,
    /// How long one export may take, in milliseconds.
    #[schemars(range(min = 1, max = 600_000), extend("x-env" = "OTEL_EXPORTER_OTLP_TIMEOUT"))]
    otlp_timeout_ms: u64,
    /// How often metrics are sent to the collector, in milliseconds.
    #[schemars(range(min = 100, max = 86_400_000), extend("x-env" = "OTEL_METRIC_EXPORT_INTERVAL"))]
    otlp_metrics_ms: u64,
    /// The name of this service in traces and metrics.
    #[schemars(extend("x-env" = "OTEL_SERVICE_NAME"))]
    service_name: String,
    /// Whether metrics are written to standard output for CloudWatch, in the Embedded Metric Format.
    #[schemars(extend("x-env" = "ICHIDO_EMF"))]
    emf: bool,
    /// The CloudWatch namespace of these metrics.
    #[schemars(extend("x-env" = "ICHIDO_EMF_NAMESPACE"))]
    emf_namespace: String,
    /// How often they are written, in seconds. In a Lambda function they are written once per invocation.
    #[schemars(range(min = 1, max = 86_400), extend("x-env" = "ICHIDO_EMF_SECONDS"))]
    emf_seconds: u64,
}

impl Default for RawTelemetry {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_headers: None,
            otlp_protocol: HTTP_PROTOBUF.to_owned(),
            otlp_timeout_ms: 10_000,
            otlp_metrics_ms: 60_000,
            service_name: "ichido".to_owned(),
            emf: false,
            emf_namespace: "ichido".to_owned(),
            emf_seconds: 60,
        }
    }
}

/// Where traces and metrics are sent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is told about this process.
    pub service: Service,
    /// An OpenTelemetry collector.
    pub otlp: Option<Otlp>,
    /// Lines for CloudWatch.
    pub emf: Option<Emf>,
}

/// The identity of this process in traces and metrics.
#[derive(Clone, Debug)]
pub struct Service {
    /// The name of the service.
    pub name: String,
    /// The machine that it runs on.
    pub host: String,
}

/// An OpenTelemetry collector.
#[derive(Clone, Debug)]
pub struct Otlp {
    /// The URL, without the path of a signal.
    pub endpoint: Uri,
    /// Headers of every request.
    pub headers: HeaderMap,
    /// How long one export may take.
    pub timeout: Duration,
    /// How often metrics are sent.
    pub metrics_interval: Duration,
}

impl Otlp {
    /// The port of the collector, given or implied by the scheme.
    pub fn port(&self) -> u16 {
        let implied = if self.endpoint.scheme_str() == Some("https") { 443 } else { 80 };
        self.endpoint.port_u16().unwrap_or(implied)
    }
}

/// Lines for CloudWatch.
#[derive(Clone, Debug)]
pub struct Emf {
    /// The namespace of the metrics.
    pub namespace: String,
    /// How often they are written.
    pub interval: Duration,
}

impl RawTelemetry {
    /// Checks the section. `None` if nothing is to be sent.
    pub fn check(self, host: String) -> Result<Option<Settings>, Invalid> {
        let endpoint = self.otlp_endpoint.filter(|endpoint| !endpoint.is_empty());
        let otlp = match endpoint {
            None => None,
            Some(endpoint) => {
                if self.otlp_protocol != HTTP_PROTOBUF {
                    let problem = "must be http/protobuf; collectors accept it on port 4318";
                    return Err(Invalid::new("telemetry.otlp_protocol", problem));
                }
                Some(Otlp {
                    endpoint: endpoint_url(&endpoint)?,
                    headers: self
                        .otlp_headers
                        .map(|headers| parse_headers(&headers))
                        .transpose()?
                        .unwrap_or_default(),
                    timeout: Duration::from_millis(self.otlp_timeout_ms),
                    metrics_interval: Duration::from_millis(self.otlp_metrics_ms),
                })
            }
        };
        let texts = [("service_name", &self.service_name), ("emf_namespace", &self.emf_namespace)];
        for (name, text) in texts {
            // The limits of CloudWatch for a dimension and a namespace.
            let is_valid = (1..=255).contains(&text.len())
                && text.chars().all(|one| one.is_ascii_graphic() || one == ' ');
            if !is_valid || text.trim() != text {
                let problem = "must be 1 to 255 printable ASCII characters, without spaces at its ends";
                return Err(Invalid::new(format!("telemetry.{name}"), problem));
            }
        }
        if self.emf_namespace.starts_with("AWS/") || self.emf_namespace.starts_with(':') {
            return Err(Invalid::new("telemetry.emf_namespace", "must not begin with AWS/ or a colon"));
        }
        let interval = Duration::from_secs(self.emf_seconds);
        let emf = self.emf.then_some(Emf { namespace: self.emf_namespace, interval });
        let is_off = otlp.is_none() && emf.is_none();
        Ok((!is_off).then_some(Settings { service: Service { name: self.service_name, host }, otlp, emf }))
    }
}

fn endpoint_url(text: &str) -> Result<Uri, Invalid> {
    let bad = |why: &str| {
        Invalid::new(
            "telemetry.otlp_endpoint",
            format!("{why}; expected something like http://127.0.0.1:4318"),
        )
    };
    let uri: Uri = text.parse().map_err(|_| bad("is not a URL"))?;
    if !uri.scheme().is_some_and(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) {
        return Err(bad("is neither http nor https"));
    }
    let authority =
        uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(|| bad("has no host"))?;
    if authority.as_str().contains('@') {
        return Err(bad("holds a user name or password; use OTEL_EXPORTER_OTLP_HEADERS"));
    }
    if authority.as_str() != authority.host() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(bad("has no port between 1 and 65535"));
    }
    if uri.query().is_some() {
        return Err(bad("has a query"));
    }
    Ok(uri)
}

fn parse_headers(headers: &Secret) -> Result<HeaderMap, Invalid> {
    let bad = || Invalid::new("telemetry.otlp_headers", "must be name=value, separated by commas");
    let pairs = headers.expose().split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(bad)?;
            let value = percent_decode_str(value.trim()).collect::<Vec<_>>();
            let mut value = HeaderValue::from_bytes(&value).map_err(|_| bad())?;
            value.set_sensitive(true);
            Ok((HeaderName::try_from(name.trim()).map_err(|_| bad())?, value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut RawTelemetry)) -> Result<Option<Settings>, String> {
        let mut raw = RawTelemetry::default();
        change(&mut raw);
        raw.check("host".to_owned()).map_err(|invalid| invalid.to_string())
    }

    fn endpoint(text: &str) -> Result<Option<Settings>, String> {
        check(|raw| raw.otlp_endpoint = Some(text.to_owned()))
    }

    #[test]
    fn nothing_is_sent_by_default() {
        assert!(check(|_| {}).unwrap().is_none());
        assert!(endpoint("").unwrap().is_none());
        // Other programs may speak another protocol. Without a collector, it does not matter here.
        assert!(check(|raw| raw.otlp_protocol = "grpc".to_owned()).unwrap().is_none());
    }

    #[test]
    fn headers_are_decoded_and_hidden() {
        let settings = check(|raw| {
            raw.otlp_endpoint = Some("https://otel.example/base/".to_owned());
            raw.otlp_headers = Some(Secret::from("api-key=hunter%202 , X-Team = a=b,".to_owned()));
        });
        let otlp = settings.unwrap().unwrap().otlp.unwrap();
        assert_eq!(
            (&otlp.headers["api-key"], &otlp.headers["x-team"]),
            (&"hunter 2".parse().unwrap(), &"a=b".parse().unwrap())
        );
        assert!(!format!("{otlp:?}").contains("hunter"));
    }

    #[test]
    fn a_bad_setting_is_named() {
        for (result, name) in [
            (endpoint("127.0.0.1:4318"), "otlp_endpoint"),
            (endpoint("ftp://h"), "otlp_endpoint"),
            (endpoint("http://u:hunter2@h"), "otlp_endpoint"),
            (endpoint("http://h:99999"), "otlp_endpoint"),
            (endpoint("http://h/?x=1"), "otlp_endpoint"),
            (
                check(|raw| {
                    raw.otlp_endpoint = Some("http://h".to_owned());
                    raw.otlp_protocol = "grpc".to_owned();
                }),
                "otlp_protocol",
            ),
            (
                check(|raw| {
                    raw.otlp_endpoint = Some("http://h".to_owned());
                    raw.otlp_headers = Some(Secret::from("hunter2".to_owned()));
                }),
                "otlp_headers",
            ),
            (check(|raw| raw.service_name = String::new()), "service_name"),
            (check(|raw| raw.emf_namespace = "AWS/Lambda".to_owned()), "emf_namespace"),
        ] {
            let message = result.unwrap_err();
            assert!(
                message.contains(&format!("telemetry.{name}")) && !message.contains("hunter2"),
                "{message}"
            );
        }
    }
}
