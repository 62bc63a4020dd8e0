//! `[[gateway.routes]]`: which requests are claimed, and how. What a route does not say its preset says, and what that
//! does not say the defaults.

use std::collections::BTreeMap;
use std::time::Duration;

use ichido_core::Limits;
use ichido_http::{ContentRule, FingerprintRule, InFlight, Mode, Pointer, Preset, Route, Tenant};
use schemars::JsonSchema;
use serde::Deserialize;

use super::origins::Origins;
use super::parse::{parse, word};
use super::resolve::{Context, RawResolve, TenantKind};
use super::secrets::{RawSecrets, Secrets, signature};
use super::signature::RawSignature;
use ichido_ledger::CONTENT_KEYS_MAX;
use ichido_serve::RawSimilar;
use ichido_settings::{Invalid, OneOrMany, Secret};

/// A route as it was written. What it leaves out comes from its preset, and otherwise from the defaults.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRoute {
    /// Other defaults for the events of one sender: `slack-events`, `github`, `stripe-events`, `standard-webhooks` or
    /// `cloudevents`.
    preset: Option<String>,
    /// With `preset = "slack-events"`: the signing secrets. `SLACK_SIGNING_SECRET` overrides them.
    slack_signing_secret: Option<RawSecrets>,
    /// With `preset = "github"`: the webhook secrets. `GITHUB_WEBHOOK_SECRET` overrides them.
    github_webhook_secret: Option<RawSecrets>,
    /// With `preset = "stripe-events"`: the webhook secrets. `STRIPE_WEBHOOK_SECRET` overrides them.
    stripe_webhook_secret: Option<RawSecrets>,
    /// With `preset = "standard-webhooks"`: the secrets, `whsec_…`, or `whpk_…` for Ed25519. `STANDARD_WEBHOOKS_SECRET`
    /// overrides them.
    standard_webhooks_secret: Option<RawSecrets>,
    /// How a sender without such a preset signs its requests.
    signature: Option<RawSignature>,
    /// Methods and path: `*` matches one segment, `**` the rest. Default: `POST,PATCH /**`.
    r#match: Option<String>,
    /// `gateway`: the rule of `gateway.tenant`; or `none`.
    tenant: Option<String>,
    /// Where the key is, tried in order: `header:NAME`, `json:/pointer`, `template:{/a}_{/b}`, `fields:/a,/b`, `cloudevents` or
    /// `body`. Default: `header:Idempotency-Key`.
    key: Option<OneOrMany>,
    /// Whether a request without a key is refused. Default: `true`.
    required: Option<bool>,
    /// `enforce` (default) or `observe`.
    mode: Option<String>,
    /// What a retry gets while the first request runs: `conflict` (409, default) or `wait`.
    in_flight: Option<String>,
    /// With `in_flight = "wait"`: for how long. Default: 5000.
    #[schemars(range(min = 1, max = 600_000))]
    wait_ms: Option<u64>,
    /// What a retry gets if the first request is in doubt: `reject` (default), or `retry`, which runs it again with
    /// `Idempotency-Attempt: 2`.
    in_doubt: Option<String>,
    /// What happens while the ledger is unavailable: `closed` (503, default), `fallback`, or `open` (runs unprotected).
    outage: Option<String>,
    /// What a 5xx means: `store`, `release` or `doubt`. Default: 502, 504 and 520 to 527 are in doubt, others are stored.
    server_errors: Option<String>,
    /// What a 4xx means, except for those that release the key: `store` (default), `release` or `doubt`.
    client_errors: Option<String>,
    /// Responses with `Cache-Control: no-store`: `keep` (default) or `tombstone`.
    no_store: Option<String>,
    /// `Set-Cookie` in replays: `drop` (default) or `keep`.
    set_cookie: Option<String>,
    /// How long a response is stored. Default: 86400.
    #[schemars(range(min = 1, max = RETENTION_SECONDS_MAX))]
    retention_seconds: Option<u64>,
    /// How long a claim lasts without renewal.
    #[schemars(range(min = 100, max = LEASE_MS_MAX))]
    lease_ms: Option<u64>,
    /// How long to wait for the upstream. Default: 30000.
    #[schemars(range(min = 1, max = 3_600_000))]
    upstream_timeout_ms: Option<u64>,
    /// How a retry is told from a different request: `raw` (default), `json` (ignores order and white space) or `none`.
    fingerprint: Option<String>,
    /// JSON pointers to leave out of the fingerprint; implies `json`.
    fingerprint_ignore: Vec<String>,
    /// The content by which an event is found under another id: names, each with where its value is, as in `key`.
    content: Option<BTreeMap<String, OneOrMany>>,
    /// What such a hit means: `observe` (reported, default) or `enforce` (the event is not handled).
    content_mode: Option<String>,
    /// How near duplicates of events are found.
    similar: Option<RawSimilar>,
    /// How the service is asked whether an effect in doubt happened.
    resolve: Option<RawResolve>,
    /// Origins whose pages may read responses of this route; `*`: any, without credentials.
    cors: Option<OneOrMany>,
}

