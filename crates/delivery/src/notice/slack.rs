//! Slack, through an incoming webhook.

use std::sync::Arc;

use http::HeaderMap;
use ichido_core::Clock;
use ichido_settings::Invalid;
use secrecy::SecretString;

use super::channel::{Channel, Failure};
use super::message::Message;
use super::post::Post;
use crate::tls_roots::TlsRoots;

/// Slack shows about 40,000 characters; nobody reads that many.
const TEXT_CHARS_MAX: usize = 12_000;

/// An incoming webhook.
#[derive(Debug)]
pub struct Slack(Post);

impl Slack {
    /// Creates a channel to the webhook at `url`, which [`super::Settings`] has validated.
    pub fn new(url: SecretString, roots: &TlsRoots, clock: Arc<dyn Clock>) -> Result<Self, Invalid> {
        Post::new("slack_webhook_url", url, roots, clock).map(Self)
    }
}

#[async_trait::async_trait]
impl Channel for Slack {
    fn name(&self) -> &'static str {
        "slack"
    }

    fn describe(&self) -> String {
        "Slack".to_owned()
    }

    async fn send(&self, message: &Message) -> Result<(), Failure> {
        let body = serde_json::json!({ "text": slack_text(message) }).to_string();
        self.0.send(body, HeaderMap::new()).await
    }
}

/// The subject in bold, then the text. Slack's three markup characters are escaped.
fn slack_text(message: &Message) -> String {
    let mut text: String = message.text.chars().take(TEXT_CHARS_MAX).collect();
    if text.len() < message.text.len() {
        text.push('…');
    }
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!("*{}*\n{}", escape(&message.subject), escape(text.trim_end()))
}
