//! Reads the certificates and keys that settings name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::failure::Failure;

/// The TLS configuration of a listener, if its settings section names a certificate and its key.
pub fn server_config(
    section: &str,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<Arc<rustls::ServerConfig>>, Failure> {
    let names = (format!("{section}.tls_cert_file"), format!("{section}.tls_key_file"));
    let without = |set: &str, missing: &str| Err(Failure::usage(format!("{set} is set without {missing}")));
    let (cert, key) = match (non_empty(cert), non_empty(key)) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return without(&names.0, &names.1),
        (None, Some(_)) => return without(&names.1, &names.0),
    };
    let chain = read_certificates(&names.0, &cert)?;
    let invalid_key = |why: String| Failure::usage(format!("{} {}: {why}", names.1, key.display()));
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| invalid_key(pem_error(&error)))?;
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::internal(format!("cannot prepare TLS: {error}")))?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| invalid_key(format!("the key does not match {}: {error}", cert.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// Treats an empty path in the settings as unset.
pub fn non_empty(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// Reads the certificates in `file`, the value of the setting `name`.
pub fn read_certificates(name: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let invalid = |why: String| Failure::usage(format!("{name} {}: {why}", file.display()));
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| invalid(pem_error(&error)))?;
    let certificates: Vec<_> =
        certificates.collect::<Result<_, _>>().map_err(|error| invalid(pem_error(&error)))?;
    if certificates.is_empty() {
        Err(invalid("the file contains no certificate".to_owned()))
    } else {
        Ok(certificates)
    }
}

fn pem_error(error: &rustls::pki_types::pem::Error) -> String {
    if let rustls::pki_types::pem::Error::Io(error) = error {
        return error.to_string();
    }
    "the file does not contain the expected PEM section, or it is malformed".to_owned()
}
