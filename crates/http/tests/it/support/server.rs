//! A real HTTP server for an instance, and clients that connect to it.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower_service::Service;

use super::Instance;

/// An instance behind a listening socket.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(instance: &Instance) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = instance.service.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| service.clone().call(request));
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, accepting }
    }

    /// A TCP connection, for raw bytes.
    pub(crate) async fn connect_raw(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// An HTTP/1.1 client.
    pub(crate) async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(self.connect_raw().await);
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    /// An HTTP/2 client.
    pub(crate) async fn connect_h2(&self) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
        let stream = TokioIo::new(self.connect_raw().await);
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    pub(crate) fn order(key: &str) -> Request<Full<Bytes>> {
        Request::post("/orders")
            .header("host", "here")
            .header("idempotency-key", format!("\"{key}\""))
            .body(Full::from("{\"item\":1}"))
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