const RETENTION_SECONDS_MAX: u64 = Limits::STANDARD.retention_ms / 1000;
const LEASE_MS_MAX: u64 = Limits::STANDARD.lease_ms;

/// What the routes have in common.
pub(super) struct Shared<'a> {
    /// The credentials of a request identify its caller, unless the route has its own rule.
    pub(super) is_auto: bool,
    /// What the rule of the gateway stores of tenants.
    pub(super) tenant: TenantKind,
    pub(super) secrets: &'a Secrets,
    pub(super) resolve_authorization: Option<&'a Secret>,
}

pub(super) fn routes(
    raw: Option<Vec<RawRoute>>,
    optional_key: bool,
    shared: &Shared<'_>,
) -> Result<Vec<Route>, Invalid> {
    let raw = raw.unwrap_or_else(|| vec![RawRoute::default()]);
    if raw.is_empty() {
        return Err(Invalid::new("gateway.routes", "is empty: nothing would be protected"));
    }
    let checked = raw.into_iter().enumerate().map(|(at, route)| route.check(at, shared));
    let routes: Vec<Route> = checked.collect::<Result<_, _>>()?;
    Ok(routes.into_iter().map(|route| Route { required: route.required && !optional_key, ..route }).collect())
}

/// Who may read the answers of each route.
pub(super) fn origins(raw: Option<&[RawRoute]>) -> Result<Vec<Option<Origins>>, Invalid> {
    let Some(raw) = raw else { return Ok(vec![None]) };
    let of = |(at, route): (usize, &RawRoute)| {
        let check = |list: &OneOrMany| Origins::check(&format!("gateway.routes[{at}].cors"), &list.0);
        route.cors.as_ref().map(check).transpose()
    };
    raw.iter().enumerate().map(of).collect()
}

