//! What was counted, out of what `/metrics` prints: one source for dashboards and for the console.

/// Counters since the process began.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Totals {
    /// Effects that were allowed and not called off: claims granted, events that were new.
    pub(super) effects: u64,
    /// Repeats that were answered with what was known: claims that were done, events that were seen.
    pub(super) replays: u64,
    /// Repeats that came while the first was under way, and keys used for another request.
    pub(super) conflicts: u64,
    /// Answers that said: nobody knows.
    pub(super) doubts: u64,
    /// Requests that were refused before anything ran: no key, a bad key, too large.
    pub(super) refused: u64,
    /// Requests that ran nothing for want of a ledger, of room, or of a service behind.
    pub(super) unserved: u64,
    /// Answers with a status of 500 or more.
    pub(super) errors: u64,
    /// Requests that passed without a claim, though they may have had effects.
    pub(super) unprotected: u64,
    /// Effects that may have happened twice.
    pub(super) suspected_twice: u64,
    /// The ledger is out, and the local one answers.
    pub(super) degraded: bool,
    /// How often the ledger was out.
    pub(super) outages: u64,
    /// Whether there is a ledger to fall back to.
    pub(super) has_fallback: bool,
    /// Notices that a channel took, by channel.
    pub(super) notices_sent: Vec<(String, u64)>,
    /// Records of usage that a meter had counted before.
    pub(super) records_repeated: u64,
}

impl Totals {
    pub(super) fn read(page: &str) -> Self {
        let mut totals = Self::default();
        let (mut held, mut refused_by_gateway, mut released) = (0, None::<u64>, 0);
        for line in page.lines().filter(|line| line.starts_with("ichido_")) {
            let Some((name, labels, value)) = parts(line) else { continue };
            let is = |label: &str, word: &str| label_of(labels, label) == Some(word);
            match name {
                "ichido_ledger_claims_total" if is("answer", "granted") => totals.effects += value,
                "ichido_ledger_claims_total" if is("answer", "done") => totals.replays += value,
                "ichido_ledger_claims_total" if is("answer", "in-doubt") => totals.doubts += value,
                "ichido_ledger_claims_total" => held += value,
                // The ledger would not know of repeats within one call.
                "ichido_events_checked_total" if is("result", "new") => totals.effects += value,
                "ichido_events_checked_total" => totals.replays += value,
                "ichido_requests_total" => {
                    let told_to_wait = refused_by_gateway.get_or_insert(0);
                    match label_of(labels, "outcome") {
                        Some("conflict" | "mismatch" | "caller-changed") => *told_to_wait += value,
                        Some("refused") => totals.refused += value,
                        Some("unavailable" | "overloaded") => totals.unserved += value,
                        Some("released") => released += value,
                        Some("unkeyed" | "unmatched" | "unprotected") => totals.unprotected += value,
                        _ => {}
                    }
                }
                "ichido_errors_total" => totals.errors += value,
                "ichido_meter_records_total" if is("result", "duplicate") => totals.records_repeated += value,
                "ichido_suspected_twice_total" => totals.suspected_twice += value,
                "ichido_ledger_degraded" => totals.degraded = value > 0,
                "ichido_ledger_outages_total" => {
                    totals.has_fallback = true;
                    totals.outages += value;
                }
                "ichido_notices_sent_total" => {
                    let channel = label_of(labels, "channel").unwrap_or("-").to_owned();
                    totals.notices_sent.push((channel, value));
                }
                _ => {}
            }
        }
        // Behind a gateway a request that waits asks the ledger again and again, and is one request.
        totals.conflicts = refused_by_gateway.unwrap_or(held);
        // A claim that was given back ran nothing: the service could not be reached, or said so.
        totals.effects = totals.effects.saturating_sub(released);
        totals.unserved += released;
        totals
    }

    pub(super) fn requests(&self) -> u64 {
        self.effects + self.replays + self.conflicts + self.doubts + self.refused + self.unserved
    }

    /// How many of the requests that had an answer were repeats.
    pub(super) fn duplicate_rate(&self) -> Option<f64> {
        let answered = self.effects + self.replays;
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        (answered > 0).then(|| self.replays as f64 / answered as f64)
    }
}

