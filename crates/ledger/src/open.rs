//! Opens ledgers by their URLs.
//!
//! Errors name the setting and the scheme, never the URL itself: it may contain a password.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ichido_core::Clock;

use crate::deferred::Deferred;
use crate::memory::{DEFAULT_BOUND, Memory};
use crate::{Backend, Error, Kind, Ledger, LocalBackend, Result, Settings};

/// Options of a backend that are not part of its URL.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The address of this process's admin port, shown to other processes that find the store in use.
    pub admin: Option<String>,
}

/// Opens a ledger: `memory:`, `file:DIR`, `postgres://…`, `redis://…`, `rediss://…` or `dynamodb://TABLE`.
pub fn open(url: &str, settings: Settings) -> BoxFuture<'_, Result<Ledger>> {
    Box::pin(async move {
        let options = OpenOptions { clock: settings.clock.clone(), admin: None };
        let backend = open_backend(url, &options).await?;
        tracing::info!(capabilities = %backend.capabilities(), "ledger opened");
        Ok(Ledger::new(backend, settings))
    })
}

/// Opens a backend without a handle around it.
pub fn open_backend<'a>(url: &'a str, options: &'a OpenOptions) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
    Box::pin(async move {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(settings_error("the URL has no scheme"));
        };
        match scheme {
            "memory" => {
                let memory = Memory::new(options.clock.clone(), memory_bound(rest)?);
                Ok(Arc::new(memory) as Arc<dyn Backend>)
            }
            "file" => Ok(open_file(rest, options)?),
            "postgres" | "postgresql" => open_postgres(url).await,
            "redis" | "rediss" => open_redis(url).await,
            "dynamodb" => open_dynamodb(url, options).await,
            other => Err(settings_error(&format!("unknown scheme {other:?}"))),
        }
    })
}

/// Opens a backend. If it is unreachable, the first call that reaches it opens it later.
pub fn open_or_defer<'a>(url: &'a str, options: &'a OpenOptions) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
    Box::pin(async move {
        match open_backend(url, options).await {
            Err(error) if error.is_outage() => {
                let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
                let (url, options) = (url.to_owned(), options.clone());
                let open = move || {
                    let (url, options) = (url.clone(), options.clone());
                    async move { open_backend(&url, &options).await }.boxed()
                };
                Ok(Arc::new(Deferred::new(scheme, Box::new(open))) as Arc<dyn Backend>)
            }
            opened => opened,
        }
    })
}

/// Opens a ledger that can serve as a fallback: `memory:` or `file:DIR`.
pub fn open_local(url: &str, options: &OpenOptions) -> Result<Arc<dyn LocalBackend>> {
    match url.split_once(':') {
        Some(("memory", rest)) => Ok(Arc::new(Memory::new(options.clock.clone(), memory_bound(rest)?))),
        Some(("file", dir)) => open_file(dir, options),
        Some(_) | None => {
            let text = "a fallback must be local; expected memory: or file:DIR".to_owned();
            Err(Error::new(Kind::Settings(text), "parsing the fallback's URL"))
        }
    }
}

fn settings_error(what: &str) -> Error {
    let text = format!(
        "{what}; expected memory:, file:DIR, postgres://…, redis://…, rediss://… or dynamodb://TABLE"
    );
    Error::new(Kind::Settings(text), "parsing the ledger's URL")
}

fn memory_bound(rest: &str) -> Result<usize> {
    match rest {
        "" => Ok(DEFAULT_BOUND),
        query => {
            let bound =
                query.strip_prefix("?bound=").and_then(|bound| bound.parse().ok()).filter(|bound| *bound > 0);
            bound.ok_or_else(|| settings_error("memory: accepts only ?bound=N, with N greater than 0"))
        }
    }
}

#[cfg(feature = "file")]
fn open_file(dir: &str, options: &OpenOptions) -> Result<Arc<dyn LocalBackend>> {
    use crate::file::{File, FileSettings};
    let dir = dir.strip_prefix("//").unwrap_or(dir);
    if dir.is_empty() {
        return Err(settings_error("file: needs a directory"));
    }
    let settings = FileSettings { admin: options.admin.clone(), ..FileSettings::default() };
    Ok(Arc::new(File::open(std::path::Path::new(dir), settings, options.clock.clone())?))
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(crate::postgres::Postgres::connect(url).await?))
}

#[cfg(feature = "redis")]
async fn open_redis(url: &str) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(crate::redis::Redis::connect(url).await?))
}

#[cfg(feature = "dynamodb")]
async fn open_dynamodb(url: &str, options: &OpenOptions) -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(crate::dynamodb::Dynamo::connect(url, options.clock.clone()).await?))
}

#[cfg(not(feature = "file"))]
fn open_file(_: &str, _: &OpenOptions) -> Result<Arc<dyn LocalBackend>> {
    Err(not_built("file"))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_: &str) -> Result<Arc<dyn Backend>> {
    Err(not_built("postgres"))
}

#[cfg(not(feature = "redis"))]
async fn open_redis(_: &str) -> Result<Arc<dyn Backend>> {
    Err(not_built("redis"))
}

#[cfg(not(feature = "dynamodb"))]
async fn open_dynamodb(_: &str, _: &OpenOptions) -> Result<Arc<dyn Backend>> {
    Err(not_built("dynamodb"))
}

#[cfg(not(all(feature = "file", feature = "postgres", feature = "redis", feature = "dynamodb")))]
fn not_built(feature: &str) -> Error {
    Error::new(
        Kind::Unsupported(format!(
            "this build does not include {feature:?} ledgers; enable that cargo feature"
        )),
        "opening the ledger",
    )
}
