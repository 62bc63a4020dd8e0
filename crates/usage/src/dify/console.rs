//! Dify's console over HTTP (`/console/api`), where its database is out of reach.
//!
//! With an admin key and a workspace, or with a login. Requests are limited in number and tried again when that may
//! help; a login is tried once. Pages drift while they are read, because the lists are numbered by page: what comes twice
//! counts once, and a list that moved is read again until it holds still. Every list ends: a page without anything new is
//! the last one.
//!
//! What the console cannot tell: runs that someone started to try a workflow out, and the model of a message where it was
//! changed after the conversation began.

mod client;
mod options;
mod pages;
mod responses;
mod session;

use std::collections::HashSet;

use jiff::Timestamp;

use self::client::Client;
pub use self::options::{Auth, Options};
use self::pages::{Listed, endless, pages};
use self::responses::{
    AppItem, Conversation, Detail, LogItem, MessageItem, Messages, Metadata, NodeExecution, Nodes,
};
use super::error::Error;
use super::node::{self, Said, Texts, amount};
use super::rows::{Scope, See, Span, Tally, user};
use crate::event::{self, App, UsageEvent, count, total};

/// Messages of one conversation in one answer.
const MESSAGES: &str = "100";
/// Answers about one conversation; beyond it something is wrong with the other side.
const MOST_PAGES: usize = 10_000;
/// A run is listed when it has begun or ended; it counts on the day on which it began.
const LISTED_LATE: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// The console.
#[derive(Debug)]
pub struct Http {
    client: Client,
    scope: Scope,
}

impl Http {
    /// Prepares to read. Nothing is sent yet.
    pub fn new(options: Options, scope: Scope) -> Result<Self, Error> {
        Ok(Self { client: Client::new(options, scope.workspace.clone())?, scope })
    }

    /// Hands on every row of a span.
    pub async fn read(&mut self, span: Span, see: &mut See<'_>) -> Result<Tally, Error> {
        let mut tally = Tally::default();
        let mut seen = HashSet::new();
        for app in pages::<AppItem>(&mut self.client, "/apps", &[]).await? {
            let (client, scope) = (&mut self.client, &self.scope);
            let mut reading = Reading {
                client,
                scope,
                span,
                app: &app,
                see: &mut *see,
                tally: &mut tally,
                seen: &mut seen,
            };
            match app.mode.as_str() {
                "chat" | "agent-chat" => reading.conversations(List::Chat).await?,
                "completion" => reading.conversations(List::Completion).await?,
                "advanced-chat" => reading.chat_runs().await?,
                "workflow" => reading.runs().await?,
                // Kinds of apps that have no usage of their own.
                _ => {}
            }
        }
        Ok(tally)
    }

    /// Whether the console lets us in.
    pub async fn check(&mut self) -> Result<String, Error> {
        let apps = pages::<AppItem>(&mut self.client, "/apps", &[]).await?;
        Ok(format!("Dify's console answers: {} apps", apps.len()))
    }
}

/// One app, while it is read.
struct Reading<'r, 's> {
    client: &'r mut Client,
    scope: &'r Scope,
    span: Span,
    app: &'r AppItem,
    see: &'r mut See<'s>,
    tally: &'r mut Tally,
    /// What was handed on: lists move while they are read.
    seen: &'r mut HashSet<String>,
}

/// Where an app's conversations are listed.
#[derive(Clone, Copy)]
enum List {
    Chat,
    Completion,
}

impl List {
    fn word(self) -> &'static str {
        match self {
            Self::Chat => "chat-conversations",
            Self::Completion => "completion-conversations",
        }
    }
}

