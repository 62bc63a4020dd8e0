//! An HTTP proxy that decides on each request: forward it, respond in place of the server, or lose the response.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::http_server::{Body, HttpServer, Reply};

/// What happens to a request.
#[derive(Debug)]
pub enum Decision {
    /// The server gets the request, and the client its response.
    Forward,
    /// The server gets the request; its response is dropped and the connection closed.
    LoseResponse,
    /// The proxy responds; the server does not get the request.
    Respond(Response<Body>),
}

/// A running proxy. It stops when this is dropped.
#[derive(Debug)]
pub struct HttpProxy(HttpServer);

impl HttpProxy {
    /// Starts a proxy in front of a server.
    pub fn start(
        upstream: SocketAddr,
        decide: impl Fn(&Request<Bytes>) -> Decision + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let decide = Arc::new(decide);
        HttpServer::start(move |request| {
            let (client, decide) = (client.clone(), decide.clone());
            async move {
                let loses_response = match decide(&request) {
                    Decision::Respond(response) => return Reply::Response(response),
                    Decision::LoseResponse => true,
                    Decision::Forward => false,
                };
                match forward(request, upstream, &client).await {
                    Some(response) if !loses_response => Reply::Response(response),
                    _ => Reply::Disconnect,
                }
            }
        })
        .map(Self)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// `None` if the server cannot be reached or gives no response.
async fn forward(
    request: Request<Bytes>,
    upstream: SocketAddr,
    client: &Client<HttpConnector, Full<Bytes>>,
) -> Option<Response<Body>> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = format!("http://{upstream}{path}").parse::<Uri>().ok()?;
    head.version = http::Version::HTTP_11;
    remove_framing(&mut head.headers);
    let response = client.request(Request::from_parts(head, Full::new(body))).await.ok()?;
    let (mut head, body) = response.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    remove_framing(&mut head.headers);
    Some(Response::from_parts(head, Full::new(body).boxed()))
}

/// Bodies are forwarded in one piece, whatever their framing was.
fn remove_framing(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
}
