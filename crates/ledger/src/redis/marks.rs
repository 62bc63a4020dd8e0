//! Marks: a batch is one pipeline of scripts, one per key.

use ichido_core::mark::{self, Mark};
use ichido_core::rules::{self, Change};

use super::Redis;
use super::record::Reply;
use super::script::Arguments;
use super::values;
use crate::{Error, Kind, Result};

const DOING: &str = "marking events in Redis";
/// Marks in one pipeline: a bound on what is buffered, here and in the server.
const PIPELINE: usize = 1_000;

impl Redis {
    pub(super) async fn mark_events(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        let mut marks = Vec::with_capacity(requests.len());
        for chunk in requests.chunks(PIPELINE) {
            let arguments: Result<Vec<_>> =
                chunk.iter().map(|request| self.mark_arguments(request)).collect();
            // An error of one key says nothing of the others, which are marked.
            let replies = self.scripts.mark.run_all(&self.link, DOING, &arguments?).await;
            let replies = replies.map_err(Error::perhaps_done)?;
            for (request, reply) in chunk.iter().zip(replies) {
                marks.push(answer(request, &reply)?);
            }
        }
        Ok(marks)
    }

    fn mark_arguments(&self, request: &mark::Request) -> Result<Arguments> {
        Ok(Arguments { key: self.mark_name(request.key.index()), values: values::mark(request)? })
    }
}

fn answer(request: &mark::Request, reply: &Reply) -> Result<Mark> {
    if reply.written() {
        return Ok(Mark::New);
    }
    let record = reply.fields.mark()?;
    let step = rules::mark(record.as_ref(), request, reply.now);
    match step.change {
        Change::Keep => Ok(step.answer),
        // The script is one step with the reading, so this cannot be; asking again cannot hurt.
        Change::Put(_) | Change::Remove => Err(Error::new(Kind::Contended, DOING).perhaps_done()),
    }
}
