//! The bounds of the gateway: what one request may take, and what all of them may take together.

use ichido_core::Limits;
use ichido_http::Rules;

use super::RawGateway;
use ichido_serve::Failure;
use ichido_settings::within;

/// Room for the fields of an answer beside its body, below the ledger's limit.
const ANSWER_MAX: u64 = Limits::STANDARD.outcome_bytes as u64 - (1 << 20);
/// So many of the largest bodies that stay in memory fit there at once, unless set otherwise.
const IN_MEMORY: u64 = 256;
/// So many of the largest bodies fit on disk at once, unless set otherwise.
const ON_DISK: u64 = 64;

/// Rules with these bounds, and everything else as it is by default.
pub(super) fn bounds(raw: &RawGateway) -> Result<Rules, Failure> {
    let defaults = Rules::default();
    let number = |name: &str, value: Option<u64>, default: u64, least: u64, most: u64| {
        within(&format!("gateway.{name}"), value.unwrap_or(default), least, most)
    };
    let memory = number("body_memory_bytes", raw.body_memory_bytes, defaults.body_memory_bytes, 1, 1 << 32)?;
    let most = number("body_max_bytes", raw.body_max_bytes, defaults.body_max_bytes, 1, 1 << 40)?;
    let parsed = defaults.body_parse_max_bytes;
    let parsed = number("body_parse_max_bytes", raw.body_parse_max_bytes, parsed, 1, 1 << 30)?;
    let rate = defaults.body_min_rate_bytes;
    let largest = memory.max(parsed);
    let memory_total = raw.body_memory_total_bytes;
    let disk_total = raw.body_disk_total_bytes;
    let answer = defaults.answer_max_bytes as u64;
    let answer = number("answer_max_bytes", raw.answer_max_bytes, answer, 1, ANSWER_MAX)?;
    let work = number("inflight_max", raw.inflight_max, defaults.inflight_max as u64, 1, 1_000_000)?;
    let per_tenant = raw.inflight_max_per_tenant;
    let per_connection = defaults.inflight_max_per_connection as u64;
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Rules {
        body_memory_bytes: memory,
        body_max_bytes: most,
        body_parse_max_bytes: parsed,
        body_min_rate_bytes: number("body_min_rate_bytes", raw.body_min_rate_bytes, rate, 1, 1 << 30)?,
        // A budget that is smaller than one body would refuse it for ever.
        body_memory_total_bytes: number(
            "body_memory_total_bytes",
            memory_total,
            IN_MEMORY * largest,
            largest,
            1 << 50,
        )?,
        body_disk_total_bytes: number("body_disk_total_bytes", disk_total, ON_DISK * most, most, 1 << 50)?,
        answer_max_bytes: count(answer),
        inflight_max: count(work),
        inflight_max_per_tenant: count(number(
            "inflight_max_per_tenant",
            per_tenant,
            work.div_ceil(2),
            1,
            1_000_000,
        )?),
        inflight_max_per_connection: count(number(
            "inflight_max_per_connection",
            raw.inflight_max_per_connection,
            per_connection,
            1,
            1_000_000,
        )?),
        ..defaults
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Rules, String> {
        bounds(&toml::from_str(text).unwrap()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn what_all_requests_may_take_follows_from_what_one_may_take() {
        let rules = of("").unwrap();
        let library = Rules::default();
        assert_eq!(rules.body_memory_total_bytes, library.body_memory_total_bytes);
        assert_eq!(rules.body_disk_total_bytes, library.body_disk_total_bytes);
        assert_eq!(rules.inflight_max_per_tenant, library.inflight_max_per_tenant);
        let rules = of("body_max_bytes = 1000\nbody_memory_bytes = 2097152\ninflight_max = 5").unwrap();
        assert_eq!((rules.body_memory_total_bytes, rules.body_disk_total_bytes), (512 << 20, 64_000));
        assert_eq!((rules.inflight_max_per_tenant, rules.inflight_max_per_connection), (3, 128));
    }

    #[test]
    fn a_bound_that_no_request_could_keep_is_refused() {
        for (text, name) in [
            ("body_memory_total_bytes = 1000", "gateway.body_memory_total_bytes"),
            ("body_disk_total_bytes = 1000", "gateway.body_disk_total_bytes"),
            ("body_min_rate_bytes = 0", "gateway.body_min_rate_bytes"),
            ("inflight_max_per_tenant = 0", "gateway.inflight_max_per_tenant"),
        ] {
            let message = of(text).unwrap_err();
            assert!(message.contains(name), "{text}: {message}");
        }
    }
}
