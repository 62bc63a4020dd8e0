//! Reads and decompresses request bodies within limits.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use ichido_serve::Problem;

use super::problem;

/// How long a body may take to arrive: it holds a permit that others wait for.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads a body of at most `max_bytes`, both compressed and decompressed.
pub(super) async fn read(headers: &HeaderMap, body: Body, max_bytes: usize) -> Result<Bytes, Problem> {
    require_json(headers)?;
    let compressed = is_compressed(headers)?;
    let body = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, max_bytes).collect()).await;
    let body =
        body.map_err(|_| problem::too_slow())?.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_large(max_bytes),
            false => problem::invalid_field(".", "the body ended early"),
        })?;
    let bytes = body.to_bytes();
    if compressed { decompress(&bytes, max_bytes) } else { Ok(bytes) }
}

/// Requires JSON. A page in a browser cannot send this content type to another origin without a preflight request.
fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    match content_type.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => Err(problem::unsupported_format("Content-Type must be application/json.")),
    }
}

fn is_compressed(headers: &HeaderMap) -> Result<bool, Problem> {
    let mut fields = headers.get_all(header::CONTENT_ENCODING).iter();
    let coding = match (fields.next(), fields.next()) {
        (None, _) => return Ok(false),
        (Some(field), None) => field.to_str().unwrap_or_default().trim(),
        (Some(_), Some(_)) => "",
    };
    match () {
        () if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") => Ok(true),
        () if coding.eq_ignore_ascii_case("identity") => Ok(false),
        () => Err(problem::unsupported_format("Content-Encoding must be gzip or absent.")),
    }
}

fn decompress(bytes: &[u8], max_bytes: usize) -> Result<Bytes, Problem> {
    let mut decompressed = Vec::with_capacity(bytes.len().saturating_mul(4).min(max_bytes));
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut decompressed);
    read.map_err(|_| problem::invalid_field(".", "the body is not valid gzip"))?;
    if decompressed.len() > max_bytes { Err(too_large(max_bytes)) } else { Ok(decompressed.into()) }
}

fn too_large(max_bytes: usize) -> Problem {
    problem::too_large(format!("A body must not exceed {max_bytes} bytes; send smaller batches."))
}
