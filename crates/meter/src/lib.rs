//! A receiver of usage records that counts each one once.
//!
//! Records come in batches over HTTP ([`http`]), are read and judged one by one ([`batch`], [`rules`]), and are counted in one
//! transaction per batch ([`store`]): in SQLite, or in PostgreSQL. Ids are remembered for ever: a record that comes again after a
//! year is still a duplicate.
//!
//! What must stay true: an answer is given only after what it tells of is durable; the same batch may come any number of
//! times, at once and in any order, and the totals are those of one; sums are exact, and no two currencies are added.

pub mod access;
pub mod batch;
pub mod csv;
pub mod fault;
pub mod http;
mod open;
pub mod outcome;
mod postgres;
pub mod report;
pub mod rules;
mod sqlite;
pub mod store;

pub use self::access::Access;
pub use self::batch::Batch;
pub use self::http::{Service, service};
pub use self::open::open;
pub use self::outcome::Outcome;
pub use self::store::{Error, Options, Store};
