//! Marks: a batch is one pipeline of scripts, one per key.

use ichido_core::mark::{self, Erased, Forgotten, Mark};
use ichido_core::rules::{self, Change, Decision};
use ichido_core::{MarkKey, Nonce, Timestamp};
use redis::Cmd;

use super::record::Reply;
use super::store::Redis;
use super::{scripts, values};
use crate::{Error, Kind, Result};

const DOING: &str = "marking events in Redis";
/// Marks per pipeline: bounds what is buffered, here and in the server.
const PIPELINE: usize = 1_000;

impl Redis {
    pub(super) async fn mark_events(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        if let [request] = requests {
            let reply = self.scripts.mark.run(DOING, self.marking(request)?).await?;
            return Ok(vec![answer(request, &reply)?]);
        }
        let mut marks = Vec::with_capacity(requests.len());
        for chunk in requests.chunks(PIPELINE) {
            let commands: Result<Vec<_>> = chunk.iter().map(|request| self.marking(request)).collect();
            let commands = scripts::pipeline(commands?.into_iter());
            // If one key fails, the others are marked all the same.
            let replies = self.scripts.mark.run_all(DOING, &commands).await;
            let replies = replies.map_err(Error::with_unknown_effect)?;
            for (request, reply) in chunk.iter().zip(replies) {
                marks.push(answer(request, &reply).map_err(Error::with_unknown_effect)?);
            }
        }
        Ok(marks)
    }

    pub(super) async fn read_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        let reply = self.read_mark_value(key, "reading a mark from Redis").await?;
        Ok(reply.mark()?.filter(|record| reply.now < record.expires_at))
    }

    /// Removes the mark that was seen.
    pub(super) async fn remove_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        const DOING: &str = "forgetting a mark in Redis";
        self.change_mark(seen, DOING, rules::forget_mark).await
    }

    /// Erases what callers wrote in the mark that was seen.
    pub(super) async fn erase_marked(&self, seen: &mark::Record) -> Result<Erased> {
        const DOING: &str = "erasing a mark in Redis";
        self.change_mark(seen, DOING, rules::erase_mark).await
    }

    /// Reads the mark, and changes it if it has not changed since. If it has, it is read once more: by then it is another
    /// mark, or gone.
    async fn change_mark<A>(
        &self,
        seen: &mark::Record,
        doing: &'static str,
        decide: fn(Option<&mark::Record>, Nonce, Timestamp) -> Decision<A, mark::Record>,
    ) -> Result<A> {
        let name = self.mark_name(seen.key.index());
        for _ in 0..2 {
            let reply = self.read_mark_value(&seen.key, doing).await?;
            let decision = decide(reply.mark()?.as_ref(), seen.nonce, reply.now);
            let (script, new) = match &decision.change {
                Change::Keep => return Ok(decision.result),
                Change::Remove => (&self.scripts.forget_mark, None),
                Change::Put(record) => {
                    (&self.scripts.erase_mark, Some((values::stored_mark(record)?, record.expires_at.0)))
                }
            };
            let mut command = script.command(&name, 2 * reply.value().len() + 128);
            command.arg(reply.value());
            if let Some((value, expires_at)) = new {
                command.arg(value).arg(expires_at);
            }
            if script.run(doing, command).await?.succeeded() {
                return Ok(decision.result);
            }
        }
        Err(Error::new(Kind::Contended, doing))
    }

    async fn read_mark_value(&self, key: &MarkKey, doing: &'static str) -> Result<Reply> {
        let command = self.scripts.read.command(&self.mark_name(key.index()), 0);
        self.scripts.read.run(doing, command).await
    }

    fn marking(&self, request: &mark::Request) -> Result<Cmd> {
        let mut command = self.scripts.mark.command(&self.mark_name(request.key.index()), 256);
        values::mark(&mut command, request)?;
        Ok(command)
    }
}

fn answer(request: &mark::Request, reply: &Reply) -> Result<Mark> {
    if reply.succeeded() {
        return Ok(Mark::New);
    }
    let record = reply.mark()?;
    let decision = rules::mark(record.as_ref(), request, reply.now);
    match decision.change {
        Change::Keep => Ok(decision.result),
        // Cannot happen, because the script reads and writes in one step. A retry does no harm.
        Change::Put(_) | Change::Remove => Err(Error::new(Kind::Contended, DOING)),
    }
}
