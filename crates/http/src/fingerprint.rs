//! Fingerprints: tell a retry from a different request with the same key.

use ichido_core::Fingerprint;
use sha2::{Digest, Sha256};

use crate::json::Document;
use crate::key_source::KeySource;
use crate::operation::Operation;
use crate::pointer::Pointer;
use crate::rules::FingerprintRule;

/// The whole document, which a JSON fingerprint needs.
pub(crate) static WHOLE: Pointer = Pointer::whole();

/// The fingerprint of a request by its route's rule. A body that is not JSON is compared byte by byte.
pub(crate) fn of(
    rule: &FingerprintRule,
    source: &KeySource,
    operation: &Operation<'_>,
    document: Document<'_>,
    body_digest: [u8; 32],
) -> Fingerprint {
    let canonical = || {
        let FingerprintRule::Json(ignored) = rule else { return None };
        let mut value = document.take(&WHOLE)?;
        ignored.iter().for_each(|pointer| pointer.remove(&mut value));
        serde_json_canonicalizer::to_vec(&value).ok()
    };
    let (kind, digest) = match (rule, canonical()) {
        (FingerprintRule::None, _) => return Fingerprint::NONE,
        (FingerprintRule::Standard, _) if source.hashes_fields() => return Fingerprint::NONE,
        (FingerprintRule::Json(_), Some(canonical)) => ("json", Sha256::digest(canonical).into()),
        (FingerprintRule::Standard | FingerprintRule::Raw | FingerprintRule::Json(_), _) => {
            ("raw", body_digest)
        }
    };
    let [method, path_and_query] = operation.fingerprint_parts();
    Fingerprint::of([kind.as_bytes(), method, path_and_query, &digest])
}
