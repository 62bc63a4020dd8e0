//! Lua scripts: each is one atomic step on one key.
//!
//! On a single server, calls of one script that wait at the same time are sent as one script that runs each of them. It
//! takes the server less time, and one sync of its log instead of many. In a cluster, keys are on different servers, and
//! each call is a script of its own.

use std::sync::Arc;

use ichido_core::Index;
use redis::{Arg, Cmd, Pipeline, Script, Value};

use super::connection::Connection;
use super::error::{Answers, CallError};
use super::record::Reply;
use crate::Result;
use crate::coalesce::{Batch, Coalescer};

/// All scripts.
pub(super) struct Scripts {
    pub(super) grant: LuaScript,
    pub(super) put: LuaScript,
    pub(super) settle: LuaScript,
    pub(super) remove: LuaScript,
    pub(super) read: LuaScript,
    pub(super) list: LuaScript,
    pub(super) sweep: LuaScript,
    pub(super) mark: LuaScript,
    pub(super) forget_mark: LuaScript,
    pub(super) erase_mark: LuaScript,
}

impl Scripts {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        let script = |body: &[&str]| LuaScript::new(connection, &body.concat());
        let (compare, claim_head) = (include_str!("lua/compare.lua"), include_str!("lua/claim_head.lua"));
        Self {
            grant: script(&[compare, include_str!("lua/grant.lua")]),
            put: script(&[compare, include_str!("lua/put.lua")]),
            settle: script(&[include_str!("lua/settle.lua")]),
            remove: script(&[include_str!("lua/remove.lua")]),
            read: script(&[include_str!("lua/read.lua")]),
            list: script(&[claim_head, include_str!("lua/list.lua")]),
            sweep: script(&[claim_head, include_str!("lua/sweep.lua")]),
            mark: script(&[include_str!("lua/mark.lua")]),
            forget_mark: script(&[include_str!("lua/forget_mark.lua")]),
            erase_mark: script(&[include_str!("lua/erase_mark.lua")]),
        }
    }
}

/// Lua that the server knows by its hash once it has run there.
struct Code {
    source: String,
    hash: String,
}

impl Code {
    fn new(parts: &[&str]) -> Self {
        let source = [&[include_str!("lua/clock.lua")], parts].concat().concat();
        let hash = Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    async fn run(&self, connection: &Connection, command: &Cmd) -> Result<Value, CallError> {
        let answer = connection.call(command).await;
        // A script that the server does not know has not run.
        if answer.as_ref().is_err_and(CallError::is_unknown_script) {
            return connection.call(&self.with_source(command)).await;
        }
        answer
    }

    /// The same command, with the source instead of the hash.
    fn with_source(&self, command: &Cmd) -> Cmd {
        let mut again = redis::cmd("EVAL");
        again.arg(&self.source);
        for argument in arguments(command).skip(2) {
            again.arg(argument);
        }
        again
    }
}

/// The words of a command.
fn arguments(command: &Cmd) -> impl Iterator<Item = &[u8]> {
    command
        .args_iter()
        .filter_map(|argument| if let Arg::Simple(bytes) = argument { Some(bytes) } else { None })
}

/// One script: an atomic step on one key.
pub(super) struct LuaScript {
    connection: Arc<Connection>,
    code: Arc<Code>,
    /// `None` for a cluster: a script may use only keys of one slot.
    together: Option<Coalescer<Together>>,
}

impl LuaScript {
    fn new(connection: &Arc<Connection>, body: &str) -> Self {
        let code = Arc::new(Code::new(&[body]));
        let together = connection.is_single().then(|| {
            let each =
                Code::new(&["local function run(KEYS, ARGV)\n", body, "end\n", include_str!("lua/each.lua")]);
            Coalescer::new(Together { connection: connection.clone(), code: code.clone(), each })
        });
        Self { connection: connection.clone(), code, together }
    }

