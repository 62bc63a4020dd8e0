//! A receiver over plain HTTP. It deduplicates by batch key, rejects ids that start with `bad`, and fails for `down`.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

#[derive(Default)]
struct State {
    keys: HashSet<String>,
    counts: BTreeMap<String, u32>,
}

/// Serves until the test ends.
pub(crate) struct Receiver {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State::default()));
        let kept = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = kept.clone();
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Self { port, state }
    }

    /// How often each record was counted.
    pub(crate) fn counts(&self) -> BTreeMap<String, u32> {
        self.state.lock().unwrap().counts.clone()
    }
}

/// Serves requests on one connection. `None`: the client has closed it.
fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let status = take(&serde_json::from_slice(&body).ok()?, &mut *state.lock().ok()?);
        write!(writer, "HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n").ok()?;
    }
}

fn take(body: &Value, state: &mut State) -> u16 {
    let ids: Vec<&str> = body["records"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["source_event_id"].as_str())
        .collect();
    if state.keys.contains(body["batchIdempotencyKey"].as_str().unwrap_or_default()) {
        return 409;
    }
    if ids.iter().any(|id| id.starts_with("down")) {
        return 503;
    }
    if ids.iter().any(|id| id.starts_with("bad")) {
        return 422;
    }
    state.keys.insert(body["batchIdempotencyKey"].as_str().unwrap_or_default().to_owned());
    ids.iter().for_each(|id| *state.counts.entry((*id).to_owned()).or_default() += 1);
    201
}
