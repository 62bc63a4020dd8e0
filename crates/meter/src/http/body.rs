//! The body of a request: read whole, unpacked, and never longer than it may be.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::problem::Problem;

/// How long a body may take to arrive: it has a place that others wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads a body of at most `most` bytes, packed and unpacked.
pub(super) async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes, Problem> {
    must_be_json(headers)?;
    let packed = is_packed(headers)?;
    let body = tokio::time::timeout(PATIENCE, Limited::new(body, most).collect()).await;
    let body =
        body.map_err(|_| Problem::too_slow())?.map_err(|error| match error.is::<LengthLimitError>() {
            true => too_large(most),
            false => Problem::wrong(".", "the body was cut off"),
        })?;
    let bytes = body.to_bytes();
    if packed { unpack(&bytes, most) } else { Ok(bytes) }
}

/// No page in a browser can say so without being asked first.
fn must_be_json(headers: &HeaderMap) -> Result<(), Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    match kind.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => Err(Problem::unknown_form("Content-Type must be application/json.")),
    }
}

fn is_packed(headers: &HeaderMap) -> Result<bool, Problem> {
    let mut fields = headers.get_all(header::CONTENT_ENCODING).iter();
    let coding = match (fields.next(), fields.next()) {
        (None, _) => return Ok(false),
        (Some(field), None) => field.to_str().unwrap_or_default().trim(),
        (Some(_), Some(_)) => "",
    };
    match () {
        () if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") => Ok(true),
        () if coding.eq_ignore_ascii_case("identity") => Ok(false),
        () => Err(Problem::unknown_form("Content-Encoding must be gzip, or not be there.")),
    }
}

fn unpack(bytes: &[u8], most: usize) -> Result<Bytes, Problem> {
    let mut unpacked = Vec::with_capacity(bytes.len().saturating_mul(4).min(most));
    let room = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(bytes).take(room).read_to_end(&mut unpacked);
    read.map_err(|_| Problem::wrong(".", "the body is not gzip, or was cut off"))?;
    if unpacked.len() > most { Err(too_large(most)) } else { Ok(unpacked.into()) }
}

fn too_large(most: usize) -> Problem {
    Problem::too_large(format!("A body must not have more than {most} bytes; send smaller batches."))
}
