//! A receiver of usage records that counts each record once.
//!
//! Records arrive in batches over HTTP ([`http`]), are parsed and checked one by one ([`batch`]), compared with
//! what is stored ([`rules`]), and counted in one transaction per batch ([`store`]), in SQLite or PostgreSQL. Ids
//! are remembered for ever: a record that arrives again after a year is still a duplicate.
//!
//! Invariants: a response is sent only after what it reports is durable. The same batch may arrive any number of
//! times, concurrently and in any order, and counts once. Sums are exact, and currencies are never added together.

pub mod access;
mod announcement;
pub mod batch;
pub mod budget;
pub mod csv;
pub mod fault;
pub mod http;
mod open;
pub mod outcome;
mod postgres;
pub mod repeats;
pub mod report;
pub mod rules;
pub mod settings;
mod sqlite;
pub mod statement;
pub mod store;

pub use self::access::Access;
pub use self::batch::Batch;
pub use self::budget::Budget;
pub use self::http::{Service, service};
pub use self::open::open;
pub use self::outcome::Outcome;
pub use self::store::{Error, Options, Store};
