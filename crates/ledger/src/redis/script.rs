//! Scripts: each is one atomic step on one key.

use redis::{Cmd, Script, Value};

use super::failure::Failure;
use super::link::{Answers, Link};
use super::record::Reply;
use crate::Result;

/// The scripts.
pub(super) struct Scripts {
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
        let step = |code: &str| Step::new(&format!("{}{code}", include_str!("lua/clock.lua")));
        Self {
            put: step(include_str!("lua/put.lua")),
            settle: step(include_str!("lua/settle.lua")),
            remove: step(include_str!("lua/remove.lua")),
            read: step(include_str!("lua/read.lua")),
            peek: step(include_str!("lua/peek.lua")),
            sweep: step(include_str!("lua/sweep.lua")),
            mark: step(include_str!("lua/mark.lua")),
        }
    }
}

/// One script, known to the server by its hash once it has run there.
pub(super) struct Step {
    code: String,
    hash: String,
}

/// A script's key and values.
pub(super) struct Arguments {
    pub(super) key: String,
    pub(super) values: Vec<Vec<u8>>,
}

impl Step {
    fn new(code: &str) -> Self {
        Self { code: code.to_owned(), hash: Script::new(code).get_hash().to_owned() }
    }

    /// Runs the script on one key.
    pub(super) async fn run(&self, link: &Link, doing: &'static str, arguments: &Arguments) -> Result<Reply> {
        let mut answer = link.call(&self.by_hash(arguments)).await;
        // A script that the server does not know has not run.
        if answer.as_ref().is_err_and(Failure::is_unknown_script) {
            answer = link.call(&self.by_code(arguments)).await;
        }
        reply(answer, doing)
    }

    /// Runs the script on each of many keys.
    pub(super) async fn run_all(
        &self,
        link: &Link,
        doing: &'static str,
        arguments: &[Arguments],
    ) -> Result<Vec<Reply>> {
        let mut answers = link.call_all(arguments.iter().map(|one| self.by_hash(one)).collect()).await;
        let unknown =
            |answer: &Result<Value, Failure>| answer.as_ref().is_err_and(Failure::is_unknown_script);
        if answers.iter().any(unknown) {
            let missing = arguments.iter().zip(&answers).filter(|(_, answer)| unknown(answer));
            let again = missing.map(|(one, _)| self.by_code(one)).collect();
            let mut found: std::vec::IntoIter<_> = link.call_all(again).await.into_iter();
            let fill = |answer| if unknown(&answer) { found.next().unwrap_or(answer) } else { answer };
            answers = answers.into_iter().map(fill).collect::<Answers>();
        }
        answers.into_iter().map(|answer| reply(answer, doing)).collect()
    }

    fn by_hash(&self, arguments: &Arguments) -> Cmd {
        command("EVALSHA", &self.hash, arguments)
    }

    fn by_code(&self, arguments: &Arguments) -> Cmd {
        command("EVAL", &self.code, arguments)
    }
}

fn command(name: &str, script: &str, arguments: &Arguments) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(1).arg(&arguments.key);
    for value in &arguments.values {
        command.arg(value.as_slice());
    }
    command
}

fn reply(answer: Result<Value, Failure>, doing: &'static str) -> Result<Reply> {
    let value = answer.map_err(|failure| failure.into_error(doing))?;
    // It ran, and said something that we cannot read.
    Reply::read(value).map_err(|error| Failure::sent(error.into()).into_error(doing).perhaps_done())
}
