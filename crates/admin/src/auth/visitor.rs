//! Who sends a request.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use subtle::ConstantTimeEq;

use super::token::Access;
use crate::audit_log::{Actor, Via};

/// The address of the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub SocketAddr);

/// Who sends a request, as the gate found.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// `None` until the visitor has signed in.
    pub access: Option<Access>,
    /// The name of the visitor's token, or of the proxy's user.
    pub(crate) name: Arc<str>,
    /// What the name is.
    pub(crate) via: Via,
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

    /// The name, if it is somebody's.
    pub(crate) fn known_name(&self) -> Option<&str> {
        self.access.filter(|_| self.via != Via::Open).map(|_| &*self.name)
    }

    /// Whether there is a session to sign out of.
    pub(crate) fn has_session(&self) -> bool {
        self.via == Via::Session
    }

    /// The visitor, for the audit log.
    pub(crate) fn actor(&self, peer: Peer) -> Actor {
        Actor { who: self.name.to_string(), via: self.via, from: peer.0.to_string(), sudo_user: None }
    }
}

/// The visitor who sent a request.
impl<S: Send + Sync> FromRequestParts<S> for Actor {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let (visitor, peer) = (parts.extensions.get::<Visitor>(), parts.extensions.get::<Peer>());
        visitor.zip(peer).map(|(visitor, peer)| visitor.actor(*peer)).ok_or(StatusCode::FORBIDDEN)
    }
}
