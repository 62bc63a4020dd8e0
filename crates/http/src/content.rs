//! What an event is known by in addition to its key: parts of its content, and its text.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use ichido_core::{ClaimRequest, Index, Key, Scope, to_hex};
use ichido_ledger::{ContentCheck, ContentHit, ContentKey, ContentMode, Ledger};
use ichido_similar::{Keep, Remembered, SimilarText, SimilarTexts};
use metrics::counter;

use crate::json::Document;
use crate::options::Mode;
use crate::pointer::Pointer;
use crate::rules::Route;

const SAME_CONTENT: HeaderName = HeaderName::from_static("idempotency-same-content");
const SIMILAR: HeaderName = HeaderName::from_static("idempotency-similar-to");

/// What an event is known by in addition to its key.
#[derive(Debug, Default)]
pub(crate) struct EventContent {
    keys: Vec<ContentKey>,
    text: Option<String>,
    /// Only events of the same tenant and operation are compared.
    space: String,
}

/// The values of the body that the content of a route needs.
pub(crate) fn pointers<'a>(route: &'a Route, headers: &HeaderMap) -> Vec<&'a Pointer> {
    let sources = route.content.iter().flat_map(|rule| &rule.sources);
    let texts = route.similar.iter().flat_map(|rule| &rule.fields);
    sources.flat_map(|source| source.pointers(headers)).chain(texts).collect()
}

impl EventContent {
    /// The content of a request. What it does not have, or what cannot be a key, is left out: the key decides.
    pub(crate) fn of(
        route: &Route,
        scope: &Scope,
        headers: &HeaderMap,
        document: &Document<'_>,
        body_digest: [u8; 32],
    ) -> Self {
        if route.content.is_empty() && route.similar.is_none() {
            return Self::default();
        }
        let space = match scope.tenant.as_str() {
            "" => format!("{} ", scope.route),
            tenant => format!("{}:{tenant} {} ", tenant.len(), scope.route),
        };
        let keys = route.content.iter().filter_map(|rule| {
            let value = rule.sources.iter().find_map(|source| {
                let in_headers = source.in_headers(headers, false).ok().flatten();
                in_headers.or_else(|| source.in_body(document, body_digest).ok().flatten())
            });
            ContentKey::new(&space, &rule.name, &value?).ok()
        });
        let keys = keys.collect();
        let text = route.similar.as_ref().and_then(|rule| {
            let texts: Vec<&str> = rule.fields.iter().filter_map(|field| document.text(field)).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        });
        Self { keys, text, space }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.text.is_none()
    }
}

/// What hits on content and near duplicates mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Modes {
    content: Mode,
    similar: Mode,
}

impl Modes {
    /// Everything is only reported.
    pub(crate) const OBSERVE: Self = Self { content: Mode::Observe, similar: Mode::Observe };

    pub(crate) fn of(route: &Route) -> Self {
        let similar = route.similar.as_ref().map_or(Mode::Observe, |rule| rule.mode);
        Self { content: route.content_mode, similar }
    }

    /// Whether an event may be refused.
    pub(crate) fn is_enforced(self) -> bool {
        [self.content, self.similar].contains(&Mode::Enforce)
    }
}

/// Another event has the same content, or a similar text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Report {
    SameContent {
        /// The name of the content.
        name: String,
        /// The other event: the hash of its key, as in the log.
        event: String,
    },
    Similar {
        /// The other event.
        event: String,
        score: f64,
    },
}

impl Report {
    fn of_hit(hit: &ContentHit, scope: &Scope) -> Self {
        let event = Key::new(scope.clone(), hit.event.as_str()).map(|key| hash(key.index()));
        Self::SameContent { name: hit.name.clone(), event: event.unwrap_or_default() }
    }

    pub(crate) fn same_content(&self) -> Option<&str> {
        match self {
            Self::SameContent { event, .. } => Some(event),
            Self::Similar { .. } => None,
        }
    }

    pub(crate) fn similar(&self) -> Option<&str> {
        match self {
            Self::Similar { event, .. } => Some(event),
            Self::SameContent { .. } => None,
        }
    }

