//! Stored responses: status, headers, trailers and body, packed into one buffer.
//!
//! ```text
//! 00 "ia" 01 | status u16 | headers u16 | { name u16 len, bytes | value u32 len, bytes }… | trailers u16 | {…}… | body
//! ```
//!
//! Numbers are big-endian. The body of a replay is a slice of the buffer, not a copy. An outcome that an operator entered
//! has no such prefix, and is replayed as it is, with status 200.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName, HeaderValue, SET_COOKIE};
use http::response::Parts;
use http::{HeaderMap, StatusCode};

const MAGIC: [u8; 4] = [0, b'i', b'a', 1];
/// A response in the ledger, for replay.
#[derive(Clone, PartialEq)]
pub struct StoredResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers, without those that belong to one connection or one moment.
    pub headers: HeaderMap,
    /// The trailers, if there were any.
    pub trailers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Prints the status and sizes only: headers and body may contain personal data or secrets.
impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, trailers, body } = self;
        let (headers, trailers, body) = (headers.len(), trailers.len(), body.len());
        write!(f, "StoredResponse({}, {headers} headers, {trailers} trailers, {body} bytes)", status.as_u16())
    }
}

/// Stored bytes that are not a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored response cannot be read")]
pub struct UnreadableResponse;

/// Whether `Cache-Control` contains `no-store`.
pub(crate) fn is_no_store(headers: &HeaderMap) -> bool {
    let directives = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    directives
        .flat_map(|value| value.split(','))
        .any(|directive| directive.trim().eq_ignore_ascii_case("no-store"))
}

/// Whether a header of a response is stored.
fn is_stored(name: &HeaderName, keep_cookies: bool) -> bool {
    *name != DATE && *name != CONTENT_LENGTH && (keep_cookies || *name != SET_COOKIE)
}

/// Packs a response, whose headers must not include hop-by-hop headers. `None` if a header is too long to store.
pub(crate) fn pack(head: &Parts, trailers: &HeaderMap, keep_cookies: bool, body: &[Bytes]) -> Option<Bytes> {
    let packed_len = |headers: &HeaderMap| -> usize {
        headers.iter().map(|(name, value)| 6 + name.as_str().len() + value.len()).sum()
    };
    let body_len: usize = body.iter().map(Bytes::len).sum();
    let mut packed =
        BytesMut::with_capacity(10 + packed_len(&head.headers) + packed_len(trailers) + body_len);
    packed.put_slice(&MAGIC);
    packed.put_u16(head.status.as_u16());
    pack_headers(&mut packed, &head.headers, keep_cookies)?;
    pack_headers(&mut packed, trailers, true)?;
    body.iter().for_each(|chunk| packed.put_slice(chunk));
    Some(packed.freeze())
}

fn pack_headers(packed: &mut BytesMut, headers: &HeaderMap, keep_cookies: bool) -> Option<()> {
    let count_at = packed.len();
    packed.put_u16(0);
    let mut count: u16 = 0;
    for (name, value) in headers.iter().filter(|(name, _)| is_stored(name, keep_cookies)) {
        count = count.checked_add(1)?;
        packed.put_u16(u16::try_from(name.as_str().len()).ok()?);
        packed.put_slice(name.as_str().as_bytes());
        packed.put_u32(u32::try_from(value.len()).ok()?);
        packed.put_slice(value.as_bytes());
    }
    packed[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    Some(())
}

/// The body inside a response that was just packed.
pub(crate) fn body_of(packed: &Bytes, body_len: usize) -> Bytes {
    packed.slice(packed.len() - body_len..)
}

impl StoredResponse {
    /// Reads a packed response, or an outcome that an operator entered.
    pub fn read(stored: &Bytes) -> Result<Self, UnreadableResponse> {
        if stored.first() != Some(&MAGIC[0]) {
            return Ok(Self::from_operator(stored.clone()));
        }
        Self::unpack(stored.clone()).ok_or(UnreadableResponse)
    }

    fn from_operator(body: Bytes) -> Self {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        let content_type = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]);
        Self { status: StatusCode::OK, headers, trailers: HeaderMap::new(), body }
    }

    fn unpack(mut rest: Bytes) -> Option<Self> {
        if rest.len() < MAGIC.len() || rest.split_to(MAGIC.len()) != MAGIC[..] {
            return None;
        }
        let status = StatusCode::from_u16(rest.try_get_u16().ok()?).ok()?;
        let headers = unpack_headers(&mut rest)?;
        let trailers = unpack_headers(&mut rest)?;
        Some(Self { status, headers, trailers, body: rest })
    }
}