impl RawRoute {
    fn check(self, at: usize, shared: &Shared<'_>) -> Result<Route, Invalid> {
        let is_auto = shared.is_auto;
        let name = |field: &str| format!("gateway.routes[{at}].{field}");
        let preset: Option<Preset> =
            self.preset.as_deref().map(|text| parse(&name("preset"), text)).transpose()?;
        let base = preset.map_or_else(Route::default, Preset::route);
        let timeout = Duration::from_millis(self.upstream_timeout_ms.unwrap_or(30_000));
        let lease = Duration::from_millis(self.lease_ms.unwrap_or(30_000));
        let retention = self.retention_seconds.map_or(base.retention, Duration::from_secs);
        let wait = match base.in_flight {
            InFlight::Wait(wait) => u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            InFlight::Conflict => 5_000,
        };
        let wait = InFlight::Wait(Duration::from_millis(self.wait_ms.unwrap_or(wait)));
        let in_flight = match (self.in_flight.as_deref(), base.in_flight) {
            (None, InFlight::Conflict) | (Some("conflict"), _) => InFlight::Conflict,
            (None, InFlight::Wait(_)) | (Some("wait"), _) => wait,
            (Some(other), _) => {
                let problem = format!("is {other:?}; expected conflict or wait");
                return Err(Invalid::new(name("in_flight"), problem));
            }
        };
        let keys = match self.key {
            None => base.keys,
            Some(OneOrMany(keys)) if keys.is_empty() => {
                return Err(Invalid::new(name("key"), "is empty"));
            }
            Some(OneOrMany(keys)) => {
                keys.iter().map(|key| parse(&name("key"), key)).collect::<Result<_, _>>()?
            }
        };
        let tenant = tenant(&name("tenant"), self.tenant.as_deref(), base.tenant)?;
        let own_content = self.content.as_ref().filter(|content| !content.is_empty()).map(|_| "content");
        let own_similar = self.similar.as_ref().map(|_| "similar");
        // With `auto`, credentials identify a caller. Content keys do not contain them, so they would mix callers.
        if let (Some(field), None, true) = (own_content.or(own_similar), &tenant, is_auto) {
            let problem =
                "compares the events of all callers: set tenant = \"none\" on the route, or gateway.tenant";
            return Err(Invalid::new(name(field), problem));
        }
        let content = match self.content {
            Some(content) => content_rules(&name("content"), &content)?,
            None if tenant.is_none() && is_auto => Vec::new(),
            None => base.content,
        };
        let matches = word(&name("match"), self.r#match.as_deref(), base.matches)?;
        let resolve = self.resolve.map(|resolve| {
            let kind = if tenant.is_some() { TenantKind::None } else { shared.tenant };
            let authorization = shared.resolve_authorization;
            resolve.check(
                &name("resolve"),
                &Context { matches: &matches, keys: &keys, tenant: kind, timeout, authorization },
            )
        });
        let kind = self.fingerprint.as_deref();
        let given = [
            self.slack_signing_secret,
            self.github_webhook_secret,
            self.stripe_webhook_secret,
            self.standard_webhooks_secret,
        ];
        let of_preset = signature(&name, preset, given, shared.secrets)?;
        Ok(Route {
            preset,
            signature: match self.signature {
                Some(rule) => rule.check(&name("signature"), preset)?,
                None => of_preset,
            },
            unclaimed: base.unclaimed,
            metadata: base.metadata,
            tenant,
            content,
            content_mode: word(&name("content_mode"), self.content_mode.as_deref(), base.content_mode)?,
            similar: self.similar.map(|similar| similar.check(&name("similar"))).transpose()?,
            question: resolve.transpose()?,
            matches,
            keys,
            required: self.required.unwrap_or(base.required),
            mode: word::<Mode>(&name("mode"), self.mode.as_deref(), base.mode)?,
            in_flight,
            in_doubt: word(&name("in_doubt"), self.in_doubt.as_deref(), base.in_doubt)?,
            outage: word(&name("outage"), self.outage.as_deref(), base.outage)?,
            server_errors: match self.server_errors.as_deref() {
                Some(text) => Some(parse(&name("server_errors"), text)?),
                None => base.server_errors,
            },
            client_errors: match self.client_errors.as_deref() {
                Some(text) => Some(parse(&name("client_errors"), text)?),
                None => base.client_errors,
            },
            no_store: word(&name("no_store"), self.no_store.as_deref(), base.no_store)?,
            set_cookie: word(&name("set_cookie"), self.set_cookie.as_deref(), base.set_cookie)?,
            retention,
            lease,
            timeout: Some(timeout),
            fingerprint: fingerprint(&name, kind, &self.fingerprint_ignore, base.fingerprint)?,
        })
    }
}

fn content_rules(field: &str, content: &BTreeMap<String, OneOrMany>) -> Result<Vec<ContentRule>, Invalid> {
    if content.len() > CONTENT_KEYS_MAX {
        let problem = format!("has {} names; at most {CONTENT_KEYS_MAX} are allowed", content.len());
        return Err(Invalid::new(field, problem));
    }
    let rule = |(name, OneOrMany(sources)): (&String, &OneOrMany)| {
        let field = format!("{field}.{name}");
        if name.is_empty() || sources.is_empty() {
            return Err(Invalid::new(field, "is empty"));
        }
        let sources = sources.iter().map(|source| parse(&field, source)).collect::<Result<_, _>>()?;
        Ok(ContentRule { name: name.clone(), sources })
    };
    content.iter().map(rule).collect()
}

fn tenant(field: &str, text: Option<&str>, default: Option<Tenant>) -> Result<Option<Tenant>, Invalid> {
    match text {
        None => Ok(default),
        Some("none") => Ok(Some(Tenant::None)),
        Some("gateway") => Ok(None),
        Some(_) => Err(Invalid::new(field, "expected gateway (the rule of gateway.tenant) or none")),
    }
}

fn fingerprint(
    name: &dyn Fn(&str) -> String,
    kind: Option<&str>,
    ignore: &[String],
    default: FingerprintRule,
) -> Result<FingerprintRule, Invalid> {
    let field = name("fingerprint_ignore");
    let pointers: Vec<Pointer> =
        ignore.iter().map(|pointer| parse(&field, pointer)).collect::<Result<_, _>>()?;
    match kind {
        Some("json") => Ok(FingerprintRule::Json(pointers)),
        // Places can only be left out of JSON, so whoever names some means JSON.
        None if !pointers.is_empty() => Ok(FingerprintRule::Json(pointers)),
        Some("raw" | "none") if !pointers.is_empty() => {
            Err(Invalid::new(field, "goes with fingerprint = \"json\""))
        }
        None => Ok(default),
        Some("raw") => Ok(FingerprintRule::Raw),
        Some("none") => Ok(FingerprintRule::None),
        Some(other) => {
            Err(Invalid::new(name("fingerprint"), format!("is {other:?}; expected raw, json or none")))
        }
    }
}

#[cfg(test)]
mod tests {
    use ichido_http::{ClientErrors, InDoubt, Outage, Scheme, ServerErrors, Signature};

