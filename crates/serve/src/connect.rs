//! Checks whether a server accepts connections.

use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to `host` and closes the connection again. Errors call the server `name`.
pub async fn try_connect(name: &str, host: &str, port: u16) -> Result<(), String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let connecting = tokio::net::TcpStream::connect((host, port));
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("cannot connect to {name}: {error}")),
        Err(_) => Err(format!("cannot connect to {name}: no reply within {} s", CONNECT_TIMEOUT.as_secs())),
    }
}
