//! A small HTTP/1.1 client on a plain socket: it sends exactly what the test says.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest that a test waits for a response.
const READ_TIMEOUT: Duration = crate::wait::TIMEOUT;

/// A response that has been received completely.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers; names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Whether the response is a replay.
    pub fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// The code of a problem response: the last part of its type. Checks the form of the response.
    #[track_caller]
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        let (base, code) = body["type"].as_str().unwrap().rsplit_once('/').unwrap();
        assert_eq!(body["status"], self.status, "{self:?}");
        assert!(body["title"].is_string() && body["detail"].is_string(), "{self:?}");
        let error = (body["error"]["code"].as_str(), body["error"]["message"].as_str());
        assert_eq!(error, (Some(code), body["detail"].as_str()), "{self:?}");
        if base == "/problems" {
            // Of the admin port or the meter.
            let should_retry = self.header("stripe-should-retry") == Some("true");
            assert_eq!(should_retry, self.header("retry-after").is_some() || self.status == 408, "{self:?}");
        } else {
            // Of the layer, which links to its rules.
            assert!(self.header("link").unwrap().contains("rel=\"describedby\""), "{self:?}");
        }
        code.to_owned()
    }
}

/// Sends a request and reads the response.
#[track_caller]
pub fn send(to: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
    try_send(to, method, path, headers, body).expect("a response")
}

/// Like [`send`], but a connection that is refused or cut is an error.
pub fn try_send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Response> {
    let mut stream = connect(to)?;
    stream.write_all(&head(method, path, headers, Some(body.len())))?;
    // The server may reject the request and close before it has read all of the body.
    let _ = stream.write_all(body);
    read_response(&mut BufReader::new(stream))
}

/// Sends a POST request with an idempotency key.
pub fn post(to: SocketAddr, path: &str, key: &str, body: &str) -> Response {
    send(to, "POST", path, &[("Idempotency-Key", key), ("Content-Type", "application/json")], body.as_bytes())
}

/// Sends a GET request.
#[track_caller]
pub fn get(to: SocketAddr, path: &str) -> Response {
    send(to, "GET", path, &[], b"")
}

/// Opens a connection.
pub fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The head of a request that closes its connection. Its `Host` is `localhost`, unless the headers have another one.
pub fn head(method: &str, path: &str, headers: &[(&str, &str)], length: Option<usize>) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str("Host: localhost\r\n");
    }
    if let Some(length) = length {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// Sends these bytes, and reads the response.
pub fn raw(to: SocketAddr, bytes: &[u8]) -> std::io::Result<Response> {
    let mut stream = connect(to)?;
    stream.write_all(bytes)?;
    read_response(&mut BufReader::new(stream))
}

/// Reads the head of a response.
pub fn read_head(reader: &mut impl BufRead) -> std::io::Result<Response> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(std::io::Error::other("closed without a response"));
    }
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other(format!("not a status line: {line:?}")))?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok(Response { status, headers, body: Vec::new() })
}

/// Reads a response, and skips `100 Continue`.
pub fn read_response(reader: &mut impl BufRead) -> std::io::Result<Response> {
    let mut answer = read_head(reader)?;
    while answer.status == 100 {
        answer = read_head(reader)?;
    }
    if answer.header("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = read_chunk(reader)? {
            answer.body.extend(chunk);
        }
    } else if let Some(length) = answer.header("content-length").map(|length| length.parse().unwrap()) {
        answer.body = vec![0; length];
        reader.read_exact(&mut answer.body)?;
    } else {
        reader.read_to_end(&mut answer.body)?;
    }
    Ok(answer)
}

/// Reads a chunk of a chunked body. `None`: the last one.
pub fn read_chunk(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let length = usize::from_str_radix(line.trim(), 16)
        .map_err(|_| std::io::Error::other("the response is incomplete"))?;
    let mut chunk = vec![0; length + 2];
    reader.read_exact(&mut chunk)?;
    chunk.truncate(length);
    Ok((length > 0).then_some(chunk))
}
