//! Keys, and outcomes derived from them, for the worker and the crash test.

use ichido_core::{
    ClaimRequest, Fingerprint, Holder, InDoubtPolicy, Key, Metadata, Nonce, Outcome, SystemEntropy, Token,
};

/// The outcome of a key: 64 bytes to 16 KB derived from its text.
pub(crate) fn outcome(text: &str) -> Outcome {
    let digest = Fingerprint::of([text]);
    let times = 1 + usize::from(digest.as_bytes()[0]);
    Outcome::kept(digest.to_string().repeat(times))
}

/// A request for a key, with a fresh nonce and token.
pub(crate) fn request(text: &str, lease_ms: u64) -> ClaimRequest {
    ClaimRequest {
        key: Key::unscoped(text).expect("a short key"),
        fingerprint: Fingerprint::of([text]),
        caller: None,
        nonce: Nonce::draw(&SystemEntropy),
        token: Token::draw(&SystemEntropy),
        lease_ms,
        retention_ms: 86_400_000,
        holder: Holder::Process,
        metadata: Metadata::default(),
        in_doubt: InDoubtPolicy::Reject,
    }
}