    use super::*;

    fn check(raw: RawRoute) -> Result<Route, Invalid> {
        let secrets = &Secrets::default();
        raw.check(
            0,
            &Shared { is_auto: true, tenant: TenantKind::None, secrets, resolve_authorization: None },
        )
    }

    fn route(text: &str) -> Route {
        let raw: RawRoute = toml::from_str(text).unwrap();
        check(raw).unwrap()
    }

    fn mistake(text: &str) -> String {
        let raw: RawRoute = toml::from_str(text).unwrap();
        check(raw).unwrap_err().to_string()
    }

    #[test]
    fn a_route_names_the_content_of_its_events() {
        let slack = route("preset = \"slack-events\"\n");
        assert_eq!(slack.content.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>(), ["file"]);
        assert_eq!((slack.content_mode, slack.similar), (Mode::Observe, None));
        let own = route(
            "preset = \"github\"\ncontent = { sha = \"json:/after\", where = [\"json:/a\", \"fields:/b,/c\"] }\n\
             content_mode = \"enforce\"\nsimilar = { fields = [\"/text\"], threshold = 0.8, window = \"1h\", mode = \"enforce\" }\n",
        );
        assert_eq!((own.content.len(), own.content[1].sources.len()), (2, 2));
        let similar = own.similar.unwrap();
        assert_eq!((similar.options.threshold, similar.options.window.as_secs()), (0.8, 3_600));
        assert_eq!((own.content_mode, similar.mode), (Mode::Enforce, Mode::Enforce));
        assert_eq!(route("preset = \"slack-events\"\ncontent = {}\n").content, []);
    }

    #[test]
    fn mistakes_in_content_are_named() {
        for (text, expected) in [
            (
                "preset = \"github\"\ncontent = { a = \"json:x\" }",
                "gateway.routes[0].content.a: \"x\" is not a JSON pointer",
            ),
            ("preset = \"github\"\ncontent = { a = [] }", "gateway.routes[0].content.a: is empty"),
            (
                "preset = \"github\"\ncontent_mode = \"on\"",
                "gateway.routes[0].content_mode: \"on\" is not one of",
            ),
            (
                "preset = \"github\"\nsimilar = { fields = [\"text\"] }",
                "gateway.routes[0].similar.fields: \"text\"",
            ),
            (
                "similar = { fields = [\"/text\"] }",
                "gateway.routes[0].similar: compares the events of all callers",
            ),
            (
                "content = { a = \"json:/x\" }",
                "gateway.routes[0].content: compares the events of all callers",
            ),
        ] {
            let message = mistake(text);
            assert!(message.starts_with(expected), "{text}: {message}");
        }
    }

