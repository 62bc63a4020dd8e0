//! Whom outgoing connections trust: the authorities that the system knows, and beside them those in the file of a setting.
//! One rule for the API, Slack and the mail server (`EXTERNAL_API_CA_FILE`): a receiver may be behind an authority of its own
//! while Slack is not.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// A file of authorities that cannot be used. Names the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Authorities that are trusted beside the system's.
#[derive(Clone, Debug, Default)]
pub struct TlsRoots {
    extra: Vec<CertificateDer<'static>>,
}

impl TlsRoots {
    /// Those in the file of `EXTERNAL_API_CA_FILE`; none without it.
    pub fn read(ca_file: Option<&Path>) -> Result<Self, Error> {
        Self::read_setting("EXTERNAL_API_CA_FILE", ca_file)
    }

    /// The same for another setting.
    pub fn read_setting(setting: &str, ca_file: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = ca_file else { return Ok(Self::default()) };
        let fail = |why: &str| Error(format!("{setting}: {}: {why}", path.display()));
        let pem = std::fs::read(path).map_err(|error| fail(&error.to_string()))?;
        Self::from_pem(&pem).map_err(fail)
    }

    /// Those in a PEM file's text.
    pub fn from_pem(pem: &[u8]) -> Result<Self, &'static str> {
        let extra: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|_| "something in it is no PEM certificate")?;
        let mut roots = RootCertStore::empty();
        for certificate in &extra {
            roots
                .add(certificate.clone())
                .map_err(|_| "something in it is no certificate of an authority")?;
        }
        if extra.is_empty() { Err("there is no certificate in it") } else { Ok(Self { extra }) }
    }

    /// The certificates that are trusted beside the system's.
    pub(crate) fn extra(&self) -> &[CertificateDer<'static>] {
        &self.extra
    }

    /// TLS 1.2 or later for a client that trusts these.
    pub fn client(&self) -> Result<ClientConfig, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.extra.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_none_is_named_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let error = |text: Option<&str>| {
            text.into_iter().for_each(|text| std::fs::write(&path, text).unwrap());
            TlsRoots::read(Some(&path)).unwrap_err().to_string()
        };
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for line in [error(None), error(Some("")), error(Some("no PEM")), error(Some(broken))] {
            assert!(line.starts_with("EXTERNAL_API_CA_FILE: ") && line.contains("ca.pem"), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
        assert!(TlsRoots::read(None).unwrap().extra().is_empty());
    }
}
