//! Scripts: each is one atomic step on one key.

use redis::{Arg, Cmd, Pipeline, Script, Value};

use super::connection::Link;
use super::error::{Answers, Failure};
use super::record::Reply;
use crate::Result;

/// The scripts.
pub(super) struct Scripts {
    pub(super) grant: Step,
    pub(super) put: Step,
    pub(super) settle: Step,
    pub(super) remove: Step,
    pub(super) read: Step,
    pub(super) peek: Step,
    pub(super) sweep: Step,
    pub(super) mark: Step,
}

impl Scripts {
    pub(super) fn new() -> Self {
        let step = |code: &[&str]| Step::new(include_str!("lua/clock.lua").to_owned() + &code.concat());
        let (same, glance) = (include_str!("lua/compare.lua"), include_str!("lua/claim_head.lua"));
        Self {
            grant: step(&[same, include_str!("lua/grant.lua")]),
            put: step(&[same, include_str!("lua/put.lua")]),
            settle: step(&[include_str!("lua/settle.lua")]),
            remove: step(&[include_str!("lua/remove.lua")]),
            read: step(&[include_str!("lua/read.lua")]),
            peek: step(&[glance, include_str!("lua/list.lua")]),
            sweep: step(&[glance, include_str!("lua/sweep.lua")]),
            mark: step(&[include_str!("lua/mark.lua")]),
        }
    }
}

/// One script, known to the server by its hash once it has run there.
pub(super) struct Step {
    code: String,
    hash: String,
}

impl Step {
    fn new(code: String) -> Self {
        let hash = Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// The script on one key, by its hash. The caller adds values, at most five, of so many bytes.
    pub(super) fn on(&self, key: &str, bytes: usize) -> Cmd {
        let mut command = Cmd::with_capacity(4 + 5, 64 + key.len() + bytes);
        command.arg("EVALSHA").arg(&self.hash).arg(1).arg(key);
        command
    }

    /// Runs the script.
    pub(super) async fn run(&self, link: &Link, doing: &'static str, command: &Cmd) -> Result<Reply> {
        let mut answer = link.call(command).await;
        // A script that the server does not know has not run.
        if answer.as_ref().is_err_and(Failure::is_unknown_script) {
            answer = link.call(&self.by_code(command)).await;
        }
        reply(answer, doing)
    }

    /// Runs the script on each of many keys.
    pub(super) async fn run_all(
        &self,
        link: &Link,
        doing: &'static str,
        commands: &Pipeline,
    ) -> Result<Vec<Reply>> {
        let mut answers = link.call_all(commands).await;
        let unknown =
            |answer: &Result<Value, Failure>| answer.as_ref().is_err_and(Failure::is_unknown_script);
        if answers.iter().any(unknown) {
            let missing = commands.cmd_iter().zip(&answers).filter(|(_, answer)| unknown(answer));
            let again = pipeline(missing.map(|(command, _)| self.by_code(command)));
            let mut found: std::vec::IntoIter<_> = link.call_all(&again).await.into_iter();
            let fill = |answer| if unknown(&answer) { found.next().unwrap_or(answer) } else { answer };
            answers = answers.into_iter().map(fill).collect::<Answers>();
        }
        answers.into_iter().map(|answer| reply(answer, doing)).collect()
    }

    /// The same command, with the script itself in place of its hash.
    fn by_code(&self, command: &Cmd) -> Cmd {
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

/// Commands that travel together.
pub(super) fn pipeline(commands: impl Iterator<Item = Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.size_hint().0);
    for command in commands {
        pipeline.add_command(command);
    }
    pipeline
}

fn reply(answer: Result<Value, Failure>, doing: &'static str) -> Result<Reply> {
    let value = answer.map_err(|failure| failure.into_error(doing))?;
    // It ran, and said something that we cannot read.
    Reply::read(value).map_err(|error| Failure::sent(error.into()).into_error(doing).perhaps_done())
}
