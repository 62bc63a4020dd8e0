//! Dify's console API (`/console/api`), for installations whose database cannot be reached.
//!
//! It needs an admin key and a workspace, or a login. Requests are rate-limited and retried if that may help; a
//! login is tried once. Lists are numbered by page and shift while they are read: an item that appears twice counts
//! once, and a list that shifted is read again until it is stable. Every list ends: a page without new items is the
//! last one.
//!
//! The console does not reveal which workflow runs come from the debugger, nor the model of a message if it was
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
use super::node::{self, NodeTexts, NodeUsage, amount};
use super::rows::{Filter, RowCounts, TimeRange, Visitor, user};
use crate::event::{self, App, UsageEvent, count, total};

/// Messages per response.
const MESSAGES_PER_PAGE: &str = "100";
/// The most pages of messages in one conversation; more mean that the server repeats itself.
const PAGES_MAX: usize = 10_000;
/// A run is listed by its start or its end, but counts on the day it started.
const RUN_LISTING_DELAY: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// Dify's console API.
#[derive(Debug)]
pub struct Console {
    client: Client,
    filter: Filter,
}

impl Console {
    /// Prepares to read. Sends nothing yet.
    pub fn new(options: Options, filter: Filter) -> Result<Self, Error> {
        Ok(Self { client: Client::new(options, filter.workspace.clone())?, filter })
    }

    /// Passes on every row in a range.
    pub async fn read(&mut self, range: TimeRange, visit: &mut Visitor<'_>) -> Result<RowCounts, Error> {
        let mut counts = RowCounts::default();
        let mut seen = HashSet::new();
        for app in pages::<AppItem>(&mut self.client, "/apps", &[]).await? {
            let (client, filter) = (&mut self.client, &self.filter);
            let mut reader = AppReader {
                client,
                filter,
                range,
                app: &app,
                visit: &mut *visit,
                counts: &mut counts,
                seen: &mut seen,
            };
            match app.mode.as_str() {
                "chat" | "agent-chat" => reader.conversations(List::Chat).await?,
                "completion" => reader.conversations(List::Completion).await?,
                "advanced-chat" => reader.chat_runs().await?,
                "workflow" => reader.runs().await?,
                // Other kinds of apps have no usage of their own.
                _ => {}
            }
        }
        Ok(counts)
    }

    /// Checks that the console grants access.
    pub async fn check(&mut self) -> Result<String, Error> {
        let apps = pages::<AppItem>(&mut self.client, "/apps", &[]).await?;
        Ok(format!("Dify's console is readable: {} apps", apps.len()))
    }
}

/// Reads one app.
struct AppReader<'r, 's> {
    client: &'r mut Client,
    filter: &'r Filter,
    range: TimeRange,
    app: &'r AppItem,
    visit: &'r mut Visitor<'s>,
    counts: &'r mut RowCounts,
    /// Ids that were passed on: lists shift while they are read.
    seen: &'r mut HashSet<String>,
}

/// A list of conversations.
#[derive(Clone, Copy)]
enum List {
    Chat,
    Completion,
}

impl List {
    fn path_segment(self) -> &'static str {
        match self {
            Self::Chat => "chat-conversations",
            Self::Completion => "completion-conversations",
        }
    }
}