impl<'r> Reading<'r, '_> {
    fn path(&self, rest: &str) -> String {
        format!("/apps/{}/{rest}", self.app.id)
    }

    fn app(&self) -> App<'r> {
        let AppItem { id, name, mode } = self.app;
        App { id: id.into(), name: name.into(), mode: mode.into() }
    }

    fn tenant(&self) -> &'r str {
        self.scope.workspace.as_deref().unwrap_or_default()
    }

    /// Conversations in which something may have been said in the span.
    async fn listed(&mut self, list: List) -> Result<Vec<Conversation>, Error> {
        let path = self.path(list.word());
        // In the order of their creation new ones come last, and nothing moves while it is read.
        let mut all: Vec<Conversation> = pages(self.client, &path, &[("sort_by", "created_at")]).await?;
        let span = self.span;
        all.retain(|conversation| {
            conversation.created_at.is_none_or(|at| moment(at).is_none_or(|at| at < span.until))
                && conversation.updated_at.is_none_or(|at| moment(at).is_none_or(|at| at >= span.from))
        });
        Ok(all)
    }

    async fn conversations(&mut self, list: List) -> Result<(), Error> {
        for conversation in self.listed(list).await? {
            for message in self.said(list, &conversation.id).await? {
                self.message(&conversation, &message);
            }
        }
        Ok(())
    }

    /// The messages of a conversation. One that completes a text has one.
    async fn said(&mut self, list: List, conversation: &str) -> Result<Vec<MessageItem>, Error> {
        match list {
            List::Chat => self.messages(conversation).await,
            List::Completion => {
                let path = self.path(&format!("{}/{conversation}", list.word()));
                let detail: Detail = self.client.get(&path, &[]).await?;
                Ok(detail.message.into_iter().collect())
            }
        }
    }

    /// Runs of a chat with a workflow behind it: its messages name them.
    async fn chat_runs(&mut self) -> Result<(), Error> {
        for conversation in self.listed(List::Chat).await? {
            for message in self.messages(&conversation.id).await? {
                let (Some(run), Some(at)) = (&message.workflow_run_id, moment(message.created_at)) else {
                    continue;
                };
                if self.span.holds(at) {
                    let user = user(conversation.end_user(), conversation.account());
                    self.nodes(run, at, user).await?;
                }
            }
        }
        Ok(())
    }

    async fn runs(&mut self) -> Result<(), Error> {
        let until = self.span.until.checked_add(LISTED_LATE).unwrap_or(Timestamp::MAX);
        let (after, before) = (self.span.from.to_string(), until.to_string());
        let path = self.path("workflow-app-logs");
        let logs: Vec<LogItem> =
            pages(self.client, &path, &[("created_at__after", &after), ("created_at__before", &before)])
                .await?;
        for log in logs {
            let at = log.workflow_run.created_at.or(log.created_at).and_then(moment);
            let Some(at) = at.filter(|at| self.span.holds(*at)) else { continue };
            let end_user = log.created_by_end_user.as_ref();
            let account = log.created_by_account.as_ref();
            let user = user(
                end_user.map(|user| (user.id.as_str(), user.session_id.as_deref())),
                account.map(|account| (account.id.as_str(), account.email.as_deref())),
            );
            self.nodes(&log.workflow_run.id, at, user).await?;
        }
        Ok(())
    }

    /// Every message of a conversation; a page is asked for by the first message of the page before.
    async fn messages(&mut self, conversation: &str) -> Result<Vec<MessageItem>, Error> {
        let path = self.path("chat-messages");
        let (mut all, mut first): (Vec<MessageItem>, Option<String>) = (Vec::new(), None);
        let mut known = HashSet::new();
        for _ in 0..MOST_PAGES {
            let mut query = vec![("conversation_id", conversation), ("limit", MESSAGES)];
            query.extend(first.as_deref().map(|id| ("first_id", id)));
            let page: Messages = self.client.get(&path, &query).await?;
            let before = known.len();
            let oldest = page.data.iter().min_by_key(|message| message.created_at);
            let oldest = oldest.map(|message| (message.id.clone(), message.created_at));
            all.extend(page.data.into_iter().filter(|message| known.insert(message.id.clone())));
            let Some((id, at)) = oldest else { return Ok(all) };
            // A page without anything new, or one that reaches back far enough, is the last one.
            let reached = moment(at).is_some_and(|at| at < self.span.from);
            if !page.has_more || known.len() == before || reached {
                return Ok(all);
            }
            first = Some(id);
        }
        Err(endless(&path))
    }

    fn message(&mut self, conversation: &Conversation, message: &MessageItem) {
        let Some(at) = moment(message.created_at).filter(|at| self.span.holds(*at)) else { return };
        let debugger = message.is_debugger(conversation);
        if (debugger && !self.scope.debugger) || !self.seen.insert(message.id.clone()) {
            return;
        }
        let (tenant, app, model) = (self.tenant(), self.app(), conversation.model());
        let event = || -> Result<_, event::Error> {
            let metadata = Metadata::of(message.metadata.as_deref());
            let usage = metadata.usage.unwrap_or_default();
            let input_tokens = count("message_tokens", message.message_tokens.unwrap_or_default())?;
            let output_tokens = count("answer_tokens", message.answer_tokens.unwrap_or_default())?;
            Ok(UsageEvent {
                id: (&message.id).into(),
                time: at,
                tenant: tenant.into(),
                provider: model.provider.into(),
                model: model.name.into(),
                app,
                user: user(conversation.end_user(), conversation.account()),
                input_tokens,
                output_tokens,
                total_tokens: total(input_tokens, output_tokens)?,
                price: amount("total_price", usage.total_price)?.unwrap_or_default(),
                currency: usage.currency.unwrap_or_default(),
                requests: 1,
                debugger,
            })
        };
        self.tally.hand_on(self.see, event(), &format!("messages {}", message.id), || {
            serde_json::json!({"table": "messages", "id": message.id, "conversation_id": conversation.id,
                "message_tokens": message.message_tokens, "answer_tokens": message.answer_tokens})
            .to_string()
        });
    }

    async fn nodes(&mut self, run: &str, at: Timestamp, user: event::User<'_>) -> Result<(), Error> {
        let path = self.path(&format!("workflow-runs/{run}/node-executions"));
        let nodes: Nodes = self.client.get(&path, &[]).await?;
        for node in nodes.data.iter().filter(|node| node.may_call_models()) {
            if self.seen.insert(node.id.clone()) {
                self.node(run, node, at, user.clone());
            }
        }
        Ok(())
    }

    fn node(&mut self, run: &str, node: &NodeExecution, at: Timestamp, user: event::User<'_>) {
        let texts = Texts {
            process_data: node.process_data.as_deref().map(|raw| raw.get()),
            outputs: node.outputs.as_deref().map(|raw| raw.get()),
            execution_metadata: node.execution_metadata.as_deref().map(|raw| raw.get()),
        };
        let used = match node::used(texts) {
            Ok(Said::Nothing | Said::Cut) => return,
            Ok(Said::Used(used)) => Ok(used),
            Err(error) => Err(error),
        };
        self.tally.undivided += u64::from(used.as_ref().is_ok_and(|used| used.undivided));
        let id = &node.id;
        let event = used.map(|used| used.into_event(id, at, self.tenant(), self.app(), user, false));
        self.tally.hand_on(self.see, event, &format!("workflow_node_executions {id}"), || {
            serde_json::json!({"table": "workflow_node_executions", "id": id, "workflow_run_id": run})
                .to_string()
        });
    }
}

impl Listed for AppItem {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Listed for Conversation {
    fn id(&self) -> &str {
        &self.id
    }
}

impl Listed for LogItem {
    fn id(&self) -> &str {
        &self.id
    }
}

fn moment(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok()
}
