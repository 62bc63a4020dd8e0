//! `resolve` of a route: how the service is asked whether an effect in doubt happened.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, StatusCode};
use ichido_http::{
    AnswerKept, Automatic, KeySource, Match, Placeholder, Question, QuestionPath, Schedule, is_answer,
};
use ichido_settings::{Invalid, Secret};
use schemars::JsonSchema;
use serde::Deserialize;

const AFTER_SECONDS: u64 = 60;
const SETTLE_SECONDS: u64 = 300;
const TIMEOUT_MS: u64 = 5_000;

/// How the service is asked, as it was written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawResolve {
    /// What to request with `GET`, such as `/orders?key={key}`; also `{path}` and `{tenant}`. Required.
    get: Option<String>,
    /// The status that says that the effect happened. Default: 200.
    #[schemars(range(min = 200, max = 499))]
    done: Option<u16>,
    /// The status that says that it did not happen. Not set: no status does.
    #[schemars(range(min = 200, max = 499))]
    absent: Option<u16>,
    /// What retries get after `done`: `none` (409 `answer-not-kept`, default), or `response`, the service's answer to this request.
    answer: Option<String>,
    /// Which answers settle a claim without an operator: `done` (default), `both` or `off`.
    automatic: Option<String>,
    /// How long a claim is in doubt before the service is asked. Default: 60.
    #[schemars(range(min = 0, max = 86_400))]
    after_seconds: Option<u64>,
    /// How long after the doubt began the effect may still happen; until then `absent` is not believed. Default: 300; with
    /// `automatic = "both"` it must be set.
    #[schemars(range(min = 1, max = 2_592_000))]
    settle_seconds: Option<u64>,
    /// How long to wait for the answer. Default: 5000.
    #[schemars(range(min = 1, max = 60_000))]
    timeout_ms: Option<u64>,
    /// Headers to send. The caller's are not stored.
    headers: Option<BTreeMap<String, Secret>>,
}

/// What else of the settings a question depends on.
pub(super) struct Context<'a> {
    pub(super) matches: &'a Match,
    pub(super) keys: &'a [KeySource],
    pub(super) tenant: TenantKind,
    /// How long a request may run.
    pub(super) timeout: Duration,
    /// `Authorization` of all questions.
    pub(super) authorization: Option<&'a Secret>,
}

/// What is stored of the tenant of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TenantKind {
    /// There is none.
    None,
    /// Its hash.
    Hashed,
    /// Its name.
    Named,
}

impl TenantKind {
    /// What the rule of the gateway stores.
    pub(super) fn of_rule(rule: Option<&str>) -> Self {
        match rule {
            None | Some("auto" | "none") => Self::None,
            Some(rule) if rule.starts_with("jwt:") => Self::Named,
            Some(_) => Self::Hashed,
        }
    }
}

