//! Runs a granted claim unless its content was handled under another key.

use http::{HeaderMap, Response};
use ichido_core::Settle;

use super::granted::GrantedClaim;
use super::reply::{Reply, ReplySender, in_flight, ledger_unavailable, send};
use crate::content::{Finding, Modes, Verdict, examine};
use crate::metrics::Disposition;
use crate::response_body::ResponseBody;
use crate::trait_aliases::{HttpBody, InnerService};

impl GrantedClaim {
    /// Compares the event with others first. If the ledger cannot be asked, an event that could be refused is not run.
    pub(super) async fn run_unless_known<S, B, A>(mut self, inner: S, sender: ReplySender<A, S::Error>)
    where
        S: InnerService<B, A>,
        B: HttpBody,
        A: HttpBody,
    {
        let modes = Modes::of(self.request.route());
        let content = std::mem::take(&mut self.request.claimable.content);
        let examined = {
            let request = &self.request;
            let texts = request.shared.similar[request.trace.route].as_ref();
            examine(request.ledger(), texts, &request.claimable.claim, content, modes).await
        };
        let finding = match examined {
            Ok(finding) => finding,
            Err(error) if modes.is_enforced() => {
                tracing::warn!(%error, "cannot check the content of an event");
                self.settle(Settle::Release).await;
                return send(&self.request, sender, ledger_unavailable());
            }
            Err(error) => {
                tracing::warn!(%error, "cannot check the content of an event; it is handled");
                Finding::default()
            }
        };
        self.request.trace.reports = finding.reports;
        self.remembered = finding.remembered;
        let reply = match finding.verdict {
            Verdict::Run => return self.run(inner, sender).await,
            Verdict::SameContent => self.refuse(Disposition::SameContent).await,
            Verdict::Similar => self.refuse(Disposition::Similar).await,
            // The other event may fail. Then this one is needed, so the sender has to send it again.
            Verdict::InFlight => {
                self.settle(Settle::Release).await;
                in_flight()
            }
        };
        send(&self.request, sender, reply);
    }

    /// Completes the claim with an empty response, which tells the sender that nothing is left to do.
    async fn refuse<A>(&self, disposition: Disposition) -> Reply<A> {
        let (head, _) = Response::new(()).into_parts();
        let (outcome, _) = self.outcome(&head, &[], &HeaderMap::new());
        match self.complete(outcome).await {
            Ok(()) => {
                (disposition, Ok(Response::new(ResponseBody::whole(bytes::Bytes::new(), HeaderMap::new()))))
            }
            Err(_) => in_flight(),
        }
    }
}
