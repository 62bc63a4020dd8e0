//! How a PostgreSQL server is reached: its URL, TLS, connections, and how statements are sent to it.
//!
//! Shared by everything that keeps something there or reads from there. What an error of a statement means is for each
//! of them to say.

mod address;
mod sending;
mod tls;

use std::error::Error as StdError;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};

pub use self::address::Address;
pub use self::sending::{Prepared, Sending, Unprobed, typed};
pub use self::tls::connector;

/// A server cannot be reached as it was asked for: a setting is wrong. No part of the URL is repeated.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {text}")]
pub struct Error {
    /// What was being done.
    pub doing: &'static str,
    /// What is wrong.
    pub text: String,
    /// Why.
    #[source]
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of reaching for a server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    fn new(doing: &'static str, text: impl Into<String>) -> Self {
        Self { doing, text: text.into(), source: None }
    }

    fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// Connections to a server, made when they are needed.
pub fn pool(address: &Address) -> Result<Pool> {
    let config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(address.config.clone(), tls::connector(address)?, config);
    let builder = Pool::builder(manager).max_size(address.connections).runtime(Runtime::Tokio1);
    builder.build().map_err(|error| Error::new("setting up connections", "no pool").caused_by(error))
}
