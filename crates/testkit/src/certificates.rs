//! A certificate authority, and the certificates it signs.

use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

/// An authority that a test trusts, or one that nobody knows.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
#[derive(Debug)]
pub struct Identity {
    /// The certificate, as PEM.
    pub certificate: String,
    /// The private key, as PEM.
    pub key: String,
    /// Presents this certificate to clients.
    pub config: Arc<ServerConfig>,
}

impl Authority {
    /// A new authority.
    #[expect(clippy::new_without_default, reason = "each authority has its own key")]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its certificate, as PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `localhost` and 127.0.0.1.
    pub fn localhost(&self) -> Identity {
        self.sign(CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap())
    }

    /// A certificate for another host.
    pub fn other_host(&self) -> Identity {
        self.sign(CertificateParams::new(vec!["other.example".to_owned()]).unwrap())
    }

    /// A certificate for `localhost` that has expired.
    pub fn expired(&self) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem(), config: Arc::new(config) }
    }
}

/// Writes a self-signed certificate for `localhost` to `cert.pem`, and its key to `key.pem`.
pub fn write_self_signed(dir: &Path) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    std::fs::write(dir.join("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
}
