//! What operators do with a file ledger. Long reads happen off the async threads.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use ichido_core::mark::{self, Erased, Forgotten};
use ichido_core::{Index, Key, MarkKey, Nonce, Record, Resolution, Resolved, Timestamp, Token};
use tokio::sync::oneshot;

use super::tasks::Task;
use super::{File, listing};
use crate::log::storage::Disk;
use crate::log::{self, Call, Options, Reply, View};
use crate::{
    Backup, Error, Kind, LocalBackend, Maintain, MarkPage, MarkQuery, Page, Query, Result, Stats, Swept,
    Verified,
};

/// Less space than this on the disk is worth a warning.
const SPACE_BYTES: u64 = 512 * 1024 * 1024;

#[async_trait]
impl Maintain for File {
    /// Opening created the store.
    async fn init(&self) -> Result<()> {
        self.view().map(drop)
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.view()?;
        let dir = self.shared.dir.clone();
        off_thread(move || Ok(warnings(&dir))).await
    }

    async fn get(&self, key: &Key) -> Result<Option<Record>> {
        let found = self.view()?.claim(&key.index())?;
        let now = self.shared.time.now();
        Ok(found.map(|found| found.record).filter(|record| now < record.expires_at()))
    }

    async fn list(&self, query: &Query) -> Result<Page> {
        let (view, now, query) = (self.view()?, self.now(), query.clone());
        off_thread(move || listing::list(&view, &query, now)).await
    }

    async fn resolve(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        let (key, resolution) = (key.clone(), resolution.clone());
        if let Resolution::Forget(_) | Resolution::Erase(_) = resolution {
            self.shared.cache.exclude(key.index());
        }
        self.ask(|reply| Call::Resolve { key, resolution, reply }).await
    }

    async fn get_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        let found = self.view()?.mark(&key.index())?;
        let now = self.now();
        Ok(found.map(|found| found.record).filter(|record| now < record.expires_at))
    }

    async fn list_marks(&self, query: &MarkQuery) -> Result<MarkPage> {
        let (view, now, query) = (self.view()?, self.now(), query.clone());
        off_thread(move || listing::list_marks(&view, &query, now)).await
    }

    async fn forget_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        let (index, nonce) = (seen.key.index(), seen.nonce);
        self.ask(|reply| Call::ForgetMark { index, nonce, reply }).await
    }

    async fn erase_mark(&self, seen: &mark::Record) -> Result<Erased> {
        let (index, nonce) = (seen.key.index(), seen.nonce);
        self.ask(|reply| Call::EraseMark { index, nonce, reply }).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept> {
        self.delegate(|reply| Task::Sweep { limit: limit as u64, reply }).await
    }

    async fn stats(&self) -> Result<Stats> {
        let (view, now) = (self.view()?, self.now());
        off_thread(move || listing::stats(&view, now)).await
    }

    async fn verify(&self) -> Result<Verified> {
        let options = Options::standard(self.shared.dir.display().to_string());
        let storage = Disk::read_only(&self.shared.dir);
        // On the housekeeper's thread: no segment is dropped meanwhile.
        self.run(move |_| log::verify(&storage, &options)).await
    }

    async fn backup(&self, to: &Path) -> Result<Backup> {
        let (shared, to) = (self.shared.clone(), to.to_owned());
        self.run(move |view| super::backup::backup(view, &shared.dir, &to, || shared.tasks.is_closed())).await
    }

    async fn compact(&self) -> Result<Swept> {
        self.delegate(|reply| Task::Compact { reply }).await
    }

    async fn close(&self) -> Result<()> {
        self.shared.queue.close();
        // An error means that the writer is gone, which is what we wait for.
        self.ended.clone().wait_for(|ended| *ended).await.map(drop).or(Ok(()))
    }
}

#[async_trait]
impl LocalBackend for File {
    async fn marks(&self) -> Result<Vec<mark::Record>> {
        let (view, now) = (self.view()?, self.now());
        off_thread(move || listing::marks(&view, now)).await
    }

    async fn remove(&self, claims: &[(Index, Token)], marks: &[(Index, Nonce)]) -> Result<()> {
        // The cache may still answer with a removed outcome: it is true, and ends with its retention.
        let (claims, marks) = (claims.to_vec(), marks.to_vec());
        self.ask(|reply| Call::Remove { claims, marks, reply }).await
    }

    fn now(&self) -> Timestamp {
        self.shared.time.now()
    }
}

impl File {
    fn view(&self) -> Result<Arc<View>> {
        self.check_open()?;
        self.shared.require_view()
    }

    /// Gives a task to the housekeeper and waits for its result.
    async fn delegate<T>(&self, task: impl FnOnce(Reply<T>) -> Task) -> Result<T> {
        self.view()?;
        let (reply, answer) = oneshot::channel();
        self.shared.tasks.push(task(reply));
        answer.await.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, "maintaining the file ledger")))
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&View) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.delegate(|reply: Reply<T>| Task::Run(Box::new(move |view| drop(reply.send(work(view)))))).await
    }
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(
        |error| Err(Error::new(Kind::Unavailable, "reading the file ledger").caused_by(error)),
    )
}

fn warnings(dir: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let name = dir.display();
    match rustix::fs::statvfs(dir) {
        Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < SPACE_BYTES => {
            let left = disk.f_bavail.saturating_mul(disk.f_frsize) / (1024 * 1024);
            warnings.push(format!("{name}: only {left} MiB are left on the disk"));
        }
        Ok(_) => {}
        Err(error) => warnings.push(format!("{name}: cannot determine the free space ({error})")),
    }
    match std::fs::metadata(dir) {
        Ok(found) if std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o077 != 0 => {
            warnings.push(format!("{name}: other users may enter the directory; its mode should be 0700"));
        }
        Ok(_) => {}
        Err(error) => warnings.push(format!("{name}: {error}")),
    }
    warnings
}
