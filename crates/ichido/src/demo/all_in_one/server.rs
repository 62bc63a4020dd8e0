//! `ichido run` with every component, an orders API behind its gateway, and a receiver for its sender.

use std::net::SocketAddr;

use ichido_testkit::receiver::Receiver;
use serde_json::json;

use crate::demo::delivery::sender::delivery_settings;
use crate::demo::gateway::LEDGER;
use crate::demo::gateway::orders_process::OrdersProcess;
use crate::demo::sandbox::Sandbox;
use crate::demo::server_process::ServerProcess;
use crate::demo::usage::DATABASE;
use ichido_serve::Failure;

/// The settings file, in the demo's directory.
const SETTINGS: &str = "all-in-one.toml";
/// Hourly, so that the spool is not empty when somebody opens the console.
const RESEND_CRON: &str = "0 * * * *";

pub(in crate::demo) struct AllInOne {
    pub(super) console: SocketAddr,
    pub(super) gateway: SocketAddr,
    pub(super) meter: SocketAddr,
    pub(super) receiver: Receiver,
    orders_api: OrdersProcess,
    process: ServerProcess,
}

impl AllInOne {
    pub(super) async fn start(sandbox: &Sandbox<'_>, receiver: Receiver) -> Result<Self, Failure> {
        let orders_api = OrdersProcess::start(sandbox, 0).await?;
        let settings = format!(
            "[ledger]\nurl = \"{LEDGER}\"\n\
             [gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://{}\"\nshutdown_seconds = 3\n\
             [meter]\nlisten = \"127.0.0.1:0\"\ndb = \"{DATABASE}\"\nshutdown_seconds = 3\n",
            orders_api.address
        );
        std::fs::write(sandbox.dir.join(SETTINGS), settings)
            .map_err(|error| Failure::internal(format!("cannot write {SETTINGS}: {error}")))?;
        let mut command = sandbox.ichido()?;
        delivery_settings(&mut command, sandbox, &receiver)
            .args(["run", "--config", SETTINGS, "--admin", "127.0.0.1:0"])
            .env("LOG_LEVEL", "error")
            .env("RESEND_CRON", RESEND_CRON);
        let process = ServerProcess::start(command, "ichido run").await?;
        let address = |text: &str| process.address_after(&format!("{text} on http://"));
        Ok(Self {
            console: address("admin")?,
            gateway: address("gateway listening")?,
            meter: address("meter listening")?,
            receiver,
            orders_api,
            process,
        })
    }

    /// The addresses, for scripts.
    pub(in crate::demo) fn addresses(&self) -> serde_json::Value {
        let url = |address: SocketAddr| format!("http://{address}");
        json!({ "console": url(self.console), "gateway": url(self.gateway), "meter": url(self.meter) })
    }

    /// Prints the addresses and what to try.
    pub(in crate::demo) fn print_addresses(&self, sandbox: &Sandbox<'_>) {
        let Self { console, gateway, meter, .. } = self;
        let files = sandbox.dir.display();
        let kept = if sandbox.args.keep.is_some() { "kept" } else { "removed when the demo stops" };
        outln!("\nEverything keeps running until you press Ctrl-C:\n");
        outln!("  console   http://{console}/         resolve claims in doubt, resend batches, see usage");
        outln!("  gateway   http://{gateway}/orders   the orders API, safe to retry");
        outln!("  meter     http://{meter}/v1/usage   the usage of the month");
        outln!("  files     {files} ({kept})\n");
        outln!("Run this twice. The second response is a replay, with Idempotency-Replayed: true\n");
        outln!("  curl -i -X POST -H 'Idempotency-Key: \"mine-1\"' -d 'mine-1' http://{gateway}/orders\n");
    }

    /// Keeps running until `interrupted` is ready, or until the process exits by itself.
    pub(in crate::demo) async fn serve_until(
        &mut self,
        interrupted: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        tokio::select! {
            () = interrupted => Ok(()),
            failure = self.process.unexpected_exit() => Err(failure),
        }
    }

    /// Stops ichido first, so that it can finish requests that are running, then the orders API and the receiver.
    pub(in crate::demo) async fn stop(self) -> Result<(), Failure> {
        let stopped = self.process.stop().await;
        self.orders_api.kill();
        drop(self.receiver);
        stopped
    }
}
