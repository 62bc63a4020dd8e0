//! Parts of a benchmark that need a process of their own: to be measured alone, or to be killed.
//!
//! A child prints one line when its work is done, and one for each line that it reads after that.

use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

/// A running copy of this program.
pub(crate) struct Child {
    process: tokio::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts `--child ROLE DIR KEYS`.
    pub(crate) fn start(role: &str, dir: &Path, keys: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--child", role])
            .arg(dir)
            .arg(keys.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output }
    }

    /// The numbers of the next line that it prints.
    pub(crate) async fn figures<const N: usize>(&mut self) -> [f64; N] {
        let line = self.output.next_line().await.unwrap().expect("the child failed");
        let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap_or_else(|_| panic!("unexpected figures: {line}"))
    }

    /// Asks for one more line.
    pub(crate) async fn ask<const N: usize>(&mut self) -> [f64; N] {
        self.input.write_all(b"\n").await.unwrap();
        self.figures().await
    }

    /// `kill -9`
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}

/// In a child: prints a line.
pub(crate) fn answer(figures: &[f64]) {
    let texts: Vec<String> = figures.iter().map(ToString::to_string).collect();
    println!("{}", texts.join(" "));
}

/// In a child: waits for the next question. Ends with its parent.
pub(crate) async fn wait_for_question() {
    let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    if read.await.unwrap().unwrap() == 0 {
        std::process::exit(0);
    }
}
