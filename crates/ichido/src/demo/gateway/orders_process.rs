//! The orders API as a child process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;

use tokio::process::Child;

use crate::demo::sandbox::Sandbox;
use crate::demo::server_process::read_address;
use ichido_serve::Failure;

/// The log of the orders that the API created, in the demo's directory.
pub(in crate::demo) const ORDERS: &str = "orders.log";
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(in crate::demo) struct OrdersProcess {
    pub(in crate::demo) address: SocketAddr,
    lose_every: u32,
    child: Child,
}

impl OrdersProcess {
    /// An API that loses every `lose_every`-th response, or none if that is 0.
    pub(in crate::demo) async fn start(sandbox: &Sandbox<'_>, lose_every: u32) -> Result<Self, Failure> {
        Self::listen(sandbox, ANY_PORT, lose_every).await
    }

    async fn listen(sandbox: &Sandbox<'_>, listen: SocketAddr, lose_every: u32) -> Result<Self, Failure> {
        let mut command = sandbox.ichido()?;
        command.arg("demo-orders").arg("--effects").arg(sandbox.dir.join(ORDERS));
        command.arg("--listen").arg(listen.to_string()).arg("--lose-every").arg(lose_every.to_string());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command
            .spawn()
            .map_err(|error| Failure::internal(format!("cannot start the orders API: {error}")))?;
        let stdout =
            child.stdout.take().ok_or_else(|| Failure::internal("stdout of the orders API is not piped"))?;
        let (address, _) = read_address(stdout, "").await?;
        Ok(Self { address, lose_every, child })
    }

    /// Kills the process and starts it again on the same port.
    pub(super) async fn kill_and_restart(self, sandbox: &Sandbox<'_>) -> Result<Self, Failure> {
        let (address, lose_every) = (self.address, self.lose_every);
        self.kill().await?;
        Self::listen(sandbox, address, lose_every).await
    }

    /// Kills the process and waits until it is gone.
    pub(in crate::demo) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(|error| Failure::internal(format!("kill -9 failed: {error}")))
    }
}
