//! A webhook over TLS that responds according to a script, and records the messages.

use std::sync::{Arc, Mutex};

use http::header::{CONNECTION, HeaderValue};
use ichido_testkit::http_server::{HttpServer, Reply, response};
use ichido_testkit::wait;
use rustls::ServerConfig;

/// What it does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Response {
    /// Responds with a status and a body.
    Status(u16, &'static str),
    /// Responds with a status and a header.
    StatusWithHeader(u16, &'static str, String),
    /// Closes the connection without a response.
    Closes,
    /// Never responds.
    Hangs,
}

pub(crate) const OK: Response = Response::Status(200, "ok");

/// A running webhook. It stops when this is dropped.
pub(crate) struct Webhook {
    server: HttpServer,
    texts: Arc<Mutex<Vec<String>>>,
}

impl Webhook {
    /// Starts a webhook. After the end of the script, its last entry is repeated.
    pub(crate) fn start(tls: Arc<ServerConfig>, script: &[Response]) -> Self {
        let texts = Arc::new(Mutex::new(Vec::<String>::new()));
        let (received, script) = (texts.clone(), script.to_vec());
        let server = HttpServer::start_tls(tls, move |request| {
            let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
            let text = body["text"].as_str().unwrap().to_owned();
            let mut received = received.lock().unwrap();
            let next = &script[received.len().min(script.len() - 1)];
            received.push(text);
            std::future::ready(reply(next))
        });
        Self { server: server.unwrap(), texts }
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// The texts of all messages received, whatever the response.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap().clone()
    }

    /// Waits until this many messages were received.
    pub(crate) async fn wait_for(&self, count: usize) {
        wait::until("enough messages have arrived", || async { self.texts().len() >= count }).await;
    }
}

fn reply(next: &Response) -> Reply {
    let mut response = match next {
        Response::Status(status, body) => response(*status, *body),
        Response::StatusWithHeader(status, name, value) => {
            let mut response = response(*status, "");
            response.headers_mut().insert(*name, value.parse().unwrap());
            response
        }
        Response::Closes => return Reply::Disconnect,
        Response::Hangs => return Reply::NeverRespond,
    };
    // One request per connection, so that reused connections are noticed.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Reply::Response(response)
}