impl RawResolve {
    pub(super) fn check(self, name: &str, context: &Context<'_>) -> Result<Question, Invalid> {
        let field = |field: &str| format!("{name}.{field}");
        let get = self.get.as_deref().ok_or_else(|| {
            Invalid::new(field("get"), "is not set; expected something like \"/orders?key={key}\"")
        })?;
        let get: QuestionPath = parse(&field("get"), get)?;
        context.check(name, &get)?;
        let done = status(&field("done"), self.done.unwrap_or(200))?;
        let absent = self.absent.map(|code| status(&field("absent"), code)).transpose()?;
        if absent == Some(done) {
            return Err(Invalid::new(field("absent"), "is the same status as done"));
        }
        let automatic = word(&field("automatic"), self.automatic.as_deref(), Automatic::Done)?;
        if automatic == Automatic::Both && absent.is_none() {
            return Err(Invalid::new(field("absent"), "must be set for automatic = \"both\""));
        }
        if automatic == Automatic::Both && self.settle_seconds.is_none() {
            let problem = "must be set for automatic = \"both\": only you know how long after its last sign of life a \
                           request may still take effect";
            return Err(Invalid::new(field("settle_seconds"), problem));
        }
        let settle = self.settle_seconds.map(Duration::from_secs);
        if settle.is_some_and(|settle| settle < context.timeout) {
            let problem =
                "is shorter than upstream_timeout_ms of the route: the request may still be running";
            return Err(Invalid::new(field("settle_seconds"), problem));
        }
        let mut headers = Vec::new();
        for (header, value) in self.headers.unwrap_or_default() {
            headers.push(header_of(&format!("{name}.headers.{header}"), &header, &value)?);
        }
        if let Some(authorization) = context.authorization {
            headers.retain(|(header, _)| *header != AUTHORIZATION);
            headers.push(header_of("gateway.resolve_authorization", AUTHORIZATION.as_str(), authorization)?);
        }
        Ok(Question {
            get,
            headers,
            done,
            absent,
            answer: word(&field("answer"), self.answer.as_deref(), AnswerKept::None)?,
            timeout: Duration::from_millis(self.timeout_ms.unwrap_or(TIMEOUT_MS)),
            schedule: Schedule {
                automatic,
                after: Duration::from_secs(self.after_seconds.unwrap_or(AFTER_SECONDS)),
                settle: settle.unwrap_or(Duration::from_secs(SETTLE_SECONDS).max(context.timeout)),
            },
        })
    }
}

impl Context<'_> {
    /// An answer about another operation with the same key would be worse than none.
    fn check(&self, name: &str, get: &QuestionPath) -> Result<(), Invalid> {
        let is_hash =
            |key: &KeySource| matches!(key, KeySource::Fields(_) | KeySource::Body | KeySource::CloudEvent);
        let problem = if !self.matches.is_one_method() {
            "the route must match one method: the same key with another one is another operation"
        } else if !self.matches.is_one_path() && !get.names(Placeholder::Path) {
            "must contain {path}, because the route matches several paths: the same key on another one is another operation"
        } else if self.keys.iter().any(is_hash) {
            "the service does not know the key: the route must take it from header:, json: or template:"
        } else {
            match (self.tenant, get.names(Placeholder::Tenant)) {
                (TenantKind::None, false) | (TenantKind::Named, true) => return Ok(()),
                (TenantKind::None, true) => "contains {tenant}, and keys of this route have none",
                (TenantKind::Named, false) => "must contain {tenant}: tenants may use the same key",
                (TenantKind::Hashed, _) => {
                    "keys of this route belong to tenants that are stored as hashes, so the service cannot be asked about them"
                }
            }
        };
        Err(Invalid::new(format!("{name}.get"), problem))
    }
}

fn status(field: &str, code: u16) -> Result<StatusCode, Invalid> {
    StatusCode::from_u16(code).ok().filter(|status| is_answer(*status)).ok_or_else(|| {
        let problem =
            format!("is {code}, which says nothing about an effect; expected a status such as 200 or 404");
        Invalid::new(field, problem)
    })
}

