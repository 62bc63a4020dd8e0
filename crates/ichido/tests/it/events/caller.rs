//! A caller of the claim API that reuses its connection and can hang up before the response.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use ichido_testkit::http_client::{Response, connect, read_response};

pub(super) struct Caller {
    pub(super) address: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

impl Caller {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    pub(super) fn post(&mut self, path: &str, body: &Value) -> io::Result<Response> {
        self.request("POST", path, &body.to_string())
    }

    pub(super) fn get(&mut self, path: &str) -> io::Result<Response> {
        self.request("GET", path, "")
    }

    /// Sends a request and hangs up, so that the caller does not know whether it was processed.
    pub(super) fn send_and_hang_up(&mut self, path: &str, body: &Value) {
        let _ = self.send("POST", path, &body.to_string());
        self.connection = None;
    }

    fn request(&mut self, method: &str, path: &str, body: &str) -> io::Result<Response> {
        let response = self.send(method, path, body).and_then(read_response);
        if response.is_err() {
            self.connection = None;
        }
        response
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> io::Result<&mut BufReader<TcpStream>> {
        if self.connection.is_none() {
            self.connection = Some(BufReader::new(connect(self.address)?));
        }
        let connection = self.connection.as_mut().ok_or_else(|| io::Error::other("no connection"))?;
        let fields = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
        let message = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n{body}");
        connection.get_mut().write_all(message.as_bytes())?;
        Ok(connection)
    }
}
