//! Certificates and keys that the settings name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Failure;

/// TLS of a listener, if its section names a certificate and its key.
pub fn server(
    section: &str,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<Arc<rustls::ServerConfig>>, Failure> {
    let names = (format!("{section}.tls_cert_file"), format!("{section}.tls_key_file"));
    let without = |one: &str, other: &str| Err(Failure::usage(format!("{one} is set without {other}")));
    let (cert, key) = match (given(cert), given(key)) {
        (None, None) => return Ok(None),
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => return without(&names.0, &names.1),
        (None, Some(_)) => return without(&names.1, &names.0),
    };
    let chain = certificates(&names.0, &cert)?;
    let bad_key = |why: String| Failure::usage(format!("{} {}: {why}", names.1, key.display()));
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| bad_key(plain(&error)))?;
    let mut config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::internal(format!("preparing TLS: {error}")))?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| bad_key(format!("it does not fit {}: {error}", cert.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// An empty path in the settings is none.
pub fn given(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// The certificates in a file that the setting `name` names.
pub fn certificates(name: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let bad = |why: String| Failure::usage(format!("{name} {}: {why}", file.display()));
    let found = CertificateDer::pem_file_iter(file).map_err(|error| bad(plain(&error)))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| bad(plain(&error)))?;
    if found.is_empty() { Err(bad("there is no certificate in it".to_owned())) } else { Ok(found) }
}

fn plain(error: &rustls::pki_types::pem::Error) -> String {
    if let rustls::pki_types::pem::Error::Io(error) = error {
        return error.to_string();
    }
    "what is expected in it is not there, or not well-formed PEM".to_owned()
}
