//! The orders API as a child process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::demo::sandbox::Sandbox;
use crate::demo::server_process::ServerProcess;
use ichido_serve::Failure;

/// The log of the orders that the API created, in the demo's directory.
pub(in crate::demo) const ORDERS: &str = "orders.log";
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(in crate::demo) struct OrdersProcess {
    pub(in crate::demo) address: SocketAddr,
    lose_every: u32,
    process: ServerProcess,
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
        let process = ServerProcess::start(command, "the orders API").await?;
        Ok(Self { address: process.address, lose_every, process })
    }

    /// Kills the process and starts it again on the same port.
    pub(super) async fn kill_and_restart(self, sandbox: &Sandbox<'_>) -> Result<Self, Failure> {
        let (address, lose_every) = (self.address, self.lose_every);
        self.kill();
        Self::listen(sandbox, address, lose_every).await
    }

    /// Kills the process and waits until it is gone.
    pub(in crate::demo) fn kill(self) {
        self.process.kill();
    }
}
