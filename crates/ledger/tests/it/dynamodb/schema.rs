//! Valid and invalid tables.

use std::error::Error as _;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TimeToLiveSpecification,
};
use ichido_ledger::{Backend, Effect, Kind, Maintain};
use ichido_testkit::tcp_proxy::Fault;

use super::support::{Server, ask, clock, event, granted};

pub(crate) async fn init_creates_the_shared_table_and_is_idempotent(server: Server) {
    let (ledger, other) = (server.unprepared(&clock()).await, server.unprepared(&clock()).await);
    let (first, second) = tokio::join!(ledger.init(), other.init());
    first.unwrap();
    second.unwrap();
    ledger.init().await.unwrap();
    assert_eq!(ledger.check().await.unwrap(), Vec::<String>::new());
    let client = server.client().await;
    let table = client.describe_table().table_name(&server.table).send().await.unwrap().table.unwrap();
    let key: Vec<_> =
        table.key_schema().iter().map(|part| (part.attribute_name(), part.key_type())).collect();
    assert_eq!(key, [("event_key", &KeyType::Hash)]);
    let mode = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    assert_eq!(mode, Some(&BillingMode::PayPerRequest));
}

async fn create(server: &Server, name: &str, kind: ScalarAttributeType) {
    let attribute = AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap();
    let key = KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash).build().unwrap();
    let call = server.client().await.create_table().table_name(&server.table);
    let call = call.attribute_definitions(attribute).key_schema(key).billing_mode(BillingMode::PayPerRequest);
    call.send().await.unwrap();
}

pub(crate) async fn wrong_key_is_named(server: Server) {
    create(&server, "id", ScalarAttributeType::N).await;
    let ledger = server.unprepared(&clock()).await;
    for error in [ledger.check().await.unwrap_err(), ledger.init().await.unwrap_err()] {
        let Kind::Schema(text) = error.kind() else { panic!("{error}") };
        assert!(text.contains("id (N, HASH)") && text.contains("event_key (S, HASH)"), "{text}");
    }
    let error = ledger.claim(&ask("k1")).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Schema(_)), "{error}");
    assert!(!error.is_outage(), "a fallback must not hide a wrong table");
}

pub(crate) async fn missing_table_is_an_outage_for_callers(server: Server) {
    let ledger = server.unprepared(&clock()).await;
    for error in
        [ledger.claim(&ask("k1")).await.unwrap_err(), ledger.mark(&[event("Ev1")]).await.unwrap_err()]
    {
        assert_eq!((error.kind(), error.effect()), (&Kind::Unavailable, Effect::None));
        let cause = error.source().expect("a cause").to_string();
        assert!(cause.contains(&server.table) && cause.contains("`ichido ledger init`"), "{cause}");
    }
    let error = ledger.check().await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Schema(text) if text.contains("`ichido ledger init`")), "{error}");
    ledger.init().await.unwrap();
    granted(&ledger, &ask("k1")).await;
}

pub(crate) async fn replicas_need_confirmation(server: Server) {
    server.ledger(&clock()).await;
    let proxy = server.proxy();
    let description = r#"{"Table":{"TableStatus":"ACTIVE",
        "AttributeDefinitions":[{"AttributeName":"event_key","AttributeType":"S"}],
        "KeySchema":[{"AttributeName":"event_key","KeyType":"HASH"}],
        "Replicas":[{"RegionName":"eu-west-1"}]CONSISTENCY}}"#;
    let describe = |consistency: &str| {
        let body = description.replace("CONSISTENCY", consistency);
        proxy.set(Fault::Answer { to: "DescribeTable", times: 1, status: 200, body });
    };
    let ledger = server.through(&proxy, &clock()).await;
    describe("");
    let error = ledger.check().await.unwrap_err();
    let Kind::Schema(text) = error.kind() else { panic!("{error}") };
    assert!(text.contains("last writer wins") && text.contains("multi_region=confirmed"), "{text}");
    describe(r#","MultiRegionConsistency":"STRONG""#);
    assert_eq!(ledger.check().await.unwrap(), Vec::<String>::new(), "one winner in all regions");

    let endpoint = format!("http://{}", proxy.address());
    let confirmed = server.at(&endpoint, "&multi_region=confirmed", &clock()).await;
    describe("");
    let warnings = confirmed.check().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("last writer wins"), "{warnings:?}");
}

pub(crate) async fn time_to_live_that_is_off_or_hidden_is_a_warning(server: Server) {
    create(&server, "event_key", ScalarAttributeType::S).await;
    let proxy = server.proxy();
    let ledger = server.through(&proxy, &clock()).await;
    let warnings = ledger.check().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("time to live is off"), "{warnings:?}");

    let body = r#"{"__type":"AccessDeniedException","message":"injected"}"#.to_owned();
    proxy.set(Fault::Answer { to: "DescribeTimeToLive", times: 1, status: 400, body });
    let warnings = ledger.check().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("DescribeTimeToLive"), "{warnings:?}");

    let other = TimeToLiveSpecification::builder().attribute_name("expires").enabled(true).build().unwrap();
    let call = server.client().await.update_time_to_live().table_name(&server.table);
    call.time_to_live_specification(other).send().await.unwrap();
    let warnings = ledger.check().await.unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("attribute expires"), "{warnings:?}");
}
