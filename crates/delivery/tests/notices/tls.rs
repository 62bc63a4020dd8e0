//! A certificate authority for all tests, and servers with its certificates.

use std::sync::{Arc, OnceLock};

use ichido_delivery::tls_roots::TlsRoots;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

struct Authority {
    pem: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

fn the_authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(new_authority)
}

fn new_authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    Authority { pem: issuer.pem(), issuer }
}

/// The authority that clients trust.
pub(crate) fn roots() -> TlsRoots {
    TlsRoots::from_pem(the_authority().pem.as_bytes()).unwrap()
}

/// A server for `localhost` that clients trust.
pub(crate) fn trusted() -> TlsAcceptor {
    acceptor(the_authority())
}

/// A server for `localhost` with a certificate of an unknown authority.
pub(crate) fn untrusted() -> TlsAcceptor {
    acceptor(&new_authority())
}

fn acceptor(authority: &Authority) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority.issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
