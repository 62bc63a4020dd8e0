//! `sqlite:FILE`: stores records in one file, for one machine.
//!
//! One thread writes, with group commit: batches that arrive while a commit waits for the disk share the next
//! commit. Each batch has its own savepoint, and its response is sent after the commit. Readers have their own
//! connections and see only what is committed. Other processes may open the file as well.

mod blocking;
mod count;
mod error;
mod queries;
mod schema;
mod sum_of_money;
mod writer;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use self::blocking::blocking;
use self::queries::Readers;
use self::writer::Writer;
use crate::announcement::Announcement;
use crate::batch::Batch;
use crate::outcome::Outcome;
use crate::repeats::{Repeats, RepeatsQuery};
use crate::report::{FoundRecord, Group, Page, PageQuery, ReportQuery};
use crate::store::{Error, Grain, Options, Receipt, Result, Store};

/// Records in a file.
pub(crate) struct Sqlite {
    file: PathBuf,
    grain: Grain,
    writer: Writer,
    readers: Readers,
}

impl Sqlite {
    /// Opens the file, and creates it if it does not exist.
    pub(crate) async fn open(file: PathBuf, options: Options) -> Result<Self> {
        if file.as_os_str().is_empty() {
            return Err(Error::Settings("the meter's database sqlite: needs a file name".to_owned()));
        }
        let (path, profile) = (file.clone(), options.profile);
        let writer = blocking(move || Writer::start(schema::open(&path, profile)?, profile)).await??;
        Ok(Self { readers: Readers::new(file.clone()), file, grain: Grain::of(profile), writer })
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("file", &self.file).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn count(&self, batch: Arc<Batch>) -> Result<Vec<Outcome>> {
        self.writer.count(batch).await
    }

    async fn report(&self, query: &ReportQuery) -> Result<Vec<Group>> {
        let query = query.clone();
        self.readers.read(move |connection| queries::report(connection, &query)).await
    }

    async fn page(&self, query: &PageQuery) -> Result<Page> {
        let query = query.clone();
        self.readers.read(move |connection| queries::page(connection, &query)).await
    }

    async fn receipt(&self, tenant: &str, batch: &str) -> Result<Option<Receipt>> {
        let (tenant, batch) = (tenant.to_owned(), batch.to_owned());
        self.readers.read(move |connection| queries::receipt(connection, &tenant, &batch)).await
    }

    async fn find(&self, tenant: &str, event_id: &str) -> Result<Option<FoundRecord>> {
        let (grain, tenant, event_id) = (self.grain, tenant.to_owned(), event_id.to_owned());
        self.readers.read(move |connection| queries::find(connection, grain, &tenant, &event_id)).await
    }

    async fn repeats(&self, query: &RepeatsQuery) -> Result<Repeats> {
        let query = query.clone();
        self.readers.read(move |connection| queries::repeats(connection, &query)).await
    }

    async fn announced(&self, month: &str) -> Result<Vec<Announcement>> {
        let month = month.to_owned();
        self.readers.read(move |connection| queries::announced(connection, &month)).await
    }

    async fn note_announced(&self, announcement: &Announcement, at: i64) -> Result<()> {
        let (file, announcement) = (self.file.clone(), announcement.clone());
        blocking(move || schema::note_announced(&file, &announcement, at)).await?
    }

    async fn count_user(&self, user: &str) -> Result<u64> {
        let user = user.to_owned();
        self.readers.read(move |connection| queries::count_user(connection, &user)).await
    }

    async fn erase_user(&self, user: &str) -> Result<u64> {
        let (file, user) = (self.file.clone(), user.to_owned());
        blocking(move || schema::erase_user(&file, &user)).await?
    }

    async fn check(&self) -> Result<()> {
        self.writer.check()?;
        self.readers.read(schema::check).await
    }

    async fn close(&self) {
        self.writer.close().await;
        self.readers.close();
    }
}
