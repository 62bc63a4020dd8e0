//! Lua scripts: each is one atomic step on one key.

use redis::{Arg, Cmd, Pipeline, Script, Value};

use super::connection::Connection;
use super::error::{Answers, CallError};
use super::record::Reply;
use crate::Result;

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
}

impl Scripts {
    pub(super) fn new() -> Self {
        let script =
            |code: &[&str]| LuaScript::new(include_str!("lua/clock.lua").to_owned() + &code.concat());
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
        }
    }
}

/// One script. The server knows it by its hash once it has run there.
pub(super) struct LuaScript {
    code: String,
    hash: String,
}

impl LuaScript {
    fn new(code: String) -> Self {
        let hash = Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// Runs the script on one key, by its hash. The caller adds at most five arguments of `bytes` bytes in total.
    pub(super) fn command(&self, key: &str, bytes: usize) -> Cmd {
        let mut command = Cmd::with_capacity(4 + 5, 64 + key.len() + bytes);
        command.arg("EVALSHA").arg(&self.hash).arg(1).arg(key);
        command
    }

    /// Runs the script.
    pub(super) async fn run(
        &self,
        connection: &Connection,
        doing: &'static str,
        command: &Cmd,
    ) -> Result<Reply> {
        let mut answer = connection.call(command).await;
        // A script that the server does not know has not run.
        if answer.as_ref().is_err_and(CallError::is_unknown_script) {
            answer = connection.call(&self.with_source(command)).await;
        }
        reply(answer, doing)
    }

    /// Runs the script on each of many keys.
    pub(super) async fn run_all(
        &self,
        connection: &Connection,
        doing: &'static str,
        commands: &Pipeline,
    ) -> Result<Vec<Reply>> {
        let mut answers = connection.call_all(commands).await;
        let unknown =
            |answer: &Result<Value, CallError>| answer.as_ref().is_err_and(CallError::is_unknown_script);
        if answers.iter().any(unknown) {
            let missing = commands.cmd_iter().zip(&answers).filter(|(_, answer)| unknown(answer));
            let again = pipeline(missing.map(|(command, _)| self.with_source(command)));
            let mut found: std::vec::IntoIter<_> = connection.call_all(&again).await.into_iter();
            let fill = |answer| if unknown(&answer) { found.next().unwrap_or(answer) } else { answer };
            answers = answers.into_iter().map(fill).collect::<Answers>();
        }
        answers.into_iter().map(|answer| reply(answer, doing)).collect()
    }

    /// The same command, with the script's source instead of its hash.
    fn with_source(&self, command: &Cmd) -> Cmd {
        let mut again = redis::cmd("EVAL");
        again.arg(&self.code);
        for argument in command.args_iter().skip(2) {
            if let Arg::Simple(bytes) = argument {
                again.arg(bytes);
            }
        }
        again
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
