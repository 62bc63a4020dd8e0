//! TLS for listeners: the certificate and key that the settings name, and their replacement while the listener serves.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ichido_settings::Invalid;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The TLS configuration of a listener, if its section names a certificate and a key.
pub fn server_config(
    section: &str,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<Arc<ServerConfig>>, Invalid> {
    let names = (format!("{section}.tls_cert_file"), format!("{section}.tls_key_file"));
    let without = |one: &str, other: &str| Err(Invalid::new(one, format!("is set without {other}")));
    let (cert, key) = match (non_empty(cert), non_empty(key)) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return without(&names.0, &names.1),
        (None, Some(_)) => return without(&names.1, &names.0),
    };
    let chain = read_certificates(&names.0, &cert)?;
    let bad_key = |why: String| Invalid::new(&names.1, format!("{}: {why}", key.display()));
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| bad_key(pem_error(&error)))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad_key(format!("cannot prepare TLS: {error}")))?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| bad_key(format!("does not match {}: {error}", cert.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// The certificate of a listener, which can be replaced while the listener serves.
///
/// Only the certificate is replaced, not the whole configuration: open connections and resumable sessions stay valid.
#[derive(Clone, Debug)]
pub struct Certificate(Arc<InForce>);

#[derive(Debug)]
struct InForce(RwLock<Arc<dyn ResolvesServerCert>>);

impl Certificate {
    /// Returns the configuration with a certificate that can be replaced.
    pub fn replaceable(config: &ServerConfig) -> (Arc<ServerConfig>, Self) {
        let in_force = Arc::new(InForce(RwLock::new(config.cert_resolver.clone())));
        let mut config = config.clone();
        config.cert_resolver = in_force.clone();
        (Arc::new(config), Self(in_force))
    }

    /// Presents the certificate of another configuration to new connections.
    pub fn replace(&self, with: &ServerConfig) {
        *self.0.0.write().unwrap_or_else(PoisonError::into_inner) = with.cert_resolver.clone();
    }
}

impl ResolvesServerCert for InForce {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).resolve(client_hello)
    }
}

/// An empty path counts as not set.
pub fn non_empty(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// The certificates in the file that the setting `name` points to.
pub fn read_certificates(name: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Invalid> {
    let bad = |why: String| Invalid::new(name, format!("{}: {why}", file.display()));
    let found = CertificateDer::pem_file_iter(file).map_err(|error| bad(pem_error(&error)))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| bad(pem_error(&error)))?;
    if found.is_empty() { Err(bad("contains no certificate".to_owned())) } else { Ok(found) }
}

fn pem_error(error: &rustls::pki_types::pem::Error) -> String {
    if let rustls::pki_types::pem::Error::Io(error) = error {
        return error.to_string();
    }
    "is not well-formed PEM, or has no section of the expected kind".to_owned()
}
/// How connections to others are secured: with the authorities that the system trusts, and those of a file. `name` is the
/// setting that names the other end.
pub fn client_config(
    name: &str,
    is_https: bool,
    ca_file: Option<(&str, &Path)>,
) -> Result<Arc<rustls::ClientConfig>, Invalid> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some((name, file)) = ca_file {
        for certificate in read_certificates(name, file)? {
            roots
                .add(certificate)
                .map_err(|error| Invalid::new(name, format!("{}: {error}", file.display())))?;
        }
    }
    // Like every other file of authorities, it adds to those that the system trusts.
    if is_https {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Invalid::new(name, format!("cannot prepare TLS: {error}")))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
