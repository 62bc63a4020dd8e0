//! The operation that a request asks for: its method, path and query.

use http::request::Parts;
use sha2::{Digest, Sha256};

use crate::options::Mode;

/// Longer paths are stored as their hash.
const PATH_BYTES_MAX: usize = 512;

/// Method, path and query. A different value in any of them is a different operation.
pub(crate) struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    path_and_query: &'a str,
}

impl<'a> Operation<'a> {
    pub(crate) fn of(parts: &'a Parts) -> Self {
        Self {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query(),
            path_and_query: parts.uri.path_and_query().map_or("/", |target| target.as_str()),
        }
    }

    /// The operation as part of a key's scope. A query may contain secrets, so only its hash is stored. Keys of a route
    /// in observe mode are separate: they do not block requests once the route is enforced.
    pub(crate) fn scope(&self, mode: Mode) -> String {
        let hash = |text: &str| hex::encode(&Sha256::digest(text)[..16]);
        let mut scope = String::with_capacity(64 + self.path.len().min(PATH_BYTES_MAX));
        if mode == Mode::Observe {
            scope.push_str("observe ");
        }
        scope.push_str(self.method);
        scope.push(' ');
        match self.path {
            path if path.len() <= PATH_BYTES_MAX => scope.push_str(path),
            path => scope.push_str(&format!("sha256:{}", hash(path))),
        }
        if let Some(query) = self.query {
            scope.push('?');
            scope.push_str(&hash(query));
        }
        scope
    }

    /// The operation as part of a fingerprint. Requests with the same key already agree on it, because it is part of the
    /// scope; it stays because it is part of every stored fingerprint.
    pub(crate) fn fingerprint_parts(&self) -> [&'a [u8]; 2] {
        [self.method.as_bytes(), self.path_and_query.as_bytes()]
    }
}
