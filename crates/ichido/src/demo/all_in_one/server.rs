//! The house: `ichido run` with every part, an orders API behind its gateway, and a receiver for its sender.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::json;

use crate::demo::delivery::receiver::Receiver;
use crate::demo::gateway::{Api, LEDGER};
use crate::demo::sandbox::Started;
use crate::demo::usage::DATABASE;
use crate::demo::{Stage, delivery};
use ichido_serve::Failure;

/// The settings of the daemon, in the demo's directory.
const SETTINGS: &str = "house.toml";
/// Once an hour: whoever looks around shall find something that waits.
const SCHEDULE: &str = "0 * * * *";

pub(in crate::demo) struct House {
    pub(in crate::demo) console: SocketAddr,
    pub(in crate::demo) gateway: SocketAddr,
    pub(in crate::demo) meter: SocketAddr,
    pub(super) receiver: Receiver,
    api: Api,
    daemon: Started,
}

impl House {
    pub(super) async fn open(stage: &Stage<'_>, receiver: Receiver) -> Result<Self, Failure> {
        let api = Api::honest(stage).await?;
        let settings = format!(
            "[ledger]\nurl = \"{LEDGER}\"\n\
             [gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://{}\"\nshutdown_seconds = 3\n\
             [meter]\nlisten = \"127.0.0.1:0\"\ndb = \"{DATABASE}\"\nshutdown_seconds = 3\n",
            api.address
        );
        std::fs::write(stage.dir.join(SETTINGS), settings)
            .map_err(|error| Failure::internal(format!("{SETTINGS}: {error}")))?;
        let mut command = stage.myself()?;
        delivery::settings(&mut command, stage, &receiver)
            .args(["run", "--config", SETTINGS, "--admin", "127.0.0.1:0"])
            .env("LOG_LEVEL", "error")
            .env("RESEND_CRON", SCHEDULE)
            .stderr(Stdio::piped())
            .stdout(Stdio::null());
        let daemon = Started::listening(&mut command, "the daemon").await?;
        let address = |words: &str| daemon.address_of(&format!("{words} on http://"));
        Ok(Self {
            console: address("admin")?,
            gateway: address("gateway listening")?,
            meter: address("meter listening")?,
            receiver,
            api,
            daemon,
        })
    }

    /// Where everything is, for scripts.
    pub(in crate::demo) fn addresses(&self) -> serde_json::Value {
        let url = |address: SocketAddr| format!("http://{address}");
        json!({ "console": url(self.console), "gateway": url(self.gateway), "meter": url(self.meter) })
    }

    /// Where everything is, for people.
    pub(in crate::demo) fn tell(&self, stage: &Stage<'_>) {
        let Self { console, gateway, meter, .. } = self;
        let files = stage.dir.display();
        let fate = if stage.args.keep.is_some() { "kept" } else { "removed at the end" };
        outln!("\nEverything stays up until Ctrl-C.\n");
        outln!(
            "  console   http://{console}/         look around; say what became of claims in doubt, send again what waits"
        );
        outln!("  gateway   http://{gateway}/orders   before the orders API");
        outln!("  meter     http://{meter}/v1/usage");
        outln!("  files     {files} ({fate})\n");
        outln!("Run this twice; the second answer is the first one, with Idempotency-Replayed: true\n");
        outln!("  curl -i -X POST -H 'Idempotency-Key: \"mine-1\"' -d 'mine-1' http://{gateway}/orders\n");
    }

    /// Stays until `asked`, or until a process of it ends.
    pub(in crate::demo) async fn stay(&mut self, asked: impl Future<Output = ()>) -> Result<(), Failure> {
        tokio::select! {
            () = asked => Ok(()),
            failure = self.daemon.ended() => Err(failure),
        }
    }

    /// Ends everything in good order: the daemon first, which finishes what is under way.
    pub(in crate::demo) async fn close(mut self) -> Result<(), Failure> {
        let ended = self.daemon.end().await;
        self.api.kill().await?;
        self.receiver.goes_down().await;
        ended
    }
}
