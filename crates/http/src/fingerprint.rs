//! What tells a repeat from another request under the same key.

use http::request::Parts;
use ichido_core::Fingerprint;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::rules::FingerprintRule;
use crate::source::KeySource;

/// The fingerprint of a request by its route's rule. A body that is no JSON is compared byte by byte.
pub(crate) fn of(
    rule: &FingerprintRule,
    source: &KeySource,
    parts: &Parts,
    json: Option<Value>,
    raw: [u8; 32],
) -> Fingerprint {
    let canonical = |mut value: Value| {
        let FingerprintRule::Json(ignored) = rule else { return None };
        ignored.iter().for_each(|pointer| pointer.remove(&mut value));
        serde_json_canonicalizer::to_vec(&value).ok()
    };
    let (kind, digest) = match (rule, json.and_then(canonical)) {
        (FingerprintRule::None, _) => return Fingerprint::NONE,
        (FingerprintRule::Standard, _) if source.is_content() => return Fingerprint::NONE,
        (FingerprintRule::Json(_), Some(canonical)) => ("json", Sha256::digest(canonical).into()),
        (FingerprintRule::Standard | FingerprintRule::Raw | FingerprintRule::Json(_), _) => ("raw", raw),
    };
    let place = parts.uri.path_and_query().map_or("/", |place| place.as_str());
    Fingerprint::of([kind.as_bytes(), parts.method.as_str().as_bytes(), place.as_bytes(), &digest])
}