    #[test]
    fn a_route_says_what_it_wants() {
        let route = route(
            "match = \"POST /orders/*\"\nkey = [\"json:/id\", \"body\"]\nrequired = false\nin_flight = \"wait\"\nwait_ms = 10\n\
             in_doubt = \"retry\"\noutage = \"fallback\"\nserver_errors = \"release\"\nclient_errors = \"doubt\"\n\
             fingerprint = \"json\"\nfingerprint_ignore = [\"/at\"]\n",
        );
        assert_eq!(route.in_flight, InFlight::Wait(Duration::from_millis(10)));
        assert_eq!((route.in_doubt, route.server_errors), (InDoubt::Retry, Some(ServerErrors::Release)));
        assert_eq!((route.client_errors, route.outage), (Some(ClientErrors::Doubt), Outage::Fallback));
        assert_eq!(route.fingerprint, FingerprintRule::Json(vec!["/at".parse().unwrap()]));
        assert!(!route.required && route.preset.is_none());
    }

    #[test]
    fn a_preset_says_what_the_route_does_not() {
        let slack = route("preset = \"slack-events\"\n");
        assert_eq!(slack.describe(), "POST /** (slack-events)");
        assert_eq!((slack.retention, slack.required), (Duration::from_secs(21_600), false));
        assert_eq!(slack.in_flight, InFlight::Wait(Duration::from_millis(2500)));
        assert_eq!((slack.outage, slack.server_errors), (Outage::Fallback, Some(ServerErrors::Doubt)));
        assert_eq!(slack.fingerprint, FingerprintRule::None);
        for (preset, days) in
            [("github", 4), ("stripe-events", 4), ("standard-webhooks", 4), ("cloudevents", 1)]
        {
            let route = route(&format!("preset = {preset:?}\n"));
            assert_eq!(route.retention, Duration::from_secs(days * 86_400), "{preset}");
            assert!(route.required && route.signature.is_none(), "{preset}");
            assert_eq!(route.in_flight, InFlight::Wait(Duration::from_secs(5)));
        }
    }

    #[test]
    fn what_a_route_says_goes_before_its_preset() {
        let route = route(
            "preset = \"slack-events\"\nmatch = \"POST /slack/events\"\nkey = \"json:/event/ts\"\nrequired = true\n\
             in_flight = \"conflict\"\noutage = \"closed\"\nserver_errors = \"release\"\nclient_errors = \"store\"\n\
             retention_seconds = 60\nfingerprint = \"raw\"\ntenant = \"gateway\"\nslack_signing_secret = \"hunter2\"\n",
        );
        assert_eq!(route.describe(), "POST /slack/events (slack-events)");
        assert_eq!(route.keys, ["json:/event/ts".parse().unwrap()]);
        assert_eq!((route.in_flight, route.outage), (InFlight::Conflict, Outage::Closed));
        assert_eq!((route.retention, route.required), (Duration::from_secs(60), true));
        assert_eq!(route.fingerprint, FingerprintRule::Raw);
        assert_eq!(route.server_errors, Some(ServerErrors::Release));
        assert!(route.tenant.is_none() && route.unclaimed.is_some());
        assert_eq!(route.signature.as_ref().map(Signature::scheme), Some(&Scheme::Slack));
        assert!(!format!("{route:?}").contains("hunter2"));
    }

    #[test]
    fn a_wait_of_another_length_is_still_a_wait() {
        let route = route("preset = \"slack-events\"\nwait_ms = 100\n");
        assert_eq!(route.in_flight, InFlight::Wait(Duration::from_millis(100)));
    }

    #[test]
    fn what_is_compared_is_left_to_the_key_unless_the_route_says_it() {
        for key in ["key = \"fields:/a,/b\"\n", "key = \"json:/a\"\n", ""] {
            assert_eq!(route(key).fingerprint, FingerprintRule::Standard, "{key}");
        }
        assert_eq!(route("key = [\"fields:/a\"]\nfingerprint = \"raw\"\n").fingerprint, FingerprintRule::Raw);
    }
}
