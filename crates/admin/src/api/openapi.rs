//! What this port understands, for programs: OpenAPI 3.1.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header;

/// The description, but for the version.
const TEXT: &str = include_str!("openapi.json");
const VERSION: &str = "\"version\": \"0\"";

pub(super) async fn described() -> Response {
    let version = concat!("\"version\": \"", env!("CARGO_PKG_VERSION"), "\"");
    let text = TEXT.replacen(VERSION, version, 1);
    ([(header::CONTENT_TYPE, "application/json")], Bytes::from(text)).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn described() -> Value {
        assert_eq!(TEXT.matches(VERSION).count(), 1);
        serde_json::from_str(TEXT).unwrap()
    }

    #[test]
    fn every_route_of_the_port_is_described() {
        let routes = include_str!("../api.rs").split(".route(\"").skip(1).flat_map(|rest| {
            let (path, handlers) = rest.split_once("\", ").unwrap();
            let handlers = handlers.split_once(")\n").unwrap().0;
            ["get", "post"]
                .into_iter()
                .filter(move |method| handlers.contains(&format!("{method}(")))
                .map(move |method| format!("{method} {path}"))
        });
        let routes: BTreeSet<String> = routes.collect();
        assert!(routes.len() > 12, "{routes:?}");
        let text = described();
        let paths = text["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
        });
        assert_eq!(routes, paths.collect::<BTreeSet<_>>());
    }

    /// Every `$ref` leads somewhere, and nothing is described that nobody refers to.
    #[test]
    fn the_description_hangs_together() {
        let text = described();
        let parts: BTreeSet<String> = TEXT
            .split("\"$ref\": \"#")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned())
            .collect();
        for part in &parts {
            assert!(text.pointer(part).is_some(), "{part}");
        }
        for kind in ["schemas", "responses", "parameters"] {
            for name in text["components"][kind].as_object().into_iter().flatten().map(|(name, _)| name) {
                assert!(parts.contains(&format!("/components/{kind}/{name}")), "nobody refers to {name}");
            }
        }
    }
}
