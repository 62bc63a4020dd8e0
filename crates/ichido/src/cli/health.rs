//! `ichido health`: asks a running process whether it is ready or alive, for probes of containers and services.
//!
//! Every failure has exit code 1: container runtimes reserve the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::http1::exchange;
use crate::args::HealthArgs;
use crate::components::admin_port;
use crate::output;
use crate::settings::Settings;
use ichido_serve::Failure;

/// Longer than `/readyz` takes at most.
const TIMEOUT: Duration = Duration::from_secs(4);

#[derive(Serialize)]
struct Report {
    url: String,
    ok: bool,
    /// What the process responded.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Value>,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

pub(super) async fn run(args: &HealthArgs) -> Result<(), Failure> {
    let target = Target::of(args).map_err(|failure| Failure::internal(failure.to_string()))?;
    let path = if args.live { "/healthz" } else { "/readyz" };
    let url = format!("{}://{}{path}", target.scheme, target.authority);
    let timed_out = |_| Err(format!("no response within {} s", TIMEOUT.as_secs()));
    let response = tokio::time::timeout(TIMEOUT, target.get(path)).await.unwrap_or_else(timed_out);
    let report = report(url, response);
    if args.common.json {
        output::json(&report)?;
    }
    match report.detail {
        None if args.common.json => Ok(()),
        None => {
            outln!("{}: {}", report.url, if args.live { "alive" } else { "ready" });
            Ok(())
        }
        Some(detail) => Err(Failure::internal(format!("{}: {detail}", report.url))),
    }
}

fn report(url: String, response: Result<Response<Bytes>, String>) -> Report {
    let (status, response) = match response {
        Ok(response) => (response.status(), serde_json::from_slice::<Value>(response.body()).ok()),
        Err(detail) => return Report { url, ok: false, response: None, detail: Some(detail) },
    };
    let is_ours = response.as_ref().is_some_and(|body| body["status"].is_string());
    let detail = match status {
        StatusCode::OK if is_ours => None,
        StatusCode::SERVICE_UNAVAILABLE if is_ours => {
            Some(format!("not ready: {}", failed_checks(&response)))
        }
        status => Some(format!("it returned {status} and is not an admin port")),
    };
    Report { url, ok: detail.is_none(), response, detail }
}

fn failed_checks(body: &Option<Value>) -> String {
    let checks = body.iter().flat_map(|body| body["checks"].as_array().into_iter().flatten());
    let failed = checks.filter(|check| check["ok"] != true).map(|check| {
        let text = |name: &str| check[name].as_str().unwrap_or_default();
        format!("{}: {}", text("name"), text("detail"))
    });
    failed.collect::<Vec<_>>().join("; ")
}

struct Target {
    scheme: Scheme,
    authority: Authority,
}

impl Target {
    fn of(args: &HealthArgs) -> Result<Self, Failure> {
        if let Some(given) = &args.admin {
            let uri = if given.contains("://") { given.clone() } else { format!("http://{given}") };
            return Self::parse(&uri).ok_or_else(|| {
                Failure::usage("--admin: expected HOST:PORT, http://HOST:PORT or https://HOST:PORT")
            });
        }
        let settings = Settings::load(args.common.config.as_deref(), &args.common.flags())?;
        let Some(listen) = admin_port::address(&settings)? else {
            return Err(Failure::usage(
                "admin.listen is off; enable the admin port, or name one with --admin",
            ));
        };
        let address = reachable(listen);
        let scheme = if settings.is_set("admin.tls_cert_file") { "https" } else { "http" };
        Self::parse(&format!("{scheme}://{address}"))
            .ok_or_else(|| Failure::internal(format!("{address} is not an address")))
    }

    fn parse(uri: &str) -> Option<Self> {
        let parts = uri.parse::<Uri>().ok()?.into_parts();
        let scheme = parts.scheme.filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme))?;
        let authority = parts.authority.filter(|authority| authority.port_u16().is_some())?;
        let is_bare = parts.path_and_query.is_none_or(|path| path.as_str() == "/");
        (is_bare && !authority.as_str().contains('@')).then_some(Self { scheme, authority })
    }

    async fn get(&self, path: &str) -> Result<Response<Bytes>, String> {
        let request = Request::get(path).header(HOST, self.authority.as_str()).header(CONNECTION, "close");
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let unreachable = |error: std::io::Error| format!("cannot connect: {error}");
        let stream = TcpStream::connect((host.as_str(), self.authority.port_u16().unwrap_or_default()));
        let stream = stream.await.map_err(unreachable)?;
        if self.scheme == Scheme::HTTP {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let stream = tls()?.connect(name, stream).await.map_err(unreachable)?;
        exchange(stream, request).await
    }
}

/// A wildcard address is reached on loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// TLS to the process itself. Like the probes of Kubernetes, it accepts any certificate: the request contains no secret,
/// and a probe on loopback uses an address that no certificate is for.
fn tls() -> Result<TlsConnector, String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
