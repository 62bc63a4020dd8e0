//! A caller of the claim API that keeps its connection, and can lose a reply.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::support::http::{Response, connect, read_response};

pub(super) struct Caller {
    pub(super) to: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

impl Caller {
    pub(super) fn new(to: SocketAddr) -> Self {
        Self { to, connection: None }
    }

    pub(super) fn post(&mut self, path: &str, body: &Value) -> io::Result<Response> {
        self.ask("POST", path, &body.to_string())
    }

    pub(super) fn get(&mut self, path: &str) -> io::Result<Response> {
        self.ask("GET", path, "")
    }

    /// Sends a request and hangs up: whether it was carried out is for the caller to find out.
    pub(super) fn lose(&mut self, path: &str, body: &Value) {
        let _ = self.send("POST", path, &body.to_string());
        self.connection = None;
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> io::Result<Response> {
        let answer = self.send(method, path, body).and_then(read_response);
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> io::Result<&mut BufReader<TcpStream>> {
        if self.connection.is_none() {
            self.connection = Some(BufReader::new(connect(self.to)?));
        }
        let connection = self.connection.as_mut().ok_or_else(|| io::Error::other("no connection"))?;
        let fields = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n{body}");
        connection.get_mut().write_all(request.as_bytes())?;
        Ok(connection)
    }
}
