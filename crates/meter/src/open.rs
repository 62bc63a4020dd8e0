//! Opens the store that a URL names.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::postgres::Postgres;
use crate::sqlite::Sqlite;
use crate::store::{Error, Options, Result, Store};

/// Opens `sqlite:FILE` or `postgres://…`, and creates what does not exist.
pub fn open(url: &str, options: Options) -> BoxFuture<'_, Result<Arc<dyn Store>>> {
    Box::pin(async move {
        if let Some(file) = url.strip_prefix("sqlite:") {
            let file = PathBuf::from(file.strip_prefix("//").unwrap_or(file));
            return Ok(Arc::new(Sqlite::open(file, options).await?) as Arc<dyn Store>);
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Arc::new(Postgres::connect(url, options).await?));
        }
        // The URL is not quoted: it may contain a password.
        Err(Error::Settings("the meter's database must be sqlite:FILE or postgres://…".to_owned()))
    })
}
