//! A webhook of the operator's own: it gets each message as JSON ([`Message::to_json`]).

use std::sync::Arc;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use ichido_core::Clock;
use ichido_settings::Invalid;
use secrecy::ExposeSecret;

use super::channel::{Channel, Failure};
use super::message::Message;
use super::post::Post;
use super::settings::WebhookSettings;
use crate::invalid::invalid;
use crate::tls_roots::TlsRoots;

/// A retry of the same message has the same key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A webhook.
#[derive(Debug)]
pub struct Webhook {
    post: Post,
    origin: String,
    authorization: Option<HeaderValue>,
}

impl Webhook {
    /// Creates a channel to the configured webhook.
    pub fn new(settings: &WebhookSettings, roots: &TlsRoots, clock: Arc<dyn Clock>) -> Result<Self, Invalid> {
        let mut post = Post::new("notify_webhook_url", settings.url.clone(), roots, clock)?;
        let mut authorization = None;
        if let Some(token) = &settings.token {
            post.hide(token);
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
                .map_err(|_| invalid("notify_webhook_token", "must be visible ASCII"))?;
            value.set_sensitive(true);
            authorization = Some(value);
        }
        Ok(Self { post, origin: settings.origin.clone(), authorization })
    }
}

#[async_trait::async_trait]
impl Channel for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn describe(&self) -> String {
        format!("webhook at {}", self.origin)
    }

    async fn send(&self, message: &Message) -> Result<(), Failure> {
        let mut headers = HeaderMap::new();
        if let Ok(id) = HeaderValue::from_str(&message.id) {
            headers.insert(IDEMPOTENCY_KEY, id);
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        self.post.send(message.to_json().to_string(), headers).await
    }
}