fn unpack_headers(rest: &mut Bytes) -> Option<HeaderMap> {
    let count = rest.try_get_u16().ok()?;
    // The count may be wrong, so it does not decide how much memory is reserved.
    let mut headers = HeaderMap::with_capacity(usize::from(count.min(64)) + 2);
    for _ in 0..count {
        let len = usize::from(rest.try_get_u16().ok()?);
        let name = HeaderName::from_bytes(&take(rest, len)?).ok()?;
        let len = usize::try_from(rest.try_get_u32().ok()?).ok()?;
        headers.try_append(name, HeaderValue::from_maybe_shared(take(rest, len)?).ok()?).ok()?;
    }
    Some(headers)
}

fn take(rest: &mut Bytes, len: usize) -> Option<Bytes> {
    (len <= rest.len()).then(|| rest.split_to(len))
}

#[cfg(test)]
mod tests {
    use http::Response;
    use proptest::prelude::*;

    use super::*;

    fn head() -> Parts {
        let builder = Response::builder()
            .status(201)
            .header("location", "/orders/1")
            .header("etag", "\"x\"")
            .header("link", "<a>")
            .header("link", "<b>")
            .header("set-cookie", "sid=1")
            .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
            .header("content-length", "5");
        builder.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_packed_response_is_read_back_without_date_length_and_cookies() {
        let body = [Bytes::from_static(b"hel"), Bytes::from_static(b"lo")];
        let packed = pack(&head(), &HeaderMap::new(), false, &body).unwrap();
        assert_eq!(body_of(&packed, 5), "hello");
        let response = StoredResponse::read(&packed).unwrap();
        assert_eq!((response.status, &response.body[..]), (StatusCode::CREATED, &b"hello"[..]));
        let links: Vec<_> = response.headers.get_all("link").iter().collect();
        assert_eq!(links, ["<a>", "<b>"]);
        assert_eq!(
            (&response.headers["location"], &response.headers["etag"]),
            (&"/orders/1".parse().unwrap(), &"\"x\"".parse().unwrap())
        );
        for gone in ["date", "content-length", "set-cookie"] {
            assert!(!response.headers.contains_key(gone), "{gone}");
        }
        let with_cookies =
            StoredResponse::read(&pack(&head(), &HeaderMap::new(), true, &body).unwrap()).unwrap();
        assert_eq!(with_cookies.headers["set-cookie"], "sid=1");
    }

    #[test]
    fn debug_output_shows_sizes_only() {
        let response = StoredResponse::read(
            &pack(&head(), &HeaderMap::new(), true, &[Bytes::from_static(b"hello")]).unwrap(),
        );
        assert_eq!(format!("{response:?}"), "Ok(StoredResponse(201, 5 headers, 0 trailers, 5 bytes))");
    }

    #[test]
    fn an_outcome_from_an_operator_is_a_response() {
        let json = StoredResponse::read(&Bytes::from_static(b"{\"id\":17}")).unwrap();
        assert_eq!(
            (json.status, &json.headers["content-type"]),
            (StatusCode::OK, &"application/json".parse().unwrap())
        );
        let text = StoredResponse::read(&Bytes::from_static(b"placed")).unwrap();
        assert_eq!(
            (&text.body[..], &text.headers["content-type"]),
            (&b"placed"[..], &"text/plain; charset=utf-8".parse().unwrap())
        );
        assert_eq!(StoredResponse::read(&Bytes::new()).unwrap().body, "");
    }

    proptest! {
        #[test]
        fn arbitrary_stored_bytes_do_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), ours: bool) {
            if ours && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            let _ = StoredResponse::read(&Bytes::from(bytes));
        }

        #[test]
        fn a_truncated_response_is_unreadable_or_shorter(cut in 1_usize..60) {
            let packed = pack(&head(), &HeaderMap::new(), true, &[Bytes::from_static(b"hello")]).unwrap();
            let whole = StoredResponse::read(&packed).unwrap();
            if let Ok(response) = StoredResponse::read(&packed.slice(..packed.len() - cut)) {
                prop_assert_ne!(response.body, whole.body);
            }
        }
    }
}
