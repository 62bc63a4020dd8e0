//! The way to Dify, from the settings.

use ichido_delivery::tls_roots::TlsRoots;
use ichido_postgres::{Address, connector};
use ichido_usage::dify::{self, Console, Filter, Kind, Postgres, Source, console};
use secrecy::ExposeSecret;

use crate::settings::{Auth, Dify, From};
use ichido_serve::Failure;

/// Prepares to read. Nothing is connected yet.
pub(crate) fn open(settings: &Dify) -> Result<Source, Failure> {
    let filter = Filter { workspace: settings.workspace.clone(), debugger: settings.include_debugger };
    match &settings.from {
        None => Err(Failure::usage(
            "export.dify: neither database nor console is set (nor DIFY_DATABASE_URL, nor DIFY_CONSOLE_URL)",
        )),
        Some(From::Database(url)) => {
            let wrong = |error: ichido_postgres::Error| {
                Failure::usage(format!("export.dify.database: {}", error.text))
            };
            let address = Address::parse(url.expose_secret(), "public").map_err(wrong)?;
            let tls = connector(&address).map_err(wrong)?;
            Ok(Source::Postgres(Box::new(Postgres::new(address.config, tls, filter))))
        }
        Some(From::Console { base, auth, rate_per_second }) => {
            let tls = TlsRoots::read_setting("export.dify.ca_file", settings.ca_file.as_deref())?
                .client()
                .map_err(|error| Failure::internal(format!("preparing TLS: {error}")))?;
            let auth = match auth {
                Auth::AdminKey(key) => console::Auth::AdminKey(key.clone()),
                Auth::Login { email, password, base64 } => {
                    console::Auth::Login { email: email.clone(), password: password.clone(), base64: *base64 }
                }
            };
            let options =
                console::Options { base: base.clone(), auth, rate_per_second: *rate_per_second, tls };
            Ok(Source::Console(Box::new(Console::new(options, filter).map_err(failed)?)))
        }
    }
}

/// How a command ends that could not read Dify.
pub(crate) fn failed(error: dify::Error) -> Failure {
    match error.kind() {
        Kind::Settings | Kind::Login | Kind::Incompatible | Kind::Unavailable => {
            Failure::usage(error.to_string())
        }
    }
}
