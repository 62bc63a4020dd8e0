//! Access to a PostgreSQL server: its URL, TLS, connections, and how statements are sent.
//!
//! Shared by all crates that store data in PostgreSQL or read from it. What a failed statement means is up to them.

mod address;
mod error;
mod pool;
mod statement_mode;
mod tls;

pub use self::address::{Address, Prepared};
pub use self::error::{Error, Result};
pub use self::pool::pool;
pub use self::statement_mode::{ProbeError, StatementMode, typed_params};
pub use self::tls::connector;
