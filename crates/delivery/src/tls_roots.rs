//! The certificate authorities that outgoing connections trust: the system's, and those in a file.
//!
//! The same set applies to the receiver, Slack and the mail server (`EXTERNAL_API_CA_FILE`). The system's authorities
//! always stay trusted: the receiver may use a private authority while Slack does not.

use std::path::Path;
use std::sync::Arc;

use ichido_settings::Invalid;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Certificate authorities that are trusted in addition to the system's.
#[derive(Clone, Debug, Default)]
pub struct TlsRoots {
    extra: Vec<CertificateDer<'static>>,
}

impl TlsRoots {
    /// Reads `delivery.ca_file`, if it is set.
    pub fn read(ca_file: Option<&Path>) -> Result<Self, Invalid> {
        Self::read_setting("delivery.ca_file", ca_file)
    }

    /// Reads the CA file of another setting.
    pub fn read_setting(setting: &str, ca_file: Option<&Path>) -> Result<Self, Invalid> {
        let Some(path) = ca_file else { return Ok(Self::default()) };
        let fail = |why: &str| Invalid::new(setting, format!("{} {why}", path.display()));
        let pem = std::fs::read(path).map_err(|error| fail(&format!("cannot be read: {error}")))?;
        Self::from_pem(&pem).map_err(fail)
    }

    /// Parses the content of a PEM file.
    pub fn from_pem(pem: &[u8]) -> Result<Self, &'static str> {
        let extra: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|_| "contains an invalid PEM certificate")?;
        let mut roots = RootCertStore::empty();
        for certificate in &extra {
            roots
                .add(certificate.clone())
                .map_err(|_| "contains a certificate that cannot be used as an authority")?;
        }
        if extra.is_empty() { Err("contains no certificate") } else { Ok(Self { extra }) }
    }

    /// The certificates that are trusted in addition to the system's.
    pub(crate) fn extra(&self) -> &[CertificateDer<'static>] {
        &self.extra
    }

    /// Client settings with these authorities, for TLS 1.2 or later.
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
    fn invalid_file_is_named_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let error = |text: Option<&str>| {
            text.into_iter().for_each(|text| std::fs::write(&path, text).unwrap());
            TlsRoots::read(Some(&path)).unwrap_err().to_string()
        };
        let invalid = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for line in [error(None), error(Some("")), error(Some("no PEM")), error(Some(invalid))] {
            assert!(line.starts_with("delivery.ca_file: ") && line.contains("ca.pem"), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
        assert!(TlsRoots::read(None).unwrap().extra().is_empty());
    }
}
