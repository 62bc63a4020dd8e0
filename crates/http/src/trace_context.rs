//! The trace that a request belongs to: the headers `traceparent` and `tracestate` of W3C Trace Context.

use http::{HeaderMap, HeaderName, HeaderValue};
use ichido_core::to_hex;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of `traceparent` in version 00. Later versions may only append to it.
const LEN: usize = 55;
const SAMPLED: u8 = 1;

/// A position in a trace: the span that a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Identifies the trace.
    pub trace_id: [u8; 16],
    /// Identifies the span.
    pub span_id: [u8; 8],
    /// Whether the spans of this trace are recorded.
    pub is_sampled: bool,
}

impl TraceContext {
    /// The context that the headers name. A header that is invalid, or there twice, names none.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let line = lines.next()?;
        match lines.next() {
            None => Self::parse(line.as_bytes()),
            Some(_) => None,
        }
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let (known, rest) = text.split_at_checked(LEN)?;
        let is_separated = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        let [version] = bytes(&known[..2])?;
        let is_complete =
            if version == 0 { rest.is_empty() } else { matches!(rest.first(), None | Some(b'-')) };
        if !is_separated || !is_complete || version == 0xff {
            return None;
        }
        let (trace_id, span_id) = (bytes(&known[3..35])?, bytes(&known[36..52])?);
        let [flags] = bytes(&known[53..])?;
        let is_named = trace_id != [0; 16] && span_id != [0; 8];
        is_named.then_some(Self { trace_id, span_id, is_sampled: flags & SAMPLED != 0 })
    }

    /// The trace id in hexadecimal digits, as logs and tracing tools show it.
    pub fn trace_id_text(&self) -> String {
        to_hex(&self.trace_id)
    }

    /// Makes this context the one that a request comes from.
    pub(crate) fn set(&self, headers: &mut HeaderMap) {
        let flags = if self.is_sampled { "01" } else { "00" };
        let text = format!("00-{}-{}-{flags}", to_hex(&self.trace_id), to_hex(&self.span_id));
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(TRACEPARENT, value);
        }
    }
}

/// Bytes in lower-case hexadecimal digits. Upper case is invalid here.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let is_lower = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (is_lower && hex::decode_to_slice(digits, &mut bytes).is_ok()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn of(lines: &[&str]) -> Option<TraceContext> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(TRACEPARENT, line.parse().unwrap());
        }
        TraceContext::of(&headers)
    }

    #[test]
    fn a_valid_header_survives_a_round_trip() {
        let context = of(&[VALID]).unwrap();
        assert_eq!(context.trace_id_text(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((to_hex(&context.span_id).as_str(), context.is_sampled), ("b7ad6b7169203331", true));
        let mut headers = HeaderMap::new();
        context.set(&mut headers);
        assert_eq!(headers[TRACEPARENT], VALID);
        assert!(!of(&[&VALID.replace("-01", "-00")]).unwrap().is_sampled);
        assert!(of(&[&VALID.replace("-01", "-03")]).unwrap().is_sampled);
    }

    /// What a later version appends is ignored.
    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = VALID.replacen("00", "cc", 1);
        for text in [later.clone(), format!("{later}-"), format!("{later}-what-the-future-brings")] {
            assert!(of(&[&text]).is_some(), "{text}");
        }
        assert_eq!(of(&[&format!("{later}.x")]), None);
    }

    #[test]
    fn an_invalid_header_names_no_context() {
        let changed = |from: &str, to: &str| VALID.replacen(from, to, 1);
        for text in [
            String::new(),
            changed("00-", "ff-"),
            changed("00-", "0-"),
            changed("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            changed("b7ad6b7169203331", "0000000000000000"),
            changed("0af7", "0AF7"),
            changed("0af7", "0ag7"),
            changed("-b7", "_b7"),
            VALID[..LEN - 1].to_owned(),
            format!("{VALID}-"),
            format!("{VALID}0"),
            format!(" {VALID}"),
        ] {
            assert_eq!(of(&[&text]), None, "{text}");
        }
        assert_eq!(of(&[VALID, VALID]), None);
        assert_eq!(of(&[]), None);
    }
}
