//! The commands, one module each.

pub(crate) mod check;
pub(crate) mod ledger;
