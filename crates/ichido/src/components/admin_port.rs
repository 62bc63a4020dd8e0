//! The port where operators find health, metrics, claims and the console.

use std::net::SocketAddr;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;
use ichido_admin::AdminPort;
use ichido_serve::Failure;

/// Where the port listens unless the settings say otherwise.
pub(crate) const DEFAULT: &str = "127.0.0.1:9090";

/// The address in the settings, if the port is not disabled.
pub(crate) fn address(settings: &Settings) -> Result<Option<SocketAddr>, Failure> {
    let listen = settings.admin_listen(DEFAULT)?.map(|listen| parse(settings, &listen));
    listen.transpose()
}

fn parse(settings: &Settings, listen: &str) -> Result<SocketAddr, Failure> {
    ichido_settings::address("admin.listen", listen).map_err(|invalid| settings.failure(&invalid))
}

/// Binds the port, if it is not disabled.
pub(crate) async fn bind(settings: &Settings, listen: Option<String>) -> Result<Option<AdminPort>, Failure> {
    let Some(listen) = listen else { return Ok(None) };
    let listen = parse(settings, &listen)?;
    Ok(Some(AdminPort::bind(listen, settings.admin()?).await?))
}

/// The URL of the port, for the start line.
pub(crate) fn describe(bound: Option<&AdminPort>) -> String {
    bound.map_or_else(|| "no admin port".to_owned(), |bound| format!("admin on {}", bound.url()))
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
