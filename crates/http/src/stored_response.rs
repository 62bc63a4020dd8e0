//! Answers as they are kept: status, fields, trailers and body in one packed piece of memory.
//!
//! ```text
//! 00 "ia" 01 | status u16 | fields u16 | { name u16 len, bytes | value u32 len, bytes }… | trailers u16 | {…}… | body
//! ```
//!
//! Numbers are big-endian. The body of a replay is a slice of the stored piece, not a copy. What an operator wrote as
//! an outcome does not begin so, and is given back as it is, with 200.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName, HeaderValue, SET_COOKIE};
use http::response::Parts;
use http::{HeaderMap, StatusCode};

const MAGIC: [u8; 4] = [0, b'i', b'a', 1];
/// An answer that was kept.
#[derive(Clone, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The fields, without those that belong to one connection or moment.
    pub headers: HeaderMap,
    /// The trailers, if there were any.
    pub trailers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Prints the status and sizes only: fields and body may hold personal data or secrets.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, trailers, body } = self;
        let (headers, trailers, body) = (headers.len(), trailers.len(), body.len());
        write!(f, "Answer({} with {headers} fields, {trailers} trailers, {body} bytes)", status.as_u16())
    }
}

/// Stored bytes that are no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored answer cannot be read")]
pub struct Unreadable;

/// Whether caches are told to keep nothing.
pub(crate) fn is_no_store(headers: &HeaderMap) -> bool {
    let directives = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    directives
        .flat_map(|value| value.split(','))
        .any(|directive| directive.trim().eq_ignore_ascii_case("no-store"))
}

/// What is kept of an answer's fields.
fn is_kept(name: &HeaderName, keep_cookies: bool) -> bool {
    *name != DATE && *name != CONTENT_LENGTH && (keep_cookies || *name != SET_COOKIE)
}

/// Packs an answer. The fields must be free of those of the connection. `None`: a field is too long to be kept.
pub(crate) fn pack(head: &Parts, trailers: &HeaderMap, keep_cookies: bool, body: &[Bytes]) -> Option<Bytes> {
    let fields = |headers: &HeaderMap| -> usize {
        headers.iter().map(|(name, value)| 6 + name.as_str().len() + value.len()).sum()
    };
    let body_len: usize = body.iter().map(Bytes::len).sum();
    let mut packed = BytesMut::with_capacity(10 + fields(&head.headers) + fields(trailers) + body_len);
    packed.put_slice(&MAGIC);
    packed.put_u16(head.status.as_u16());
    pack_fields(&mut packed, &head.headers, keep_cookies)?;
    pack_fields(&mut packed, trailers, true)?;
    body.iter().for_each(|piece| packed.put_slice(piece));
    Some(packed.freeze())
}

