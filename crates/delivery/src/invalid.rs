//! Errors about settings of `[delivery]`.

use ichido_settings::Invalid;

/// The setting `delivery.NAME` cannot be used.
pub(crate) fn invalid(name: &str, problem: impl Into<String>) -> Invalid {
    Invalid::new(format!("delivery.{name}"), problem)
}
