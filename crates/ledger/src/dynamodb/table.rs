//! Operations on one item, each a single request.
//!
//! Every write carries a condition. If it fails, the server returns the existing item. Some servers leave it out,
//! Amazon's DynamoDB Local for example; then it is read with a consistent read. The two are not one step: whoever
//! decides based on the item must write under a condition that still includes it.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};

use super::error;
use crate::Result;

/// The partition key, under the name that all consumers of the table use.
pub(super) const EVENT_KEY: &str = "event_key";
/// When DynamoDB may remove the item, in seconds since the epoch. The name is reserved, so expressions use `#ttl`.
pub(super) const TTL: &str = "ttl";

/// The attributes of an item, by name.
pub(super) type Item = HashMap<String, AttributeValue>;

/// A table, and the client to access it.
#[derive(Clone)]
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) name: String,
}

/// The result of a conditional write.
pub(super) enum Written {
    /// It was written. For an update, contains the changed attributes.
    Applied(Item),
    /// The condition failed. Contains the existing item, if there is one.
    Refused(Option<Item>),
}

/// A condition, and the values of all placeholders in it and in the update expression.
pub(super) struct Condition {
    pub(super) expression: &'static str,
    pub(super) values: Vec<(&'static str, AttributeValue)>,
}

impl Condition {
    /// No such item exists.
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
    /// The current item under a key.
    pub(super) async fn get(&self, event_key: &str, doing: &'static str) -> Result<Option<Item>> {
        let call = self.client.get_item().table_name(&self.name).consistent_read(true);
        match call.key(EVENT_KEY, text(event_key)).send().await {
            Ok(found) => Ok(found.item.filter(|item| !item.is_empty())),
            Err(error) => Err(error::failed_read(&self.name, doing, &error)),
        }
    }

    /// Puts an item if the condition holds.
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

/// A text. An empty one is `NULL`: servers before 2020 refuse empty strings. Both are read alike.
pub(super) fn text(text: impl Into<String>) -> AttributeValue {
    let text = text.into();
    if text.is_empty() { AttributeValue::Null(true) } else { AttributeValue::S(text) }
}

/// A number.
pub(super) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// The reserved names that the expressions use. The server refuses names that are not used.
pub(super) fn names(expressions: &[&str]) -> Option<HashMap<String, String>> {
    let uses_ttl = expressions.iter().any(|expression| expression.contains("#ttl"));
    uses_ttl.then(|| HashMap::from([("#ttl".to_owned(), TTL.to_owned())]))
}
