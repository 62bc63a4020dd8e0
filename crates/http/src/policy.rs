//! The published rules: which operations need a key, its format, and how long responses are stored.

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use crate::key::MAX_CHARS;
use crate::key_source::KeySource;
use crate::options::{InDoubt, Mode, Preset};
use crate::problem;
use crate::rules::{FingerprintRule, InFlight, Route, Rules, SimilarRule};
use crate::signature::Signature;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}\
table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{text-align:left;vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid #ccc}\
code{background:#f2f2f2;padding:.1rem .25rem;border-radius:3px;overflow-wrap:anywhere}td code{white-space:nowrap}.scroll{overflow-x:auto}:target{background:#fff3c4}\
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}code{background:#2a2a2a}th,td{border-color:#444}:target{background:#4a3d00}a{color:#8ab4f8}}";

/// The published rules, rendered once.
#[derive(Debug)]
pub(crate) struct Policy {
    path: String,
    html: Bytes,
    json: Bytes,
}

impl Policy {
    pub(crate) fn new(rules: &Rules) -> Self {
        let json = to_json(rules);
        Self {
            path: rules.policy_path.clone(),
            html: to_html(rules).into(),
            json: serde_json::to_vec_pretty(&json).unwrap_or_default().into(),
        }
    }

    /// The response, if the request asks for the rules.
    pub(crate) fn respond<B: From<Bytes>>(&self, parts: &Parts) -> Option<Response<B>> {
        let rest = parts.uri.path().strip_prefix(self.path.as_str())?;
        let is_code = rest.strip_prefix('/').is_some_and(|code| problem::ALL.iter().any(|row| row.1 == code));
        if !(rest.is_empty() || is_code) || !(parts.method == Method::GET || parts.method == Method::HEAD) {
            return None;
        }
        let accept = parts.headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (content_type, body) = if accept.contains("text/html") {
            ("text/html; charset=utf-8", &self.html)
        } else {
            ("application/json", &self.json)
        };
        let mut response = Response::new(B::from(body.clone()));
        *response.status_mut() = StatusCode::OK;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
        headers.insert(VARY, HeaderValue::from_static("accept"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Some(response)
    }
}

fn to_json(rules: &Rules) -> Value {
    let operations = rules.routes.iter().map(|route| {
        json!({
            "match": route.matches.to_string(),
            "preset": route.preset.map(Preset::as_str),
            "signature": route.signature.as_ref().map(Signature::header),
            "key": route.keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "required": route.required && route.mode == Mode::Enforce,
            "mode": route.mode.as_str(),
            "remembered_seconds": route.retention.as_secs(),
            "compared": compared(route),
            "while_running": while_running(route),
            "in_doubt": in_doubt(route),
            "same_content": same_content(route),
            "similar": route.similar.as_ref().map(similar),
        })
    });
    let problems = problem::ALL.iter().map(|(_, code, status, title, advice)| {
        json!({"type": format!("{}/{code}", rules.policy_path), "status": status, "title": title, "advice": advice})
    });
    json!({
        "field": "Idempotency-Key",
        "key": {
            "format": if rules.strict_keys { "RFC 9651 String" } else { "RFC 9651 String, with or without quotes" },
            "min_characters": 1,
            "max_characters": MAX_CHARS,
            "recommended": "a new UUID for each operation, and the same one for each retry",
        },
        "scope": rules.tenant.describe(),
        "max_body_bytes": rules.body_max_bytes,
        "operations": operations.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
    })
}

fn compared(route: &Route) -> &'static str {
    let hashes_fields = |source: &KeySource| source.hashes_fields();
    match route.fingerprint {
        FingerprintRule::Standard if route.keys.iter().all(hashes_fields) => "not compared",
        FingerprintRule::Standard if route.keys.iter().any(hashes_fields) => {
            "the body, byte by byte, unless the key is made of its fields"
        }
        FingerprintRule::Standard | FingerprintRule::Raw => "the body, byte by byte",
        FingerprintRule::Json(_) => "the body as JSON, regardless of order and white space",
        FingerprintRule::None => "not compared",
    }
}

fn while_running(route: &Route) -> String {
    match route.in_flight {
        InFlight::Conflict => "409 immediately".to_owned(),
        InFlight::Wait(time) => format!("waits for the first response, at most {} ms", time.as_millis()),
    }
}

fn in_doubt(route: &Route) -> &'static str {
    match route.in_doubt {
        InDoubt::Reject => "409 until the outcome is known",
        InDoubt::Retry => "runs again with the same key",
    }
}

/// The content by which an event is found under another id, if there is any.
fn same_content(route: &Route) -> Option<Value> {
    let fields = route.content.iter().map(|rule| {
        let sources: Vec<_> = rule.sources.iter().map(ToString::to_string).collect();
        json!({ "name": rule.name, "in": sources })
    });
    let fields: Vec<_> = fields.collect();
    (!fields.is_empty()).then(|| json!({ "mode": route.content_mode.as_str(), "fields": fields }))
}

fn similar(rule: &SimilarRule) -> Value {
    json!({
        "mode": rule.mode.as_str(),
        "fields": rule.fields.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "threshold": rule.options.threshold,
        "window_seconds": rule.options.window.as_secs(),
    })
}

fn to_html(rules: &Rules) -> String {
    let json = to_json(rules);
    let operations = json["operations"].as_array().into_iter().flatten();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Idempotency-Key rules" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { "Idempotency-Key rules" }
                    p {
                        "Requests to this API are safe to retry. Send the header " code { "Idempotency-Key" }
                        " with a new value, such as a UUID, for each operation, and "
                        strong { "the same value on each retry" } " of that operation."
                    }
                    p {
                        "Format: " (json["key"]["format"].as_str().unwrap_or_default()) ", 1 to " (MAX_CHARS)
                        " characters. Scope: " (rules.tenant.describe()) ". The same key with a different path, query or \
                        method is a different operation. Events carry their own ids, so their senders need no such header. \
                        A replayed response has the header " code { "Idempotency-Replayed: true" } "."
                    }
                    h2 { "Operations" }
                    div.scroll {
                        table {
                            thead {
                                tr {
                                    th { "Operation" } th { "Key" } th { "Stored for" } th { "Compared" }
                                    th { "While the first request runs" } th { "In doubt" }
                                }
                            }
                            tbody { @for operation in operations { (operation_row(operation)) } }
                        }
                    }
                    h2 { "Problems" }
                    div.scroll {
                        table {
                            thead { tr { th { "Type" } th { "Status" } th { "Meaning" } th { "What to do" } } }
                            tbody {
                                @for (_, code, status, title, advice) in problem::ALL {
                                    tr id=(code) { td { code { (code) } } td { (status) } td { (title) } td { (advice) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    page.into_string()
}

fn operation_row(operation: &Value) -> Markup {
    let text = |name: &str| operation[name].as_str().unwrap_or_default();
    let required = match (operation["mode"].as_str(), operation["required"].as_bool()) {
        (Some("observe"), _) => "observed only",
        (_, Some(true)) => "required",
        _ => "optional",
    };
    let keys = operation["key"].as_array().into_iter().flatten().filter_map(Value::as_str);
    html! {
        tr {
            td {
                code { (text("match")) }
                @if let Some(preset) = operation["preset"].as_str() { br; "events: " (preset) }
                @if let Some(header) = operation["signature"].as_str() { br; "signed in " code { (header) } }
            }
            td {
                (required) br;
                @for (at, key) in keys.enumerate() {
                    @if at > 0 { ", " }
                    code { (key) }
                }
            }
            td { (operation["remembered_seconds"]) " s" }
            td { (text("compared")) (content(operation)) }
            td { (text("while_running")) }
            td { (text("in_doubt")) }
        }
    }
}

/// How an event is found under another id.
fn content(operation: &Value) -> Markup {
    let rule = |name: &str| Some(&operation[name]).filter(|rule| !rule.is_null());
    let names = |rule: &Value| {
        let fields = rule["fields"].as_array().into_iter().flatten();
        let names = fields.filter_map(|field| field.as_str().or_else(|| field["name"].as_str()));
        names.collect::<Vec<_>>().join(", ")
    };
    let means = |rule: &Value| match rule["mode"].as_str() {
        Some("enforce") => "not run again",
        _ => "reported",
    };
    html! {
        @if let Some(same) = rule("same_content") {
            br; "same content under another id (" (names(same)) "): " (means(same))
        }
        @if let Some(similar) = rule("similar") {
            br; "similar text within " (similar["window_seconds"]) " s (" (names(similar)) ", "
            (similar["threshold"]) " or more): " (means(similar))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::rules::ContentRule;

    fn get(path: &str, accept: &str) -> Option<Response<Bytes>> {
        get_of(Route::default(), path, accept)
    }

    fn get_of(route: Route, path: &str, accept: &str) -> Option<Response<Bytes>> {
        let rules = Rules {
            routes: vec![Route { matches: "POST /a/<b>".parse().unwrap(), ..route }],
            ..Rules::default()
        };
        let request = Request::get(path).header("accept", accept).body(()).unwrap();
        Policy::new(&rules).respond(&request.into_parts().0)
    }

    #[test]
    fn the_rules_are_published_as_json_and_html() {
        let json = get("/.well-known/idempotency", "*/*").unwrap();
        let json: Value = serde_json::from_slice(json.body()).unwrap();
        assert_eq!(json["operations"][0]["remembered_seconds"], 86_400);
        assert_eq!(json["operations"][0]["required"], true);
        assert_eq!(json["key"]["max_characters"], 255);
        assert_eq!(json["problems"].as_array().unwrap().len(), problem::ALL.len());
        let html = get("/.well-known/idempotency/in-doubt", "text/html,*/*").unwrap();
        let html = std::str::from_utf8(html.body()).unwrap();
        assert!(html.contains("POST /a/&lt;b&gt;") && html.contains("id=\"in-doubt\""), "{html}");
    }

    #[test]
    fn content_rules_are_published() {
        let plain = get("/.well-known/idempotency", "*/*").unwrap();
        let plain: Value = serde_json::from_slice(plain.body()).unwrap();
        assert!(
            plain["operations"][0]["same_content"].is_null() && plain["operations"][0]["similar"].is_null()
        );
        let route = Route {
            content: vec![ContentRule {
                name: "file".to_owned(),
                sources: vec!["json:/event/file_id".parse().unwrap()],
            }],
            similar: Some(SimilarRule {
                fields: vec!["/text".parse().unwrap()],
                options: ichido_similar::Options::default(),
                mode: Mode::Enforce,
            }),
            ..Route::default()
        };
        let json = get_of(route.clone(), "/.well-known/idempotency", "*/*").unwrap();
        let json: Value = serde_json::from_slice(json.body()).unwrap();
        let fields = json!([{ "name": "file", "in": ["json:/event/file_id"] }]);
        assert_eq!(json["operations"][0]["same_content"], json!({ "mode": "observe", "fields": fields }));
        assert_eq!(json["operations"][0]["similar"]["threshold"], 0.9);
        let html = get_of(route, "/.well-known/idempotency", "text/html").unwrap();
        let html = std::str::from_utf8(html.body()).unwrap();
        assert!(
            html.contains("another id (file): reported") && html.contains("0.9 or more): not run again"),
            "{html}"
        );
    }

    #[test]
    fn other_paths_belong_to_the_service() {
        assert!(get("/.well-known/idempotency2", "*/*").is_none());
        assert!(get("/.well-known/idempotency/unknown", "*/*").is_none());
        assert!(get("/", "*/*").is_none());
    }
}
