//! Who sends a request.

use std::net::SocketAddr;
use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::token::Access;

/// The address of the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub SocketAddr);

/// Who sends a request, as the gate found.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// `None` until the visitor has signed in.
    pub access: Option<Access>,
    /// Whether there is a session to sign out of.
    pub(crate) signed_in: bool,
    pub(super) csrf: Arc<str>,
}

impl Visitor {
    /// The token that every form must send back.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }

    pub(crate) fn csrf_matches(&self, token: &str) -> bool {
        token.as_bytes().ct_eq(self.csrf.as_bytes()).into()
    }
}
