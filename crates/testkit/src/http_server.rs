//! An HTTP server that responds as the test says, over HTTP/1.1 and HTTP/2, in plain text or over TLS.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread::JoinHandle;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The body of a response.
pub type Body = BoxBody<Bytes, Infallible>;

/// What the server does with a request.
#[derive(Debug)]
pub enum Reply {
    /// Sends this response.
    Response(Response<Body>),
    /// Closes the connection without a response.
    Disconnect,
    /// Keeps the connection open without a response.
    NeverRespond,
}

/// A response with a status and a body.
pub fn response(status: u16, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    response
}

impl Reply {
    /// Responds with a status and a body.
    pub fn status(status: u16, body: impl Into<Bytes>) -> Self {
        Self::Response(response(status, body))
    }

    /// Responds with a status and a JSON body.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        let mut response = response(status, body.to_string());
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        Self::Response(response)
    }
}

/// What a server runs for each request.
type Handler = Arc<dyn Fn(Request<Bytes>) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync>;

/// A running server. It stops when this is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Command {
    GoDown(blocking::Sender<io::Result<()>>),
    ComeBack(blocking::Sender<io::Result<()>>),
}

impl HttpServer {
    /// Starts a server on a free port. The handler gets every request with its whole body.
    pub fn start<F, R>(handler: F) -> io::Result<Self>
    where
        F: Fn(Request<Bytes>) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        Self::start_at(ANY_PORT, handler)
    }

    /// Starts a server at this address.
    pub fn start_at<F, R>(address: SocketAddr, handler: F) -> io::Result<Self>
    where
        F: Fn(Request<Bytes>) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        Self::run(address, Encryption::None, boxed(handler))
    }

    /// Starts a server with TLS on a free port.
    #[cfg(feature = "tls")]
    pub fn start_tls<F, R>(config: Arc<rustls::ServerConfig>, handler: F) -> io::Result<Self>
    where
        F: Fn(Request<Bytes>) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        Self::run(ANY_PORT, Encryption::Tls(tokio_rustls::TlsAcceptor::from(config)), boxed(handler))
    }

    fn run(address: SocketAddr, encryption: Encryption, handler: Handler) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (commands, received) = mpsc::unbounded_channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                serve(listener, address, &encryption, &handler, received).await;
            });
        });
        Ok(Self { address, commands, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection and refuses new ones. The port stays reserved, so that no other process can take it.
    pub fn go_down(&self) -> io::Result<()> {
        self.command(Command::GoDown)
    }

    /// Listens again, on the same port.
    pub fn come_back(&self) -> io::Result<()> {
        self.command(Command::ComeBack)
    }

    fn command(&self, command: fn(blocking::Sender<io::Result<()>>) -> Command) -> io::Result<()> {
        let (done, wait) = blocking::channel();
        self.commands.send(command(done)).map_err(io::Error::other)?;
        wait.recv().map_err(io::Error::other)?
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // Without a sender of commands, the server stops.
        self.commands = mpsc::unbounded_channel().0;
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn boxed<F, R>(handler: F) -> Handler
where
    F: Fn(Request<Bytes>) -> R + Send + Sync + 'static,
    R: Future<Output = Reply> + Send + 'static,
{
    Arc::new(move |request| Box::pin(handler(request)))
}

#[derive(Clone)]
enum Encryption {
    None,
    #[cfg(feature = "tls")]
    Tls(tokio_rustls::TlsAcceptor),
}

async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    encryption: &Encryption,
    handler: &Handler,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let mut listener = Some(listener);
    // While the server is down: bound, but not listening.
    let mut reserved = None;
    let mut connections = JoinSet::new();
    loop {
        let command = tokio::select! {
            command = commands.recv() => command,
            accepted = accept(listener.as_ref()) => {
                if let Ok(stream) = accepted {
                    connections.spawn(serve_connection(stream, encryption.clone(), handler.clone()));
                }
                continue;
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (done, result) = match command {
            None => return,
            Some(Command::GoDown(done)) => {
                listener = None;
                connections.shutdown().await;
                let result = reserve(address).map(|socket| reserved = Some(socket));
                (done, result)
            }
            Some(Command::ComeBack(done)) => {
                let socket = reserved.take().map_or_else(|| reserve(address), Ok);
                let result = socket.and_then(|socket| socket.listen(1024));
                (done, result.map(|socket| listener = Some(socket)))
            }
        };
        let _ = done.send(result);
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}

fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn serve_connection(stream: TcpStream, encryption: Encryption, handler: Handler) {
    let _ = stream.set_nodelay(true);
    match encryption {
        Encryption::None => serve_stream(TokioIo::new(stream), handler).await,
        #[cfg(feature = "tls")]
        Encryption::Tls(tls) => {
            let Ok(stream) = tls.accept(stream).await else { return };
            serve_stream(TokioIo::new(stream), handler).await;
        }
    }
}

async fn serve_stream(stream: impl Read + Write + Unpin + Send + 'static, handler: Handler) {
    let service = service_fn(move |request| handle(request, handler.clone()));
    // An error of the handler closes the connection, on purpose.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await;
}

async fn handle(request: Request<Incoming>, handler: Handler) -> io::Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    match handler(Request::from_parts(head, body)).await {
        Reply::Response(response) => Ok(response),
        Reply::Disconnect => Err(io::Error::other("the handler disconnects")),
        Reply::NeverRespond => std::future::pending().await,
    }
}
