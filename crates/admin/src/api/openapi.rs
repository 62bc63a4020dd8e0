//! The OpenAPI document. Its paths come from the routes, so a route cannot be served without being described.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{OpenApi, ServerBuilder};
use utoipa::{Modify, OpenApi as _};

use super::problems::{self, AccessProblems};
use super::schemas::Problem;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "ichido: claim API and admin port",
        version = env!("CARGO_PKG_VERSION"),
        description = "Each event is new once; each effect runs once. Every request is checked as a whole first, so a \
                       refused request changes nothing. A null field counts as absent. Outside loopback, a token is \
                       required.",
        license(name = "MIT OR Apache-2.0"),
    ),
    security((), ("token" = [])),
    tags(
        (name = "events", description = "One-phase: an event is marked when it is checked."),
        (name = "claims", description = "Two-phase: claim, run the effect, then complete."),
        (name = "operators", description = "Inspection and repair."),
        (name = "process", description = "Health and metrics."),
    ),
    components(schemas(Problem)),
    modifiers(&SharedComponents),
)]
struct Base;

/// Adds what the macro cannot express: the server, the token and the shared responses.
struct SharedComponents;

impl Modify for SharedComponents {
    fn modify(&self, document: &mut OpenApi) {
        document.servers = Some(vec![ServerBuilder::new().url("/").build()]);
        let components = document.components.get_or_insert_default();
        let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        components.add_security_scheme("token", token);
        components
            .responses
            .extend(problems::components().map(|(name, response)| (name.to_owned(), response.into())));
    }
}

/// The document without its paths.
pub(super) fn base() -> OpenApi {
    Base::openapi()
}

/// Written once: it is the same for every process of this version.
static DOCUMENT: LazyLock<Bytes> =
    LazyLock::new(|| super::routes().to_openapi().to_json().unwrap_or_default().into());

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi", tag = "process",
    responses((status = 200, description = "OpenAPI 3.1.", body = Object, content_type = "application/json"), AccessProblems),
)]
pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone()).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn refs(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(
                    fields
                        .get("$ref")
                        .and_then(Value::as_str)
                        .map(|path| path.trim_start_matches('#').to_owned()),
                );
                fields.values().for_each(|value| refs(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| refs(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_reference_resolves_and_every_component_is_used() {
        let document: Value = serde_json::from_slice(&DOCUMENT).unwrap();
        let mut used = BTreeSet::new();
        refs(&document, &mut used);
        for path in &used {
            assert!(document.pointer(path).is_some(), "{path} does not exist");
        }
        for kind in ["schemas", "responses"] {
            for name in document["components"][kind].as_object().unwrap().keys() {
                assert!(used.contains(&format!("/components/{kind}/{name}")), "{name} is not used");
            }
        }
    }

    /// Generated clients name their methods after the operations.
    #[test]
    fn operations_keep_their_ids() {
        let document: Value = serde_json::from_slice(&DOCUMENT).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        let paths = document["paths"].as_object().unwrap().iter();
        let operations: BTreeSet<String> = paths
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().iter().map(move |(method, operation)| {
                    format!("{method} {path} {}", operation["operationId"].as_str().unwrap())
                })
            })
            .collect();
        let expected = [
            "get /healthz alive",
            "get /metrics metrics",
            "get /openapi.json openapi",
            "get /readyz ready",
            "get /v1/claims listClaims",
            "get /v1/claims/one showClaim",
            "get /v1/claims/triage triageClaims",
            "get /v1/events listEvents",
            "get /v1/events/one showEvent",
            "get /v1/history/anomalies anomalies",
            "get /v1/history/timeline timeline",
            "get /v1/ledger/capabilities capabilities",
            "get /v1/ledger/stats stats",
            "get /v1/trace trace",
            "post /v1/claims claim",
            "post /v1/claims/ask askService",
            "post /v1/claims/complete completeClaim",
            "post /v1/claims/doubt doubtClaim",
            "post /v1/claims/erase eraseClaim",
            "post /v1/claims/forget forgetClaim",
            "post /v1/claims/release releaseClaim",
            "post /v1/claims/release-by-operator releaseByOperator",
            "post /v1/claims/renew renewClaim",
            "post /v1/claims/resolve resolveClaim",
            "post /v1/claims/resolve-all resolveClaims",
            "post /v1/events/check checkEvents",
            "post /v1/events/erase eraseEvent",
            "post /v1/events/forget forgetEvent",
            "post /v1/ledger/backup backup",
            "post /v1/ledger/compact compact",
            "post /v1/ledger/sweep sweep",
            "post /v1/ledger/verify verify",
        ];
        assert_eq!(operations, expected.map(str::to_owned).into());
    }
}
