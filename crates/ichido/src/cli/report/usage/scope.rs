//! What a statement is about.

use ichido_meter::statement::Month;

/// What a statement is about.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) tenant: String,
    pub(super) month: Month,
    pub(super) app: Option<String>,
}
