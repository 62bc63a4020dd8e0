//! The bounds of the gateway: what one request may take, and what all of them may take together.

use ichido_core::Limits;
use ichido_http::Rules;

use ichido_settings::Invalid;

use super::Raw;

/// Room for the fields of an answer beside its body, below the ledger's limit.
pub(super) const ANSWER_MAX: u64 = Limits::STANDARD.outcome_bytes as u64 - (1 << 20);
/// So many of the largest bodies that stay in memory fit there at once, unless set otherwise.
const IN_MEMORY: u64 = 256;
/// So many of the largest bodies fit on disk at once, unless set otherwise.
const ON_DISK: u64 = 64;

/// Rules with these bounds, and defaults for everything else.
pub(super) fn bounds(raw: &Raw) -> Result<Rules, Invalid> {
    let largest_in_memory = raw.body_memory_bytes.max(raw.body_parse_max_bytes);
    let total = |name: &str, given: Option<u64>, default: u64, largest: u64| match given {
        // A budget smaller than one body would refuse that body for ever.
        Some(total) if total < largest => {
            let problem = format!("is {total}, smaller than one body may be ({largest})");
            Err(Invalid::new(format!("gateway.{name}"), problem))
        }
        given => Ok(given.unwrap_or(default)),
    };
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Rules {
        body_memory_bytes: raw.body_memory_bytes,
        body_max_bytes: raw.body_max_bytes,
        body_parse_max_bytes: raw.body_parse_max_bytes,
        body_min_rate_bytes: raw.body_min_rate_bytes,
        body_memory_total_bytes: total(
            "body_memory_total_bytes",
            raw.body_memory_total_bytes,
            IN_MEMORY * largest_in_memory,
            largest_in_memory,
        )?,
        body_disk_total_bytes: total(
            "body_disk_total_bytes",
            raw.body_disk_total_bytes,
            ON_DISK * raw.body_max_bytes,
            raw.body_max_bytes,
        )?,
        answer_max_bytes: count(raw.answer_max_bytes),
        inflight_max: count(raw.inflight_max),
        inflight_max_per_tenant: count(raw.inflight_max_per_tenant.unwrap_or(raw.inflight_max.div_ceil(2))),
        inflight_max_per_connection: count(raw.inflight_max_per_connection),
        ..Rules::default()
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
        ] {
            let message = of(text).unwrap_err();
            assert!(message.contains(name), "{text}: {message}");
        }
    }
}