/// Name, labels, value.
fn parts(line: &str) -> Option<(&str, &str, u64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let value: f64 = value.parse().ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counters are whole")]
    let value = value.max(0.0) as u64;
    match series.split_once('{') {
        Some((name, labels)) => Some((name, labels.strip_suffix('}')?, value)),
        None => Some((series, "", value)),
    }
}

/// The value of a label that holds no quotes. Quotes inside other values are escaped, so they cannot pass for one.
fn label_of<'a>(labels: &'a str, label: &str) -> Option<&'a str> {
    let at = labels.match_indices(label).map(|(at, _)| at).find(|at| {
        (*at == 0 || labels[..*at].ends_with(',')) && labels[at + label.len()..].starts_with("=\"")
    })?;
    labels[at + label.len() + 2..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_are_understood() {
        let totals = Totals::read(
            "# TYPE ichido_ledger_claims_total counter\n\
             ichido_ledger_claims_total{backend=\"file\",answer=\"granted\"} 10\n\
             ichido_ledger_claims_total{backend=\"file\",answer=\"done\"} 5\n\
             ichido_ledger_claims_total{backend=\"file\",answer=\"held\"} 7\n\
             ichido_ledger_claims_total{backend=\"file\",answer=\"mismatch\"} 1\n\
             ichido_ledger_claims_total{backend=\"file\",answer=\"in-doubt\"} 2\n\
             ichido_events_checked_total{result=\"new\"} 20\n\
             ichido_events_checked_total{result=\"duplicate\"} 30\n\
             ichido_ledger_degraded 1\nichido_ledger_outages_total 3\n\
             ichido_notices_sent_total{channel=\"slack\"} 4\n",
        );
        assert_eq!((totals.effects, totals.replays, totals.conflicts, totals.doubts), (30, 35, 8, 2));
        assert_eq!((totals.requests(), totals.degraded, totals.outages), (75, true, 3));
        assert_eq!(totals.notices_sent, [("slack".to_owned(), 4)]);
        assert!((totals.duplicate_rate().unwrap() - 35.0 / 65.0).abs() < 1e-9);
        assert_eq!(Totals::default().duplicate_rate(), None);
    }

    /// With the service behind down, every request is granted, gets 502, and gives its claim back.
    #[test]
    fn an_outage_is_not_counted_as_effects() {
        let totals = Totals::read(
            "ichido_ledger_claims_total{backend=\"file\",answer=\"granted\"} 12\n\
             ichido_requests_total{route=\"POST /a\",outcome=\"first\"} 2\n\
             ichido_requests_total{route=\"POST /a\",outcome=\"released\"} 10\n\
             ichido_requests_total{route=\"POST /a\",outcome=\"unavailable\"} 5\n\
             ichido_requests_total{route=\"POST /a\",outcome=\"overloaded\"} 1\n\
             ichido_requests_total{route=\"POST /a\",outcome=\"refused\"} 3\n\
             ichido_errors_total{port=\"gateway\",status=\"502\"} 10\n\
             ichido_errors_total{port=\"gateway\",status=\"503\"} 6\n",
        );
        assert_eq!((totals.effects, totals.refused, totals.unserved), (2, 3, 16));
        assert_eq!((totals.requests(), totals.errors), (21, 16));
    }

    /// A route is an operator's text, and may look like anything.
    #[test]
    fn what_stands_in_a_route_is_not_taken_for_a_label() {
        let totals = Totals::read(
            "ichido_requests_total{route=\"POST /a,outcome=\\\"conflict\\\"}\",outcome=\"first\"} 9\n\
             ichido_requests_total{route=\"POST /b\",outcome=\"conflict\"} 2\n\
             ichido_requests_total{route=\"POST /b\",outcome=\"caller-changed\"} 1\n\
             ichido_requests_total{route=\"POST /b\",outcome=\"unkeyed\"} 3\n\
             ichido_requests_total{outcome=\"unmatched\"} 4\nichido_requests_total{outcome=\"safe\"} 50\n\
             ichido_ledger_claims_total{backend=\"file\",answer=\"held\"} 70\n",
        );
        assert_eq!(totals.conflicts, 3, "a request that waits is one request");
        assert_eq!(totals.unprotected, 7, "a safe request needs no protection");
    }
}
