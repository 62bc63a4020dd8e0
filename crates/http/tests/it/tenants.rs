//! Tenants: keys of different tenants are separate.

use http::request::Parts;
use ichido_http::{Rules, Tenant, TenantError, TenantResolver};
use std::sync::Arc;

use crate::support::{AnyBody, Instance, Store, Upstream, on_embedded_ledgers, order, route, rules};

on_embedded_ledgers! {
    tenants_with_the_same_key_do_not_share_responses,
    cookies_without_a_tenant_are_refused,
    credentials_in_other_headers_without_a_tenant_are_refused,
    a_cookie_can_identify_the_tenant,
    callers_can_share_one_key_space,
    a_custom_tenant_is_accepted_or_refused,
    no_secret_reaches_the_ledger,
}

fn by_authorization() -> Rules {
    Rules { tenant: Tenant::Header(http::header::AUTHORIZATION), ..rules(route()) }
}

fn with(name: &'static str, value: &str) -> http::Request<AnyBody> {
    let mut request = order("k");
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

async fn tenants_with_the_same_key_do_not_share_responses(store: Store) {
    let instance = Instance::of(store.ledger().await, by_authorization(), &Upstream::counting());
    instance.send(with("authorization", "Bearer alice")).await.assert_first(201, "run 1");
    instance.send(with("authorization", "Bearer bob")).await.assert_first(201, "run 2");
    instance.send(order("k")).await.assert_first(201, "run 3");
    instance.send(with("authorization", "Bearer alice")).await.assert_replay(201, "run 1");
    instance.send(with("authorization", "Bearer bob")).await.assert_replay(201, "run 2");
    instance.send(order("k")).await.assert_replay(201, "run 3");
}

async fn cookies_without_a_tenant_are_refused(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::of(store.ledger().await, by_authorization(), &upstream);
    instance.send(with("cookie", "sid=1")).await.assert_problem(400, "tenant-unknown");
    let mut both = with("cookie", "sid=1");
    both.headers_mut().insert("authorization", "Bearer alice".parse().unwrap());
    instance.send(both).await.assert_first(201, "run 1");
    assert_eq!(upstream.runs(), 1);
}

async fn credentials_in_other_headers_without_a_tenant_are_refused(store: Store) {
    let upstream = Upstream::counting();
    let instance = Instance::of(store.ledger().await, by_authorization(), &upstream);
    for name in ["x-api-key", "api-key", "x-auth-token", "x-access-token"] {
        let refused = instance.send(with(name, "hunter2")).await;
        refused.assert_problem(400, "tenant-unknown");
        assert!(refused.text().contains(name) && !refused.text().contains("hunter2"), "{refused:?}");
    }
    assert_eq!(upstream.runs(), 0);
    let named = Tenant::Header(http::HeaderName::from_static("x-api-key"));
    let instance = Instance::of(store.ledger().await, Rules { tenant: named, ..rules(route()) }, &upstream);
    instance.send(with("x-api-key", "alice")).await.assert_first(201, "run 1");
    instance.send(with("x-api-key", "bob")).await.assert_first(201, "run 2");
    instance.send(with("x-api-key", "alice")).await.assert_replay(201, "run 1");
}

async fn a_cookie_can_identify_the_tenant(store: Store) {
    let rules = Rules { tenant: Tenant::Cookie("sid".to_owned()), ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &Upstream::counting());
    instance.send(with("cookie", "theme=dark; sid=1")).await.assert_first(201, "run 1");
    instance.send(with("cookie", "sid=2; theme=dark")).await.assert_first(201, "run 2");
    instance.send(with("cookie", "sid=1")).await.assert_replay(201, "run 1");
    instance.send(with("cookie", "theme=dark; xsid=1")).await.assert_problem(400, "tenant-unknown");
}

async fn callers_can_share_one_key_space(store: Store) {
    let rules = Rules { tenant: Tenant::None, ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &Upstream::counting());
    instance.send(with("authorization", "Bearer alice")).await.assert_first(201, "run 1");
    instance.send(with("cookie", "sid=1")).await.assert_replay(201, "run 1");
}

#[derive(Debug)]
struct Subject;

impl TenantResolver for Subject {
    fn tenant(&self, parts: &Parts) -> Result<Option<String>, TenantError> {
        match parts.headers.get("x-subject").map(|subject| subject.to_str().unwrap()) {
            Some("forged") => Err(TenantError::Unverified("the token is forged".to_owned())),
            other => Ok(other.map(ToOwned::to_owned)),
        }
    }

    fn describe(&self) -> String {
        "the subject".to_owned()
    }
}

async fn a_custom_tenant_is_accepted_or_refused(store: Store) {
    let upstream = Upstream::counting();
    let rules = Rules { tenant: Tenant::Custom(Arc::new(Subject)), ..rules(route()) };
    let instance = Instance::of(store.ledger().await, rules, &upstream);
    instance.send(with("x-subject", "alice")).await.assert_first(201, "run 1");
    instance.send(with("x-subject", "bob")).await.assert_first(201, "run 2");
    let forged = instance.send(with("x-subject", "forged")).await;
    forged.assert_problem(401, "tenant-unknown");
    assert!(forged.headers.contains_key("www-authenticate"));
    assert_eq!(upstream.runs(), 2);
}

async fn no_secret_reaches_the_ledger(store: Store) {
    let instance = Instance::new(&store, route(), &Upstream::counting()).await;
    let mut request = with("authorization", "Bearer hunter2");
    *request.uri_mut() = "/orders?token=hunter2".parse().unwrap();
    instance.send(request).await.assert_first(201, "run 1");
    let listed = instance.claims().await;
    assert_eq!(listed.len(), 1);
    assert!(!format!("{listed:?}").contains("hunter2"));
}
