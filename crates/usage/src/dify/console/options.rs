//! How the console is reached.

use std::num::NonZeroU32;

use rustls::ClientConfig;
use secrecy::SecretString;
use url::Url;

/// How we are known to the console.
#[derive(Debug)]
pub enum Auth {
    /// `ADMIN_API_KEY` of the installation.
    AdminKey(SecretString),
    /// A member of the workspace.
    Login {
        /// Who.
        email: String,
        /// Their password.
        password: SecretString,
        /// From 1.11.2 on Dify wants it as Base64.
        base64: bool,
    },
}

/// How the console is reached.
#[derive(Debug)]
pub struct Options {
    /// `https://dify.example`
    pub base: Url,
    /// How we are known.
    pub auth: Auth,
    /// Requests in a second.
    pub rate_per_second: NonZeroU32,
    /// What is trusted.
    pub tls: ClientConfig,
}
