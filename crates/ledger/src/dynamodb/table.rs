//! The verbs on one item of one table, each a single request.
//!
//! A write carries a condition. When it fails, the server is asked for the item that is in the way; a server that
//! leaves it out (Amazon's local one does, and so may others) is asked again with a consistent read. The two are not
//! one step: whoever decides on what was read must write under a condition that still holds it.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use super::error;
use crate::Result;

/// The partition key, and the name that consumers written after the seed use.
pub(super) const EVENT_KEY: &str = "event_key";
/// When DynamoDB may remove the item, in seconds since the epoch. A reserved word: expressions say `#ttl`.
pub(super) const TTL: &str = "ttl";

/// The attributes of an item, by name.
pub(super) type Item = HashMap<String, AttributeValue>;

/// A table and the way to it.
#[derive(Clone)]
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) name: String,
}

/// What became of a conditional write.
pub(super) enum Written {
    /// It is there. For an update, with the attributes that it changed.
    Applied(Item),
    /// The condition failed; this item is in the way, or none is.
    Refused(Option<Item>),
}

/// A condition, with the values that it and an update expression name.
pub(super) struct Condition {
    pub(super) expression: &'static str,
    pub(super) values: Vec<(&'static str, AttributeValue)>,
}

impl Condition {
    /// No such item.
    pub(super) fn absent() -> Self {
        Self { expression: "attribute_not_exists(event_key)", values: Vec::new() }
    }

    fn values(self) -> Option<HashMap<String, AttributeValue>> {
        let values: HashMap<_, _> =
            self.values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Some(values).filter(|values| !values.is_empty())
    }
}

impl Table {
    /// The item under a key, as of now.
    pub(super) async fn get(&self, event_key: &str, doing: &'static str) -> Result<Option<Item>> {
        let call = self.client.get_item().table_name(&self.name).consistent_read(true);
        match call.key(EVENT_KEY, text(event_key)).send().await {
            Ok(found) => Ok(found.item.filter(|item| !item.is_empty())),
            Err(error) => Err(error::failed_read(&self.name, doing, &error)),
        }
    }

    /// Puts an item in place of whatever the condition allows.
    pub(super) async fn put(&self, item: Item, condition: Condition, doing: &'static str) -> Result<Written> {
        let event_key = key_of(&item).to_owned();
        let call = self
            .client
            .put_item()
            .table_name(&self.name)
            .set_item(Some(item))
            .condition_expression(condition.expression)
            .set_expression_attribute_names(names(&[condition.expression]))
            .set_expression_attribute_values(condition.values())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let error = match call.send().await {
            Ok(_) => return Ok(Written::Applied(Item::new())),
            Err(error) => error,
        };
        if let Some(PutItemError::ConditionalCheckFailedException(refusal)) = error.as_service_error() {
            return self.refused(&event_key, refusal.item(), doing).await;
        }
        Err(error::failed(&self.name, doing, &error))
    }

    /// Changes an item; `update` and the condition share their values.
    pub(super) async fn update(
        &self,
        event_key: &str,
        update: &str,
        condition: Condition,
        doing: &'static str,
    ) -> Result<Written> {
        let call = self
            .client
            .update_item()
            .table_name(&self.name)
            .key(EVENT_KEY, text(event_key))
            .update_expression(update)
            .condition_expression(condition.expression)
            .set_expression_attribute_names(names(&[update, condition.expression]))
            .set_expression_attribute_values(condition.values())
            .return_values(ReturnValue::UpdatedNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let error = match call.send().await {
            Ok(updated) => return Ok(Written::Applied(updated.attributes.unwrap_or_default())),
            Err(error) => error,
        };
        if let Some(UpdateItemError::ConditionalCheckFailedException(refusal)) = error.as_service_error() {
            return self.refused(event_key, refusal.item(), doing).await;
        }
        Err(error::failed(&self.name, doing, &error))
    }

    /// Removes an item.
    pub(super) async fn delete(
        &self,
        event_key: &str,
        condition: Condition,
        doing: &'static str,
    ) -> Result<Written> {
        let call = self
            .client
            .delete_item()
            .table_name(&self.name)
            .key(EVENT_KEY, text(event_key))
            .condition_expression(condition.expression)
            .set_expression_attribute_names(names(&[condition.expression]))
            .set_expression_attribute_values(condition.values())
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let error = match call.send().await {
            Ok(_) => return Ok(Written::Applied(Item::new())),
            Err(error) => error,
        };
        if let Some(DeleteItemError::ConditionalCheckFailedException(refusal)) = error.as_service_error() {
            return self.refused(event_key, refusal.item(), doing).await;
        }
        Err(error::failed(&self.name, doing, &error))
    }

    async fn refused(
        &self,
        event_key: &str,
        returned: Option<&Item>,
        doing: &'static str,
    ) -> Result<Written> {
        match returned.filter(|item| !item.is_empty()) {
            Some(item) => Ok(Written::Refused(Some(item.clone()))),
            None => Ok(Written::Refused(self.get(event_key, doing).await?)),
        }
    }
}

/// The key of an item.
pub(super) fn key_of(item: &Item) -> &str {
    item.get(EVENT_KEY).and_then(|key| key.as_s().ok()).map_or("", String::as_str)
}

/// A text. An empty one is `NULL`: servers before 2020 refuse empty strings, and read both alike.
pub(super) fn text(text: impl Into<String>) -> AttributeValue {
    let text = text.into();
    if text.is_empty() { AttributeValue::Null(true) } else { AttributeValue::S(text) }
}

/// A number.
pub(super) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// The reserved words that the expressions use. The server refuses names that are not used.
pub(super) fn names(expressions: &[&str]) -> Option<HashMap<String, String>> {
    let uses_ttl = expressions.iter().any(|expression| expression.contains("#ttl"));
    uses_ttl.then(|| HashMap::from([("#ttl".to_owned(), TTL.to_owned())]))
}
