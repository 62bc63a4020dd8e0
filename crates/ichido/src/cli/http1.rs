//! One HTTP/1.1 request on a connection of its own, for probes and for the Lambda Extensions API.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ichido_core::error_chain;
use tokio::io::{AsyncRead, AsyncWrite};

const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Sends a request and reads the whole response. The caller limits the time.
pub(super) async fn exchange<I>(io: I, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, String>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(io)).await.map_err(|error| error_chain(&error))?;
    // Owns the sender: the connection ends when it is dropped.
    let exchanged = async move {
        let response = sender.send_request(request).await.map_err(|error| error_chain(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await;
        Ok(Response::from_parts(head, body.map_err(|error| error_chain(&*error))?.to_bytes()))
    };
    let (response, _closed) = tokio::join!(exchanged, connection);
    response
}
