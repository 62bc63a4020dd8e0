//! The table itself: creates it, or checks the existing one.
//!
//! Marks need `PutItem`, `GetItem` and `DescribeTable`. Claims need `UpdateItem` and `DeleteItem` as well, listing
//! and sweeping need `Scan`, and `init` needs `CreateTable` and `UpdateTimeToLive`.

use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, MultiRegionConsistency, ScalarAttributeType,
    TableDescription, TableStatus, Tag, TimeToLiveDescription, TimeToLiveSpecification, TimeToLiveStatus,
};

use super::error;
use super::settings::Regions;
use super::table::{EVENT_KEY, TTL, Table};
use crate::{BoxError, Error, Kind, Result};

/// How long a new table may take to become active, and how often to ask.
const ACTIVE_WITHIN: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(250);

const CHECKING: &str = "checking the DynamoDB table";
const CREATING: &str = "creating the DynamoDB table";

/// Creates or checks the table, and enables time to live.
pub(super) async fn init(table: &Table, regions: Regions) -> Result<()> {
    if describe(table).await?.is_none() {
        create(table).await?;
    }
    let table_now = active(table).await?;
    verify(table, &table_now, regions)?;
    if is_time_to_live_enabled(table).await {
        return Ok(());
    }
    match enable_time_to_live(table).await {
        // Another process may have been faster.
        Err(_) if is_time_to_live_enabled(table).await => Ok(()),
        result => result,
    }
}

/// Checks the table. Returns warnings for the operator.
pub(super) async fn check(table: &Table, regions: Regions) -> Result<Vec<String>> {
    let Some(description) = describe(table).await? else {
        return Err(Error::new(Kind::Schema(error::no_table(&table.name)), CHECKING));
    };
    let mut warnings: Vec<String> = verify(table, &description, regions)?.into_iter().collect();
    if !is_ready(&description) {
        let status = description.table_status().map_or("unknown", TableStatus::as_str);
        warnings.push(format!("table {}: its status is {status}, so it may not accept calls", table.name));
    }
    warnings.extend(match time_to_live(table).await {
        Ok(settings) => time_to_live_warning(table, settings.as_ref()),
        Err(_) => Some(format!(
            "table {}: cannot check whether DynamoDB removes expired items (DescribeTimeToLive failed)",
            table.name
        )),
    });
    Ok(warnings)
}

async fn describe(table: &Table) -> Result<Option<TableDescription>> {
    match table.client.describe_table().table_name(&table.name).send().await {
        Ok(answer) => Ok(answer.table),
        Err(error) if error::is_no_table(&error) => Ok(None),
        Err(error) => Err(error::failed_read(&table.name, CHECKING, &error)),
    }
}

/// The key must be as expected, and only one region may write. Returns a warning, if there is one.
fn verify(table: &Table, found: &TableDescription, regions: Regions) -> Result<Option<String>> {
    let expected = "event_key (S, HASH)";
    let layout = layout(found);
    let name = &table.name;
    if layout != expected {
        let advice = "name another table, or recreate this one";
        let text = format!("table {name} has the key {layout}, but {expected} is needed; {advice}");
        return Err(Error::new(Kind::Schema(text), CHECKING));
    }
    let strong = found.multi_region_consistency() == Some(&MultiRegionConsistency::Strong);
    if found.replicas().is_empty() || strong {
        return Ok(None);
    }
    let count = found.replicas().len();
    let why = "each region evaluates conditions separately and the last writer wins, so two regions can be granted one key";
    match regions {
        Regions::Confirmed => Ok(Some(format!("table {name} has {count} replicas in other regions: {why}"))),
        Regions::One => {
            let advice =
                "if only one region writes, confirm that with multi_region=confirmed in the ledger's URL";
            let text = format!("table {name} has {count} replicas in other regions: {why}; {advice}");
            Err(Error::new(Kind::Schema(text), CHECKING))
        }
    }
}

