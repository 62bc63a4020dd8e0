//! The console's responses, as far as they matter. Strings may be missing; times are in seconds since 1970.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page<T> {
    pub(super) data: Vec<T>,
    #[serde(default)]
    pub(super) has_more: bool,
}

#[derive(Deserialize)]
pub(super) struct AppItem {
    pub(super) id: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) mode: String,
}

#[derive(Deserialize)]
pub(super) struct Conversation {
    pub(super) id: String,
    from_source: Option<String>,
    from_end_user_id: Option<String>,
    from_end_user_session_id: Option<String>,
    from_account_id: Option<String>,
    pub(super) created_at: Option<i64>,
    pub(super) updated_at: Option<i64>,
    model_config: Option<ModelConfig>,
}

#[derive(Deserialize)]
struct ModelConfig {
    model: Option<Model>,
}

#[derive(Default, Deserialize)]
struct Model {
    provider: Option<String>,
    name: Option<String>,
}

/// The model of a conversation.
pub(super) struct ModelName<'a> {
    pub(super) provider: &'a str,
    pub(super) name: &'a str,
}

impl Conversation {
    pub(super) fn end_user(&self) -> Option<(&str, Option<&str>)> {
        self.from_end_user_id.as_deref().map(|id| (id, self.from_end_user_session_id.as_deref()))
    }

    /// The list of conversations has no e-mail addresses, and the names of members need not be unique.
    pub(super) fn account(&self) -> Option<(&str, Option<&str>)> {
        self.from_account_id.as_deref().map(|id| (id, None))
    }

    pub(super) fn model(&self) -> ModelName<'_> {
        let model = self.model_config.as_ref().and_then(|config| config.model.as_ref());
        ModelName {
            provider: model.and_then(|model| model.provider.as_deref()).unwrap_or_default(),
            name: model.and_then(|model| model.name.as_deref()).unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Messages {
    pub(super) data: Vec<MessageItem>,
    #[serde(default)]
    pub(super) has_more: bool,
}

#[derive(Deserialize)]
pub(super) struct Detail {
    pub(super) message: Option<MessageItem>,
}

#[derive(Deserialize)]
pub(super) struct MessageItem {
    pub(super) id: String,
    pub(super) message_tokens: Option<i64>,
    pub(super) answer_tokens: Option<i64>,
    from_source: Option<String>,
    pub(super) workflow_run_id: Option<String>,
    #[serde(default)]
    pub(super) created_at: i64,
    pub(super) metadata: Option<Box<RawValue>>,
}

impl MessageItem {
    /// Whether the message comes from the debugger: a member of the workspace wrote it in the console.
    pub(super) fn is_debugger(&self, conversation: &Conversation) -> bool {
        self.from_source.as_deref().or(conversation.from_source.as_deref()) == Some("console")
    }
}

#[derive(Default, Deserialize)]
pub(super) struct Metadata<'a> {
    #[serde(borrow, default)]
    pub(super) usage: Option<MessageUsage<'a>>,
}

#[derive(Default, Deserialize)]
pub(super) struct MessageUsage<'a> {
    #[serde(borrow, default)]
    pub(super) total_price: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) currency: Option<Cow<'a, str>>,
}

impl<'a> Metadata<'a> {
    pub(super) fn parse(raw: Option<&'a RawValue>) -> Self {
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

#[derive(Deserialize)]
pub(super) struct LogItem {
    pub(super) id: String,
    pub(super) workflow_run: RunRef,
    pub(super) created_by_account: Option<AccountRef>,
    pub(super) created_by_end_user: Option<EndUserRef>,
    pub(super) created_at: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct RunRef {
    pub(super) id: String,
    pub(super) created_at: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct AccountRef {
    pub(super) id: String,
    pub(super) email: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct EndUserRef {
    pub(super) id: String,
    pub(super) session_id: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Nodes {
    pub(super) data: Vec<NodeExecution>,
}

#[derive(Deserialize)]
pub(super) struct NodeExecution {
    pub(super) id: String,
    #[serde(default)]
    node_type: String,
    pub(super) process_data: Option<Box<RawValue>>,
    pub(super) outputs: Option<Box<RawValue>>,
    pub(super) execution_metadata: Option<Box<RawValue>>,
}

impl NodeExecution {
    pub(super) fn may_call_models(&self) -> bool {
        !crate::dify::node::NODE_TYPES_WITHOUT_MODEL.contains(&self.node_type.as_str())
    }
}