fn header_of(field: &str, name: &str, value: &Secret) -> Result<(HeaderName, HeaderValue), Invalid> {
    let invalid = |problem: &str| Invalid::new(field, problem);
    let name = HeaderName::from_str(name).map_err(|_| invalid("is not the name of a header"))?;
    let mut value = HeaderValue::try_from(value.expose())
        .map_err(|_| invalid("contains a line break or another control character"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn parse<T: FromStr<Err: fmt::Display>>(name: &str, text: &str) -> Result<T, Invalid> {
    text.parse().map_err(|error: T::Err| Invalid::new(name, error.to_string()))
}

fn word<T: FromStr<Err: fmt::Display>>(name: &str, text: Option<&str>, default: T) -> Result<T, Invalid> {
    text.map_or(Ok(default), |text| parse(name, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_on(matches: &str, key: &str, tenant: TenantKind, text: &str) -> Result<Question, String> {
        let raw: RawResolve = toml::from_str(text).unwrap();
        let (matches, keys) = (matches.parse().unwrap(), [key.parse().unwrap()]);
        let authorization = Secret::from("Bearer hunter2".to_owned());
        let (timeout, authorization) = (Duration::from_secs(30), Some(&authorization));
        let context = Context { matches: &matches, keys: &keys, tenant, timeout, authorization };
        raw.check("routes[0].resolve", &context).map_err(|invalid| invalid.to_string())
    }

    fn check(text: &str) -> Result<Question, String> {
        check_on("POST /orders", "header:Idempotency-Key", TenantKind::None, text)
    }

    #[test]
    fn the_defaults_are_cautious() {
        let question = check("get = \"/orders?key={key}\"").unwrap();
        assert_eq!((question.done, question.absent), (StatusCode::OK, None));
        assert_eq!(question.answer, AnswerKept::None);
        let (after, settle) = (Duration::from_secs(60), Duration::from_secs(300));
        assert_eq!(question.schedule, Schedule { automatic: Automatic::Done, after, settle });
        assert!(!format!("{question:?}").contains("hunter2"));
    }

    #[test]
    fn mistakes_are_named() {
        const GET: &str = "get = \"/orders?key={key}\"\n";
        for (text, expected) in [
            ("", "routes[0].resolve.get: is not set"),
            ("get = \"/orders\"", "routes[0].resolve.get: \"/orders\" does not contain {key}"),
            ("get = \"/{tenant}?key={key}\"", "routes[0].resolve.get: contains {tenant}"),
            (&format!("{GET}done = 302"), "routes[0].resolve.done: is 302"),
            (&format!("{GET}absent = 401"), "routes[0].resolve.absent: is 401"),
            (&format!("{GET}absent = 200"), "routes[0].resolve.absent: is the same status"),
            (&format!("{GET}automatic = \"yes\""), "routes[0].resolve.automatic: \"yes\" is not one of"),
            (&format!("{GET}automatic = \"both\""), "routes[0].resolve.absent: must be set"),
            (
                &format!("{GET}automatic = \"both\"\nabsent = 404"),
                "routes[0].resolve.settle_seconds: must be set",
            ),
            (&format!("{GET}settle_seconds = 29"), "routes[0].resolve.settle_seconds: is shorter than"),
            (&format!("{GET}answer = \"body\""), "routes[0].resolve.answer: \"body\" is not one of"),
            (
                &format!("{GET}headers = {{ \"a b\" = \"x\" }}"),
                "routes[0].resolve.headers.a b: is not the name",
            ),
            (
                &format!("{GET}headers = {{ X-Key = \"hunter2\\n\" }}"),
                "routes[0].resolve.headers.X-Key: contains",
            ),
        ] {
            let message = check(text).unwrap_err();
            assert!(message.starts_with(expected) && !message.contains("hunter2"), "{text}: {message}");
        }
    }

    #[test]
    fn a_question_that_could_be_about_another_operation_is_refused() {
        const GET: &str = "get = \"/orders?key={key}\"";
        let none = TenantKind::None;
        for (matches, key, tenant, expected) in [
            ("POST,PATCH /orders", "json:/id", none, "must match one method"),
            ("POST /**", "json:/id", none, "must contain {path}"),
            ("POST /orders", "body", none, "does not know the key"),
            ("POST /orders", "json:/id", TenantKind::Named, "must contain {tenant}"),
            ("POST /orders", "json:/id", TenantKind::Hashed, "stored as hashes"),
        ] {
            let message = check_on(matches, key, tenant, GET).unwrap_err();
            assert!(message.contains(expected), "{matches} {key}: {message}");
        }
        let question = "get = \"{path}?key={key}&account={tenant}\"";
        check_on("POST /shops/*/orders", "json:/id", TenantKind::Named, question).unwrap();
    }
}
