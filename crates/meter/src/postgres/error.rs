//! Classifies PostgreSQL errors.

use crate::store::Error;

/// Classifies an error of the server or the connection. If the connection breaks, the transaction may or may not
/// have been committed: repeating it is safe either way.
pub(super) fn classify(operation: &'static str, error: tokio_postgres::Error) -> Error {
    let db_error =
        error.as_db_error().map(|error| (error.code().code().to_owned(), error.message().to_owned()));
    match db_error {
        // Missing permissions, wrong passwords, missing databases or tables.
        Some((code, message))
            if code.starts_with("28") || ["42501", "3D000", "3F000", "42P01", "42703"].contains(&&*code) =>
        {
            Error::Settings(format!("{operation}: PostgreSQL refused: {message}"))
        }
        Some((code, _)) => {
            Error::unavailable(operation, format!("PostgreSQL refused (SQLSTATE {code})"), error)
        }
        None => Error::unavailable(operation, "PostgreSQL cannot be reached", error),
    }
}
