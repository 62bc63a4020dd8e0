//! Settings: `ichido.toml`, the environment and flags, merged, checked and described.
//!
//! Every section is one `Raw` struct: serde reads it, its doc comments and `schemars` attributes describe it. That one definition
//! yields the values, the error messages, the tables in the documentation, `.env.example` and the JSON Schema for editors.
//!
//! | attribute | meaning |
//! |---|---|
//! | `#[schemars(extend("x-env" = "NAME"))]` | the environment variable that overrides the file |
//! | `#[schemars(extend("x-env-only" = true))]` | only the variable may set it, not the file |
//! | `#[schemars(extend("x-never-empty" = true))]` | an empty variable is an error; otherwise it counts as not set |
//! | `#[schemars(extend("x-secret" = true))]` | never printed; the type [`Secret`] implies it |
//! | `#[schemars(extend("x-url" = true))]` | a URL that is printed without credentials and parameters |
//! | `#[schemars(range(min = 1, max = 9))]` | limits, checked when the value is read |
//!
//! An error names the setting and where its value came from: file and line, variable or flag. It never repeats the value, which
//! may be a secret.

mod describe;
mod file;
mod invalid;
mod one_or_many;
mod parse;
mod schema;
mod secret;
mod sources;

pub use describe::{default_file, env_example, markdown_table};
pub use invalid::Invalid;
pub use one_or_many::OneOrMany;
pub use parse::{address, duration, location};
pub use schema::{Kind, Setting, schema, settings};
pub use secret::Secret;
pub use sources::{Effective, Flag, Origin, Sources};
