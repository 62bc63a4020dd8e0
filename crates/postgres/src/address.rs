//! The server's address and our parameters, from its URL.
//!
//! Our parameters are removed before tokio-postgres parses the rest. No error repeats any part of the URL: a
//! password with a stray `?` or `@` in it could turn up in any part.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;

use crate::error::{Error, Result};

const DEFAULT_CONNECTIONS: usize = 16;
const CONNECTIONS_MAX: usize = 1_000;
/// PostgreSQL silently truncates longer identifiers.
const NAME_BYTES_MAX: usize = 63;

/// A server, and how to use it.
pub struct Address {
    /// The parameters of tokio-postgres.
    pub config: Config,
    /// The schema of the tables: `schema=`.
    pub schema: String,
    /// A file with certificate authorities to trust: `sslrootcert=`.
    pub root_certificates: Option<PathBuf>,
    /// The most connections: `pool=`.
    pub connections: usize,
    /// Whether statements are prepared: `prepared=`.
    pub prepared: Prepared,
}

/// Whether statements are prepared: `prepared=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prepared {
    /// As a probe finds best: `auto`.
    #[default]
    Auto,
    /// Always prepared: `on`.
    On,
    /// Never prepared: `off`.
    Off,
}

impl Address {
    /// Parses a URL. `schema` is the default for `schema=`.
    pub fn parse(url: &str, schema: &str) -> Result<Self> {
        if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
            return Err(invalid("it must start with postgres://"));
        }
        // A password may contain a question mark. As in tokio-postgres, it ends at the first @.
        let password_ends = url.find('@').unwrap_or(0);
        let parameters_start = url[password_ends..].find('?').map_or(url.len(), |at| password_ends + at);
        let (server, query) = url.split_at(parameters_start);
        let query = query.trim_start_matches('?');
        let mut address = Self {
            config: Config::new(),
            schema: schema.to_owned(),
            root_certificates: None,
            connections: DEFAULT_CONNECTIONS,
            prepared: Prepared::default(),
        };
        let mut passed_on = Vec::new();
        for (at, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = || {
                percent_decode_str(value).decode_utf8().map_err(|_| invalid("a parameter is not valid UTF-8"))
            };
            match name {
                "schema" => address.schema = plain_name(&text()?)?,
                "sslrootcert" => address.root_certificates = Some(PathBuf::from(&*text()?)),
                "pool" => address.connections = connections(&text()?)?,
                "prepared" => address.prepared = prepared(value)?,
                // rustls always checks both chain and name, so these two are not stronger than `require`.
                "sslmode" if matches!(value, "verify-ca" | "verify-full") => {
                    passed_on.push((at, "sslmode=require"));
                }
                _ => passed_on.push((at, pair)),
            }
        }
        let pairs: Vec<_> = passed_on.iter().map(|(_, pair)| *pair).collect();
        let read = |query: &str| Config::from_str(&format!("{server}?{query}"));
        address.config = read(&pairs.join("&")).map_err(|_| {
            match passed_on.iter().find(|(_, pair)| read("").is_ok() && read(pair).is_err()) {
                Some((at, _)) => invalid(&format!(
                    "parameter {} after the ? is unknown, or its value is invalid",
                    at + 1
                )),
                None => invalid(
                    "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE, with special characters in the \
                     password percent-encoded",
                ),
            }
        })?;
        address.set_timeouts();
        Ok(address)
    }

    /// A server that disappears silently is noticed within seconds, not hours.
    fn set_timeouts(&mut self) {
        let config = &mut self.config;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
            config.keepalives_idle(Duration::from_secs(30));
        }
        if config.get_application_name().is_none() {
            config.application_name("ichido");
        }
    }
}

/// A name that needs no escaping anywhere.
fn plain_name(name: &str) -> Result<String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if starts_well && name.chars().all(plain) && name.len() <= NAME_BYTES_MAX && !name.starts_with("pg_") {
        return Ok(name.to_owned());
    }
    Err(invalid(
        "schema must have 1 to 63 characters of a-z, 0-9 and _, and must not start with a digit or pg_",
    ))
}

fn connections(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(number) if (1..=CONNECTIONS_MAX).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(invalid("pool must be a number from 1 to 1000")),
    }
}

fn prepared(text: &str) -> Result<Prepared> {
    match text {
        "auto" => Ok(Prepared::Auto),
        "on" => Ok(Prepared::On),
        "off" => Ok(Prepared::Off),
        _ => Err(invalid("prepared must be auto, on or off")),
    }
}

fn invalid(why: &str) -> Error {
    Error::new("parsing the PostgreSQL URL", format!("invalid PostgreSQL URL: {why}"))
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::SslMode;

    use super::*;

    #[test]
    fn own_parameters_are_removed_and_the_others_passed_on() {
        let url = "postgres://u:p@h:5433/d?schema=s_1&sslrootcert=%2Fca.pem&pool=3&prepared=off&sslmode=verify-full&connect_timeout=9";
        let address = Address::parse(url, "ichido").unwrap();
        assert_eq!(address.schema, "s_1");
        assert_eq!(address.root_certificates, Some(PathBuf::from("/ca.pem")));
        assert_eq!((address.connections, address.prepared), (3, Prepared::Off));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(9)));
        assert_eq!(address.config.get_ports(), [5433]);
        assert_eq!(Address::parse("postgres://h/d", "ichido").unwrap().schema, "ichido");
    }

    #[test]
    fn password_may_look_like_parameters() {
        let address = Address::parse("postgres://u:a?schema=b&c@h/d?schema=s", "ichido").unwrap();
        assert_eq!(address.schema, "s");
        assert_eq!(address.config.get_password(), Some(&b"a?schema=b&c"[..]));
        assert_eq!(Address::parse("postgres://h/d?schema=s", "ichido").unwrap().schema, "s");
    }

    #[test]
    fn unknown_parameter_is_identified_by_its_position() {
        for (url, place) in [
            ("postgres://u:p@h/d?schema=s&hunter2=1", "parameter 2 after the ?"),
            ("postgres://u:p@h/d?connect_timeout=soon", "parameter 1 after the ?"),
        ] {
            let Err(error) = Address::parse(url, "ichido") else { panic!("{url} was accepted") };
            let message = format!("{error} {error:?}");
            assert!(message.contains(place) && !message.contains("hunter"), "{message}");
        }
    }

    #[test]
    fn errors_repeat_no_part_of_the_url() {
        for url in [
            "postgres://u:hunter@2@h:x/d",
            "postgres://u:hunter2@h/d?hunter2=1",
            "postgres://u:hunter2@h/d?schema=hunter2;drop",
            "postgres://u:hunter2@h/d?pool=hunter2",
            "postgres://u:hunter2@h/d?prepared=hunter2",
            "mysql://u:hunter2@h/d",
        ] {
            let Err(error) = Address::parse(url, "ichido") else { panic!("{url} was accepted") };
            assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
        }
    }
}