fn pack_fields(packed: &mut BytesMut, headers: &HeaderMap, keep_cookies: bool) -> Option<()> {
    let count_at = packed.len();
    packed.put_u16(0);
    let mut count: u16 = 0;
    for (name, value) in headers.iter().filter(|(name, _)| is_kept(name, keep_cookies)) {
        count = count.checked_add(1)?;
        packed.put_u16(u16::try_from(name.as_str().len()).ok()?);
        packed.put_slice(name.as_str().as_bytes());
        packed.put_u32(u32::try_from(value.len()).ok()?);
        packed.put_slice(value.as_bytes());
    }
    packed[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
    Some(())
}

/// Where the body begins in a packed answer that we made ourselves a moment ago.
pub(crate) fn body_of(packed: &Bytes, body_len: usize) -> Bytes {
    packed.slice(packed.len() - body_len..)
}

impl Answer {
    /// Reads what was kept: a packed answer, or an operator's words.
    pub fn read(stored: &Bytes) -> Result<Self, Unreadable> {
        if stored.first() != Some(&MAGIC[0]) {
            return Ok(Self::of_operator(stored.clone()));
        }
        Self::unpack(stored.clone()).ok_or(Unreadable)
    }

    fn of_operator(body: Bytes) -> Self {
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok();
        let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        Self { status: StatusCode::OK, headers, trailers: HeaderMap::new(), body }
    }

    fn unpack(mut rest: Bytes) -> Option<Self> {
        if rest.len() < MAGIC.len() || rest.split_to(MAGIC.len()) != MAGIC[..] {
            return None;
        }
        let status = StatusCode::from_u16(rest.try_get_u16().ok()?).ok()?;
        let headers = unpack_fields(&mut rest)?;
        let trailers = unpack_fields(&mut rest)?;
        Some(Self { status, headers, trailers, body: rest })
    }
}

fn unpack_fields(rest: &mut Bytes) -> Option<HeaderMap> {
    let count = rest.try_get_u16().ok()?;
    // The count is only believed as far as the fields are really there.
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
        let response = Response::builder()
            .status(201)
            .header("location", "/orders/1")
            .header("etag", "\"x\"")
            .header("link", "<a>")
            .header("link", "<b>")
            .header("set-cookie", "sid=1")
            .header("date", "Sun, 06 Nov 1994 08:49:37 GMT")
            .header("content-length", "5");
        response.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_packed_answer_comes_back_without_what_belongs_to_its_moment() {
        let body = [Bytes::from_static(b"hel"), Bytes::from_static(b"lo")];
        let packed = pack(&head(), &HeaderMap::new(), false, &body).unwrap();
        assert_eq!(body_of(&packed, 5), "hello");
        let answer = Answer::read(&packed).unwrap();
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::CREATED, &b"hello"[..]));
        let links: Vec<_> = answer.headers.get_all("link").iter().collect();
        assert_eq!(links, ["<a>", "<b>"]);
        assert_eq!(
            (&answer.headers["location"], &answer.headers["etag"]),
            (&"/orders/1".parse().unwrap(), &"\"x\"".parse().unwrap())
        );
        for gone in ["date", "content-length", "set-cookie"] {
            assert!(!answer.headers.contains_key(gone), "{gone}");
        }
        let with_cookies = Answer::read(&pack(&head(), &HeaderMap::new(), true, &body).unwrap()).unwrap();
        assert_eq!(with_cookies.headers["set-cookie"], "sid=1");
    }

    #[test]
    fn debug_output_shows_sizes_only() {
        let answer =
            Answer::read(&pack(&head(), &HeaderMap::new(), true, &[Bytes::from_static(b"hello")]).unwrap());
        assert_eq!(format!("{answer:?}"), "Ok(Answer(201 with 5 fields, 0 trailers, 5 bytes))");
    }

    #[test]
    fn an_operators_words_are_an_answer() {
        let json = Answer::read(&Bytes::from_static(b"{\"id\":17}")).unwrap();
        assert_eq!(
            (json.status, &json.headers["content-type"]),
            (StatusCode::OK, &"application/json".parse().unwrap())
        );
        let text = Answer::read(&Bytes::from_static(b"placed")).unwrap();
        assert_eq!(
            (&text.body[..], &text.headers["content-type"]),
            (&b"placed"[..], &"text/plain; charset=utf-8".parse().unwrap())
        );
        assert_eq!(Answer::read(&Bytes::new()).unwrap().body, "");
    }

    proptest! {
        #[test]
        fn no_stored_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), ours: bool) {
            if ours && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&MAGIC);
            }
            let _ = Answer::read(&Bytes::from(bytes));
        }

        #[test]
        fn a_cut_answer_is_unreadable_or_shorter(cut in 1_usize..60) {
            let packed = pack(&head(), &HeaderMap::new(), true, &[Bytes::from_static(b"hello")]).unwrap();
            let whole = Answer::read(&packed).unwrap();
            if let Ok(answer) = Answer::read(&packed.slice(..packed.len() - cut)) {
                prop_assert_ne!(answer.body, whole.body);
            }
        }
    }
}
