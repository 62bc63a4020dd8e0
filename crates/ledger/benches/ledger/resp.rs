//! Redis over one multiplexed connection: callers' commands are written as they come, answers return in order.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

#[derive(Default)]
struct State {
    out: Vec<u8>,
    waiting: VecDeque<oneshot::Sender<bool>>,
}

/// A connection.
#[derive(Clone)]
pub(crate) struct Redis {
    state: Arc<Mutex<State>>,
    written: Arc<Notify>,
}

impl Redis {
    /// Connects to `redis://HOST:PORT`.
    pub(crate) async fn connect(url: &str) -> Self {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let stream = TcpStream::connect(address).await.expect("ICHIDO_BENCH_REDIS_URL");
        stream.set_nodelay(true).unwrap();
        let (read, mut write) = stream.into_split();
        let redis = Self { state: Arc::default(), written: Arc::default() };
        tokio::spawn({
            let redis = redis.clone();
            async move {
                loop {
                    redis.written.notified().await;
                    let out = std::mem::take(&mut redis.state.lock().unwrap().out);
                    if !out.is_empty() {
                        write.write_all(&out).await.unwrap();
                    }
                }
            }
        });
        let state = redis.state.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::with_capacity(64 * 1024, read).lines();
            while let Some(line) = lines.next_line().await.unwrap() {
                let reply = state.lock().unwrap().waiting.pop_front().expect("an answer without a question");
                let _ = reply.send(line == "+OK");
            }
        });
        redis
    }

    /// `SET key value NX`: true for the first.
    pub(crate) async fn set_nx(&self, key: &str, value: &str) -> bool {
        let command = format!(
            "*4\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n{value}\r\n$2\r\nNX\r\n",
            key.len(),
            value.len()
        );
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.state.lock().unwrap();
            state.out.extend(command.as_bytes());
            state.waiting.push_back(reply);
        }
        self.written.notify_one();
        answer.await.unwrap()
    }
}
