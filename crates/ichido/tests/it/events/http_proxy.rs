//! Stands before an HTTP server and decides on each request: it passes, it is answered here, or its reply is lost.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use crate::support::http::{Response, read_response};

/// What becomes of a request.
pub(super) enum Verdict {
    Pass,
    /// The server gets it; its answer is dropped, and the connection cut.
    LoseReply,
    /// The server does not get it.
    Response(Response),
}

/// A request as it came.
pub(super) struct Request {
    /// Its first line.
    pub(super) line: String,
    headers: Vec<(String, String)>,
    bytes: Vec<u8>,
}

type Judge = Arc<dyn Fn(&Request) -> Verdict + Send + Sync>;

/// Starts it on a free port, for as long as the tests run: where it listens.
pub(super) fn start(
    upstream: SocketAddr,
    judge: impl Fn(&Request) -> Verdict + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let judge: Judge = Arc::new(judge);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let judge = judge.clone();
            // Either side may hang up between two requests.
            thread::spawn(move || carry(client, upstream, &judge));
        }
    });
    address
}

fn carry(mut client: TcpStream, upstream: SocketAddr, judge: &Judge) -> io::Result<()> {
    let mut requests = BufReader::new(client.try_clone()?);
    let server = TcpStream::connect(upstream)?;
    let (mut to_server, mut answers) = (server.try_clone()?, BufReader::new(server));
    client.set_nodelay(true)?;
    to_server.set_nodelay(true)?;
    while let Some(request) = Request::read(&mut requests)? {
        let verdict = judge(&request);
        let is_lost = matches!(verdict, Verdict::LoseReply);
        let answer = match verdict {
            Verdict::Response(answer) => answer,
            Verdict::Pass | Verdict::LoseReply => {
                to_server.write_all(&request.bytes)?;
                read_response(&mut answers)?
            }
        };
        if is_lost {
            return Ok(());
        }
        client.write_all(&framed(&answer))?;
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

    /// A header's value, or nothing.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// The answer with a length of its own.
fn framed(answer: &Response) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} Carried\r\ncontent-length: {}\r\n", answer.status, answer.body.len());
    for (name, value) in &answer.headers {
        if !matches!(name.as_str(), "content-length" | "transfer-encoding" | "connection") {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str("\r\n");
    [head.into_bytes(), answer.body.clone()].concat()
}
