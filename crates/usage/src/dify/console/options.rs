//! How the console is reached.

use std::num::NonZeroU32;

use rustls::ClientConfig;
use secrecy::SecretString;
use url::Url;

/// How we authenticate.
#[derive(Debug)]
pub enum Auth {
    /// The `ADMIN_API_KEY` of the installation.
    AdminKey(SecretString),
    /// A member of the workspace.
    Login {
        /// The e-mail address of the member.
        email: String,
        /// The password of the member.
        password: SecretString,
        /// Whether the password is sent as Base64, as Dify expects from 1.11.2.
        base64: bool,
    },
}

/// How the console is reached.
#[derive(Debug)]
pub struct Options {
    /// `https://dify.example`
    pub base: Url,
    /// How we authenticate.
    pub auth: Auth,
    /// The most requests per second.
    pub rate_per_second: NonZeroU32,
    /// The TLS settings, with the trusted certificates.
    pub tls: ClientConfig,
}