    /// Runs the script on one key, by its hash. The caller adds at most five arguments of `bytes` bytes in total.
    pub(super) fn command(&self, key: &str, bytes: usize) -> Cmd {
        let mut command = Cmd::with_capacity(4 + 5, 64 + key.len() + bytes);
        command.arg("EVALSHA").arg(&self.code.hash).arg(1).arg(key);
        command
    }

    /// Runs the script, together with calls of others that wait at the same time.
    pub(super) async fn run(&self, doing: &'static str, command: Cmd) -> Result<Reply> {
        match &self.together {
            Some(together) => together.call(Call { command, doing }).await,
            None => reply(self.code.run(&self.connection, &command).await, doing),
        }
    }

    /// Runs the script on each of many keys.
    pub(super) async fn run_all(&self, doing: &'static str, commands: &Pipeline) -> Result<Vec<Reply>> {
        let mut answers = self.connection.call_all(commands).await;
        let unknown =
            |answer: &Result<Value, CallError>| answer.as_ref().is_err_and(CallError::is_unknown_script);
        if answers.iter().any(unknown) {
            let missing = commands.cmd_iter().zip(&answers).filter(|(_, answer)| unknown(answer));
            let again = pipeline(missing.map(|(command, _)| self.code.with_source(command)));
            let mut found: std::vec::IntoIter<_> = self.connection.call_all(&again).await.into_iter();
            let fill = |answer| if unknown(&answer) { found.next().unwrap_or(answer) } else { answer };
            answers = answers.into_iter().map(fill).collect::<Answers>();
        }
        answers.into_iter().map(|answer| reply(answer, doing)).collect()
    }
}

/// A call of a script.
struct Call {
    command: Cmd,
    doing: &'static str,
}

/// Calls of one script on a single server, which runs them in their order.
struct Together {
    connection: Arc<Connection>,
    code: Arc<Code>,
    /// Runs the script for each of many keys.
    each: Code,
}

impl Together {
    fn combine(&self, calls: &[Call]) -> Cmd {
        const KEY: usize = 3;
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.each.hash).arg(calls.len());
        for key in calls.iter().filter_map(|call| arguments(&call.command).nth(KEY)) {
            command.arg(key);
        }
        for call in calls {
            let own = || arguments(&call.command).skip(KEY + 1);
            command.arg(own().count());
            for argument in own() {
                command.arg(argument);
            }
        }
        command
    }
}

impl Batch for Together {
    type Call = Call;
    type Answer = Reply;

    /// Other clients of the server wait while it runs a script: about a millisecond for this many.
    const CALLS_MAX: usize = 128;
    /// Two batches at a time are no slower.
    const MANY: usize = usize::MAX;

    fn exclusive_key(_: &Call) -> Option<Index> {
        None
    }

    fn bytes(call: &Call) -> usize {
        arguments(&call.command).map(<[u8]>::len).sum()
    }

    async fn send(&self, calls: &[Call]) -> Result<Vec<Result<Reply>>> {
        if let [call] = calls {
            return Ok(vec![reply(self.code.run(&self.connection, &call.command).await, call.doing)]);
        }
        let answers = match self.each.run(&self.connection, &self.combine(calls)).await {
            Ok(Value::Array(values)) => values.into_iter().map(Ok).collect(),
            Ok(other) => vec![Ok(other); calls.len()],
            Err(failure) => vec![Err(failure); calls.len()],
        };
        let replies = calls.iter().zip(answers).map(|(call, answer): (_, Result<Value, CallError>)| {
            reply(answer.and_then(|value| value.extract_error().map_err(CallError::sent)), call.doing)
        });
        Ok(replies.collect())
    }
}

/// Combines commands into one pipeline.
pub(super) fn pipeline(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.size_hint().0);
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

fn reply(answer: Result<Value, CallError>, doing: &'static str) -> Result<Reply> {
    let value = answer.map_err(|failure| failure.into_error(doing))?;
    // The script ran, but its reply is unreadable.
    Reply::read(value).map_err(|error| CallError::sent(error.into()).into_error(doing).with_unknown_effect())
}
