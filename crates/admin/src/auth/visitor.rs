//! Who makes a request.

use std::net::SocketAddr;
use std::sync::Arc;

use subtle::ConstantTimeEq;

use super::token::Access;

/// Who is on the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// Who makes a request, as the gate found.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// What they may do; nothing until they have signed in.
    pub access: Option<Access>,
    /// Whether there is a session to end.
    pub(crate) signed_in: bool,
    pub(super) csrf: Arc<str>,
}

impl Visitor {
    /// The word that forms carry.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }

    pub(crate) fn csrf_matches(&self, token: &str) -> bool {
        token.as_bytes().ct_eq(self.csrf.as_bytes()).into()
    }
}
