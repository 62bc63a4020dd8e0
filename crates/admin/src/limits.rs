//! Limits of request bodies.

use std::time::Duration;

/// The largest body of an operator's request or a console form.
pub(crate) const OPERATOR_BODY_BYTES_MAX: usize = 1024 * 1024;
/// How long a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
