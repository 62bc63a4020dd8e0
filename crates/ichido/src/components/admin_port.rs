//! The port where operators find health, metrics, claims and the console.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::args::ADMIN_VARIABLE;
use ichido_admin::{AdminPort, AdminToken};
use ichido_serve::Failure;
use ichido_settings::address;

const DEFAULT: &str = "127.0.0.1:9090";

/// The address to listen on, unless `--admin off` or its variable disables the port.
pub(crate) fn listen_address(flag: Option<&str>) -> Option<&str> {
    Some(flag.unwrap_or(DEFAULT)).filter(|text| *text != "off")
}

/// Binds the port, if it is not disabled.
pub(crate) async fn bind(listen: Option<&str>) -> Result<Option<AdminPort>, Failure> {
    let Some(text) = listen else { return Ok(None) };
    let is_from_environment = std::env::var(ADMIN_VARIABLE).is_ok_and(|set| set == text);
    let name = if is_from_environment { ADMIN_VARIABLE } else { "--admin" };
    Ok(Some(AdminPort::bind(address(name, text)?, AdminToken::from_env()?).await?))
}

/// The URL of the port, for the start line.
pub(crate) fn describe(bound: Option<&AdminPort>) -> String {
    bound.map_or_else(|| "no admin port".to_owned(), |bound| format!("admin on http://{}", bound.address()))
}

/// An admin port that is being served. It stops last, because it shows how the shutdown proceeds.
pub(crate) struct Serving {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl Serving {
    /// Starts to serve with a token of its own, which [`Serving::stop`] cancels.
    pub(crate) fn start<F>(serve: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(serve(stop.clone())), stop }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}
