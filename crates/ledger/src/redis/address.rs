//! The server's address and our parameters, from the ledger's URL.
//!
//! Our parameters are removed before the redis crate parses the rest. No error repeats any part of the URL, which
//! may contain a password.

use std::fs;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use url::Url;

use crate::{Error, Kind, Result};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_PREFIX: &str = "ichido:";
const PREFIX_BYTES_MAX: usize = 200;

/// A server or a cluster, and how to use it.
pub(super) struct Address {
    pub(super) info: ConnectionInfo,
    pub(super) certificates: Option<TlsCertificates>,
    pub(super) cluster: bool,
    pub(super) prefix: String,
}

impl Address {
    /// Parses a URL.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let mut url =
            Url::parse(url).map_err(|_| invalid("expected redis://USER:PASSWORD@HOST:PORT/DATABASE"))?;
        if !matches!(url.scheme(), "redis" | "rediss") {
            return Err(invalid("it must start with redis:// or rediss://"));
        }
        // The redis crate would take a fragment as permission to trust any certificate.
        if url.fragment().is_some() {
            return Err(invalid(
                "fragments (#) are not supported; to trust another certificate authority, use ca_file=",
            ));
        }
        let (mut prefix, mut cluster, mut certificates) = (DEFAULT_PREFIX.to_owned(), false, None);
        let pairs: Vec<_> = url.query_pairs().into_owned().collect();
        url.set_query(None);
        for (at, (name, value)) in pairs.into_iter().enumerate() {
            match (name.as_str(), value.as_str()) {
                ("cluster", "true") => cluster = true,
                ("cluster", "false") => cluster = false,
                ("cluster", _) => return Err(invalid("cluster must be true or false")),
                ("prefix", "") => return Err(invalid("prefix must not be empty")),
                ("prefix", text) if text.len() > PREFIX_BYTES_MAX => {
                    return Err(invalid("prefix must be at most 200 bytes"));
                }
                ("prefix", text) => prefix = text.to_owned(),
                ("ca_file", file) => certificates = Some(read_certificates(file)?),
                ("protocol", _) => drop(url.query_pairs_mut().append_pair(&name, &value)),
                _ => {
                    let why = "is unknown; the parameters are prefix, cluster, ca_file and protocol";
                    return Err(invalid(&format!("parameter {} after the ? {why}", at + 1)));
                }
            }
        }
        let info = url.into_connection_info().map_err(|_| {
            invalid(
                "expected redis://USER:PASSWORD@HOST:PORT/DATABASE, with special characters percent-encoded",
            )
        })?;
        if certificates.is_some() && !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(invalid("ca_file needs rediss://"));
        }
        Ok(Self { info: info.set_tcp_settings(tcp_settings()), certificates, cluster, prefix })
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }
}

/// The certificate authorities in a file, in addition to those that the system trusts.
fn read_certificates(file: &str) -> Result<TlsCertificates> {
    let mut root = fs::read(file).map_err(|error| {
        let text = format!("cannot read ca_file {file}");
        Error::new(Kind::Settings(text), "parsing the ledger's URL").caused_by(error)
    })?;
    for certificate in rustls_native_certs::load_native_certs().certs {
        // The redis crate takes PEM, and rejects all certificates if one of them is unusable.
        if rustls::RootCertStore::empty().add(certificate.clone()).is_ok() {
            let body = STANDARD.encode(&certificate);
            root.extend(
                format!("\n-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n").into_bytes(),
            );
        }
    }
    Ok(TlsCertificates { client_tls: None, root_cert: Some(root) })
}

/// A server that disappears silently is noticed within seconds, not hours.
pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(30));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(Duration::from_secs(10));
    settings
}

fn invalid(why: &str) -> Error {
    Error::new(Kind::Settings(format!("invalid Redis URL: {why}")), "parsing the ledger's URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_parameters_are_removed_and_the_others_passed_on() {
        let address = Address::parse("redis://u:p@h:6380/2?prefix=t%3A&cluster=true&protocol=resp3").unwrap();
        assert_eq!((address.prefix.as_str(), address.cluster, address.is_tls()), ("t:", true, false));
        assert_eq!(address.info.redis_settings().db(), 2);
        assert_eq!(address.info.redis_settings().protocol(), redis::ProtocolVersion::RESP3);
        let address = Address::parse("redis://h").unwrap();
        assert_eq!((address.prefix.as_str(), address.cluster), ("ichido:", false));
    }

    #[test]
    fn unknown_parameter_is_identified_by_its_position() {
        let Err(error) = Address::parse("redis://h/0?prefix=t&hunter2=1") else { panic!("it was accepted") };
        assert!(error.to_string().contains("parameter 2 after the ? is unknown"), "{error}");
    }

    #[test]
    fn errors_repeat_no_part_of_the_url() {
        for url in [
            "redis://:hunter2@h:port/0",
            "redis://:hunter2@h/zero",
            "redis://:hunter2@h/0?cluster=hunter2",
            "redis://:hunter2@h/0?hunter2=1",
            "redis://:hunter?2@h/0",
            "rediss://:hunter2@h/0#insecure",
            "http://:hunter2@h",
            "redis://:hunter2@h?prefix=",
        ] {
            let Err(error) = Address::parse(url) else { panic!("{url} was accepted") };
            assert!(matches!(error.kind(), Kind::Settings(_)));
            assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
        }
    }
}
