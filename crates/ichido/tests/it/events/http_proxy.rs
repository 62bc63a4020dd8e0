//! An HTTP proxy that decides on each request: forward it, respond without the server, or lose the response.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::support::http::{Response, read_response};

/// What happens to a request.
pub(super) enum Decision {
    Pass,
    /// The server gets the request; its response is dropped and the connection is closed.
    LoseResponse,
    /// The proxy responds; the server does not get the request.
    Response(Response),
}

/// A request as received.
pub(super) struct Request {
    /// The request line.
    pub(super) line: String,
    headers: Vec<(String, String)>,
    bytes: Vec<u8>,
}

type Decide = Arc<dyn Fn(&Request) -> Decision + Send + Sync>;

/// Starts a proxy on a free port and returns its address. It runs until the test process exits.
pub(super) fn start(
    upstream: SocketAddr,
    decide: impl Fn(&Request) -> Decision + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let decide: Decide = Arc::new(decide);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let decide = decide.clone();
            // Either side may hang up between two requests.
            thread::spawn(move || forward(client, upstream, &decide));
        }
    });
    address
}

fn forward(mut client: TcpStream, upstream: SocketAddr, decide: &Decide) -> io::Result<()> {
    let mut requests = BufReader::new(client.try_clone()?);
    let server = TcpStream::connect(upstream)?;
    let (mut to_server, mut responses) = (server.try_clone()?, BufReader::new(server));
    client.set_nodelay(true)?;
    to_server.set_nodelay(true)?;
    while let Some(request) = Request::read(&mut requests)? {
        let decision = decide(&request);
        let loses_response = matches!(decision, Decision::LoseResponse);
        let response = match decision {
            Decision::Response(response) => response,
            Decision::Pass | Decision::LoseResponse => {
                to_server.write_all(&request.bytes)?;
                read_response(&mut responses)?
            }
        };
        if loses_response {
            return Ok(());
        }
        client.write_all(&serialize(&response))?;
    }
    Ok(())
}

impl Request {
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let (mut text, mut headers) = (line.clone(), Vec::new());
        loop {
            let start = text.len();
            reader.read_line(&mut text)?;
            let Some((name, value)) = text[start..].trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = Self { line, headers, bytes: text.into_bytes() };
        let length: usize = request.header("content-length").parse().unwrap_or(0);
        let head = request.bytes.len();
        request.bytes.resize(head + length, 0);
        reader.read_exact(&mut request.bytes[head..])?;
        Ok(Some(request))
    }

    /// The value of a header, or an empty string.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// Serializes a response with a `Content-Length` that matches its body.
fn serialize(response: &Response) -> Vec<u8> {
    let mut head =
        format!("HTTP/1.1 {} Proxied\r\ncontent-length: {}\r\n", response.status, response.body.len());
    for (name, value) in &response.headers {
        if !matches!(name.as_str(), "content-length" | "transfer-encoding" | "connection") {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str("\r\n");
    [head.into_bytes(), response.body.clone()].concat()
}