/// The key of a table as text: each part with its type and role.
fn layout(found: &TableDescription) -> String {
    let parts = found.key_schema().iter().map(|part| {
        let name = part.attribute_name();
        let defined = found.attribute_definitions().iter().find(|defined| defined.attribute_name() == name);
        let kind = defined.map_or("?", |defined| defined.attribute_type().as_str());
        format!("{name} ({kind}, {})", part.key_type().as_str())
    });
    parts.collect::<Vec<_>>().join(" + ")
}

async fn create(table: &Table) -> Result<()> {
    match request(table, true)?.send().await {
        Ok(_) => return Ok(()),
        Err(error) if error.code() == Some("ResourceInUseException") => return Ok(()),
        Err(error) if error.code() != Some("ValidationException") && !error::is_denied(&error) => {
            return Err(error::failed(&table.name, CREATING, &error));
        }
        // The server does not support tags, or the role may not set them. A table without a tag works as well.
        Err(_) => {}
    }
    let untagged = request(table, false)?.send().await;
    untagged.map(drop).map_err(|error| error::failed(&table.name, CREATING, &error))
}

fn request(
    table: &Table,
    tagged: bool,
) -> Result<aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder> {
    let attribute = AttributeDefinition::builder()
        .attribute_name(EVENT_KEY)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .map_err(build_failed)?;
    let key = KeySchemaElement::builder().attribute_name(EVENT_KEY).key_type(KeyType::Hash).build();
    let tag = Tag::builder().key("Application").value("ichido").build().map_err(build_failed)?;
    Ok(table
        .client
        .create_table()
        .table_name(&table.name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute)
        .key_schema(key.map_err(build_failed)?)
        .set_tags(tagged.then(|| vec![tag])))
}

fn is_ready(found: &TableDescription) -> bool {
    let status = found.table_status();
    status == Some(&TableStatus::Active) || status == Some(&TableStatus::Updating)
}

async fn active(table: &Table) -> Result<TableDescription> {
    let waiting = async {
        loop {
            if let Some(found) = describe(table).await?
                && is_ready(&found)
            {
                return Ok(found);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    let late = |_| {
        Error::new(Kind::Timeout, "waiting for the new DynamoDB table to become active").with_unknown_effect()
    };
    tokio::time::timeout(ACTIVE_WITHIN, waiting).await.map_err(late)?
}

async fn time_to_live(table: &Table) -> Result<Option<TimeToLiveDescription>> {
    match table.client.describe_time_to_live().table_name(&table.name).send().await {
        Ok(answer) => Ok(answer.time_to_live_description),
        Err(error) => Err(error::failed_read(&table.name, CHECKING, &error)),
    }
}

async fn is_time_to_live_enabled(table: &Table) -> bool {
    time_to_live(table).await.is_ok_and(|settings| settings.is_some_and(|settings| is_enabled(&settings)))
}

fn is_enabled(settings: &TimeToLiveDescription) -> bool {
    let status = settings.time_to_live_status();
    status == Some(&TimeToLiveStatus::Enabled) || status == Some(&TimeToLiveStatus::Enabling)
}

fn time_to_live_warning(table: &Table, settings: Option<&TimeToLiveDescription>) -> Option<String> {
    let name = &table.name;
    match settings.filter(|settings| is_enabled(settings)) {
        None => Some(format!(
            "table {name}: time to live is off, so expired items stay until a sweep; run `ichido ledger init` to turn it on"
        )),
        Some(settings) if settings.attribute_name() != Some(TTL) => {
            let other = settings.attribute_name().unwrap_or("?");
            Some(format!(
                "table {name}: time to live uses attribute {other}, not {TTL}, so expired items stay until a sweep"
            ))
        }
        Some(_) => None,
    }
}

async fn enable_time_to_live(table: &Table) -> Result<()> {
    let specification = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build();
    let call = table.client.update_time_to_live().table_name(&table.name);
    let call = call.time_to_live_specification(specification.map_err(build_failed)?);
    match call.send().await {
        Ok(_) => Ok(()),
        Err(error) => Err(error::failed(&table.name, "turning on time to live in DynamoDB", &error)),
    }
}

fn build_failed(error: impl Into<BoxError>) -> Error {
    Error::new(Kind::Unsupported("the AWS client rejected the request".to_owned()), CREATING).caused_by(error)
}
