//! Classifies SQLite errors.

use crate::store::Error;

/// Classifies an SQLite error.
pub(super) fn classify(operation: &'static str, error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    let problem = match error.sqlite_error_code() {
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => "the file is busy",
        Some(Code::DiskFull) => "the disk is full",
        Some(Code::ReadOnly | Code::PermissionDenied | Code::CannotOpen) => "the file cannot be written",
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => return Error::corrupt(operation, error),
        _ => "the file cannot be accessed",
    };
    Error::unavailable(operation, problem, error)
}
