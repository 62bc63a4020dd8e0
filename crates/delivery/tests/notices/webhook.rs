//! A webhook over TLS that responds according to a script, and records the messages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// What it does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    /// Responds with a status line, headers and a body.
    Status(&'static str, &'static str, &'static str),
    /// Closes the connection without a response.
    Closes,
    /// Never responds.
    Hangs,
}

pub(crate) const OK: Response = Response::Status("200 OK", "", "ok");

/// A running webhook. It stops with the runtime of its test.
pub(crate) struct Webhook {
    pub(crate) port: u16,
    state: Arc<State>,
    seen: watch::Receiver<usize>,
}

struct State {
    script: Mutex<VecDeque<Response>>,
    texts: Mutex<Vec<String>>,
    count: watch::Sender<usize>,
}

impl Webhook {
    /// Starts a webhook. After the end of the script, its last entry is repeated.
    pub(crate) async fn start(tls: TlsAcceptor, script: &[Response]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (count, seen) = watch::channel(0);
        let script = Mutex::new(script.iter().cloned().collect());
        let state = Arc::new(State { script, texts: Mutex::default(), count });
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, tls.clone(), serving.clone()));
            }
        });
        Self { port, state, seen }
    }

    /// The texts of all messages received, whatever the response.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.state.texts.lock().unwrap().clone()
    }

    /// Hangs until this many messages were received.
    pub(crate) async fn wait_for(&self, count: usize) {
        let mut seen = self.seen.clone();
        let enough = seen.wait_for(|seen| *seen >= count);
        tokio::time::timeout(super::PATIENCE, enough).await.expect("messages came").unwrap();
    }
}

/// Serves one request per connection, then closes it, so that reused connections are noticed.
async fn serve(stream: TcpStream, tls: TlsAcceptor, state: Arc<State>) -> Option<()> {
    let mut stream = tls.accept(stream).await.ok()?;
    let mut bytes = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text[..end].lines().find_map(|line| line.strip_prefix("content-length: "));
            break (end + 4, length?.trim().parse::<usize>().ok()?);
        }
    };
    while bytes.len() < head + length {
        stream.read_buf(&mut bytes).await.ok()?;
    }
    let body: serde_json::Value = serde_json::from_slice(&bytes[head..]).ok()?;
    let response = {
        let mut script = state.script.lock().unwrap();
        if script.len() > 1 { script.pop_front()? } else { script.front()?.clone() }
    };
    state.texts.lock().unwrap().push(body["text"].as_str()?.to_owned());
    state.count.send_modify(|count| *count += 1);
    match response {
        Response::Status(status, fields, body) => {
            let text = format!(
                "HTTP/1.1 {status}\r\n{fields}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes()).await.ok()?;
            stream.shutdown().await.ok()
        }
        Response::Closes => None,
        Response::Hangs => std::future::pending().await,
    }
}
