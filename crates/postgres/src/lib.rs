//! How a PostgreSQL server is reached: its URL, TLS, connections, and how statements are sent to it.
//!
//! Shared by everything that keeps something there or reads from there. What an error of a statement means is for each
//! of them to say.

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
