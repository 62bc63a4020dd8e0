//! What errors of SQLite mean.

use crate::store::Error;

/// What an error of SQLite means.
pub(super) fn failed(doing: &'static str, error: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as Code;
    let what = match error.sqlite_error_code() {
        Some(Code::DatabaseBusy | Code::DatabaseLocked) => "the file is busy",
        Some(Code::DiskFull) => "the disk is full",
        Some(Code::ReadOnly | Code::PermissionDenied | Code::CannotOpen) => "the file cannot be written",
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => return Error::broken(doing, error),
        _ => "the file cannot be worked on",
    };
    Error::unavailable(doing, what, error)
}
