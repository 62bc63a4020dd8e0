//! What errors of PostgreSQL mean.

use crate::store::Error;

/// What an error of the server or the connection means. A broken connection leaves a transaction undone, or done: asking again
/// is safe either way.
pub(super) fn failed(doing: &'static str, error: tokio_postgres::Error) -> Error {
    let told = error.as_db_error().map(|told| (told.code().code().to_owned(), told.message().to_owned()));
    match told {
        // Rights, passwords, a database or tables that are not there.
        Some((code, message))
            if code.starts_with("28") || ["42501", "3D000", "3F000", "42P01", "42703"].contains(&&*code) =>
        {
            Error::Settings(format!("{doing}: PostgreSQL refuses: {message}"))
        }
        Some((code, _)) => Error::unavailable(doing, format!("PostgreSQL refuses (SQLSTATE {code})"), error),
        None => Error::unavailable(doing, "PostgreSQL cannot be reached", error),
    }
}