    /// As a structured field: the event as a string, with a parameter.
    fn header(&self) -> (HeaderName, Option<HeaderValue>) {
        let (name, value) = match self {
            Self::SameContent { name, event } => {
                let name = name.replace('\\', "\\\\").replace('"', "\\\"");
                (SAME_CONTENT, format!("\"{event}\";key=\"{name}\""))
            }
            Self::Similar { event, score } => (SIMILAR, format!("\"{event}\";score={score:.3}")),
        };
        (name, HeaderValue::from_str(&value).ok())
    }
}

/// The first sixteen digits of the index: what the log prints.
fn hash(index: Index) -> String {
    to_hex(&index.as_bytes()[..8])
}

/// Adds reports to the headers of a response.
pub(crate) fn report(headers: &mut HeaderMap, reports: &[Report]) {
    for report in reports {
        if let (name, Some(value)) = report.header() {
            headers.append(name, value);
        }
    }
}

/// What the content of an event says.
#[derive(Debug, Default)]
pub(crate) struct Finding {
    pub(crate) reports: Vec<Report>,
    /// The text of the event, which is forgotten unless it is confirmed.
    pub(crate) remembered: Option<Remembered>,
    pub(crate) verdict: Verdict,
}

/// Whether an event is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    #[default]
    Run,
    /// An event with the same content was handled.
    SameContent,
    /// An event with a similar text was handled.
    Similar,
    /// Such an event is running.
    InFlight,
}

/// Compares a claimed event with others, and remembers it for others.
pub(crate) async fn examine(
    ledger: &Ledger,
    texts: Option<&Arc<SimilarTexts>>,
    claim: &ClaimRequest,
    content: EventContent,
    modes: Modes,
) -> ichido_ledger::Result<Finding> {
    let mut finding = Finding::default();
    if !content.keys.is_empty() {
        let mode = match modes.content {
            Mode::Observe => ContentMode::Observe,
            Mode::Enforce => ContentMode::Enforce,
        };
        let checked = ledger.check_content(&claim.key, content.keys, claim.retention_ms, mode).await?;
        let (hits, verdict) = match checked {
            ContentCheck::Handle(hits) => (hits, Verdict::Run),
            ContentCheck::Handled(hit) => (vec![hit], Verdict::SameContent),
            ContentCheck::InFlight(hit) => (vec![hit], Verdict::InFlight),
        };
        let count = hits.len() as u64;
        counter!("ichido_events_same_content_total", "mode" => modes.content.as_str()).increment(count);
        finding.reports.extend(hits.iter().map(|hit| Report::of_hit(hit, claim.key.scope())));
        finding.verdict = verdict;
    }
    if let (Verdict::Run, Some(texts), Some(text)) = (finding.verdict, texts, &content.text) {
        let keep = match modes.similar {
            Mode::Observe => Keep::Always,
            Mode::Enforce => Keep::IfDifferent,
        };
        let checked = texts.check(&content.space, &hash(claim.key.index()), text, keep);
        finding.remembered = checked.remembered;
        if let Some(SimilarText { event, score, is_confirmed }) = checked.similar {
            counter!("ichido_events_similar_total", "mode" => modes.similar.as_str()).increment(1);
            finding.reports.push(Report::Similar { event, score });
            finding.verdict = match (modes.similar, is_confirmed) {
                (Mode::Observe, _) => Verdict::Run,
                (Mode::Enforce, true) => Verdict::Similar,
                (Mode::Enforce, false) => Verdict::InFlight,
            };
        }
    }
    Ok(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_structured_fields() {
        let mut headers = HeaderMap::new();
        let event = "5feceb66ffc86f38".to_owned();
        let reports = [
            Report::SameContent { name: "a \"file\"".to_owned(), event: event.clone() },
            Report::Similar { event, score: 0.9166 },
        ];
        report(&mut headers, &reports);
        assert_eq!(headers[SAME_CONTENT], r#""5feceb66ffc86f38";key="a \"file\"""#);
        assert_eq!(headers[SIMILAR], r#""5feceb66ffc86f38";score=0.917"#);
    }
}
