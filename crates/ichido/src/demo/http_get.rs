//! A GET request to one of the demo's own servers.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use ichido_serve::Failure;

/// The status and the body of the response.
pub(super) async fn http_get(address: SocketAddr, path: &str) -> Result<(StatusCode, String), Failure> {
    let fail = |reason: String| Failure::internal(format!("GET http://{address}{path}: {reason}"));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let uri: Uri = format!("http://{address}{path}")
        .parse()
        .map_err(|error: http::uri::InvalidUri| fail(error.to_string()))?;
    let response = client.get(uri).await.map_err(|error| fail(error.to_string()))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| fail(error.to_string()))?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