impl<'r> AppReader<'r, '_> {
    fn path(&self, rest: &str) -> String {
        format!("/apps/{}/{rest}", self.app.id)
    }

    fn app(&self) -> App<'r> {
        let AppItem { id, name, mode } = self.app;
        App { id: id.into(), name: name.into(), mode: mode.into() }
    }

    fn tenant(&self) -> &'r str {
        self.filter.workspace.as_deref().unwrap_or_default()
    }

    /// Lists conversations that may have messages in the range.
    async fn list(&mut self, list: List) -> Result<Vec<Conversation>, Error> {
        let path = self.path(list.path_segment());
        // Sorted by creation, new conversations come last and nothing shifts.
        let mut all: Vec<Conversation> = pages(self.client, &path, &[("sort_by", "created_at")]).await?;
        let range = self.range;
        all.retain(|conversation| {
            conversation.created_at.is_none_or(|at| timestamp(at).is_none_or(|at| at < range.until))
                && conversation.updated_at.is_none_or(|at| timestamp(at).is_none_or(|at| at >= range.from))
        });
        Ok(all)
    }

    async fn conversations(&mut self, list: List) -> Result<(), Error> {
        for conversation in self.list(list).await? {
            for message in self.messages_of(list, &conversation.id).await? {
                self.message(&conversation, &message);
            }
        }
        Ok(())
    }

    /// Reads the messages of a conversation. A completion has exactly one.
    async fn messages_of(&mut self, list: List, conversation: &str) -> Result<Vec<MessageItem>, Error> {
        match list {
            List::Chat => self.messages(conversation).await,
            List::Completion => {
                let path = self.path(&format!("{}/{conversation}", list.path_segment()));
                let detail: Detail = self.client.get(&path, &[]).await?;
                Ok(detail.message.into_iter().collect())
            }
        }
    }

    /// Reads the runs of an advanced chat, which its messages name.
    async fn chat_runs(&mut self) -> Result<(), Error> {
        for conversation in self.list(List::Chat).await? {
            for message in self.messages(&conversation.id).await? {
                let (Some(run), Some(at)) = (&message.workflow_run_id, timestamp(message.created_at)) else {
                    continue;
                };
                if self.range.contains(at) {
                    let user = user(conversation.end_user(), conversation.account());
                    self.nodes(run, at, user).await?;
                }
            }
        }
        Ok(())
    }

    async fn runs(&mut self) -> Result<(), Error> {
        let until = self.range.until.checked_add(RUN_LISTING_DELAY).unwrap_or(Timestamp::MAX);
        let (after, before) = (self.range.from.to_string(), until.to_string());
        let path = self.path("workflow-app-logs");
        let logs: Vec<LogItem> =
            pages(self.client, &path, &[("created_at__after", &after), ("created_at__before", &before)])
                .await?;
        for log in logs {
            let at = log.workflow_run.created_at.or(log.created_at).and_then(timestamp);
            let Some(at) = at.filter(|at| self.range.contains(*at)) else { continue };
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

    /// Reads every message of a conversation. A page is requested by the first message of the page before.
    async fn messages(&mut self, conversation: &str) -> Result<Vec<MessageItem>, Error> {
        let path = self.path("chat-messages");
        let (mut all, mut first): (Vec<MessageItem>, Option<String>) = (Vec::new(), None);
        let mut known = HashSet::new();
        for _ in 0..PAGES_MAX {
            let mut query = vec![("conversation_id", conversation), ("limit", MESSAGES_PER_PAGE)];
            query.extend(first.as_deref().map(|id| ("first_id", id)));
            let page: Messages = self.client.get(&path, &query).await?;
            let before = known.len();
            let oldest = page.data.iter().min_by_key(|message| message.created_at);
            let oldest = oldest.map(|message| (message.id.clone(), message.created_at));
            all.extend(page.data.into_iter().filter(|message| known.insert(message.id.clone())));
            let Some((id, at)) = oldest else { return Ok(all) };
            // A page without new messages, or one that reaches back before the range, is the last one.
            let reached = timestamp(at).is_some_and(|at| at < self.range.from);
            if !page.has_more || known.len() == before || reached {
                return Ok(all);
            }
            first = Some(id);
        }
        Err(endless(&path))
    }

    fn message(&mut self, conversation: &Conversation, message: &MessageItem) {
        let Some(at) = timestamp(message.created_at).filter(|at| self.range.contains(*at)) else { return };
        let debugger = message.is_debugger(conversation);
        if (debugger && !self.filter.debugger) || !self.seen.insert(message.id.clone()) {
            return;
        }
        let (tenant, app, model) = (self.tenant(), self.app(), conversation.model());
        let event = || -> Result<_, event::Error> {
            let metadata = Metadata::parse(message.metadata.as_deref());
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
        self.counts.visit_row(self.visit, event(), &format!("messages {}", message.id), || {
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
        let texts = NodeTexts {
            process_data: node.process_data.as_deref().map(|raw| raw.get()),
            outputs: node.outputs.as_deref().map(|raw| raw.get()),
            execution_metadata: node.execution_metadata.as_deref().map(|raw| raw.get()),
        };
        let used = match node::node_usage(texts) {
            Ok(NodeUsage::None | NodeUsage::Truncated) => return,
            Ok(NodeUsage::Used(used)) => Ok(used),
            Err(error) => Err(error),
        };
        self.counts.total_only += u64::from(used.as_ref().is_ok_and(|used| used.total_only));
        let id = &node.id;
        let event = used.map(|used| used.into_event(id, at, self.tenant(), self.app(), user, false));
        self.counts.visit_row(self.visit, event, &format!("workflow_node_executions {id}"), || {
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

fn timestamp(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok()
}
