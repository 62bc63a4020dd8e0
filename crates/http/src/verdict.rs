//! What an answer says about its effect.

use http::{HeaderMap, HeaderName, StatusCode};

use crate::options::{ClientErrors, ServerErrors};
use crate::rules::Route;

/// What becomes of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done: repeats get this answer.
    Store,
    /// Provably not done: the key is free again.
    Release,
    /// Nobody knows.
    Doubt,
}

/// Names the request at Cloudflare. An answer of Cloudflare's own carries it.
const CF_RAY: HeaderName = HeaderName::from_static("cf-ray");

/// The verdict on a whole answer of a route.
pub fn verdict(status: StatusCode, headers: &HeaderMap, route: &Route) -> Verdict {
    match status.as_u16() {
        // 529: the service is overloaded, and refuses.
        401 | 403 | 408 | 425 | 429 | 503 | 529 => Verdict::Release,
        // Cloudflare had no connection to the service, or no TLS on it: the request was not sent there. Others may use
        // these numbers for anything.
        521 | 523 | 525 | 526 if headers.contains_key(CF_RAY) => Verdict::Release,
        code @ 400..=499 => match (route.client_errors, route.preset) {
            (None, None) | (Some(ClientErrors::Store), _) => Verdict::Store,
            // The service refuses an event as it is, without having handled it.
            (None, Some(_)) if matches!(code, 400 | 404 | 405 | 413 | 415 | 422) => Verdict::Release,
            (Some(ClientErrors::Release), _) => Verdict::Release,
            (None, Some(_)) | (Some(ClientErrors::Doubt), _) => Verdict::Doubt,
        },
        code @ 500..=599 => match route.server_errors {
            None if matches!(code, 502 | 504 | 520..=527) => Verdict::Doubt,
            None | Some(ServerErrors::Store) => Verdict::Store,
            Some(ServerErrors::Release) => Verdict::Release,
            Some(ServerErrors::Doubt) => Verdict::Doubt,
        },
        _ => Verdict::Store,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Preset;

    fn of(code: u16, server_errors: Option<ServerErrors>) -> Verdict {
        let route = Route { server_errors, ..Route::default() };
        judge(code, &HeaderMap::new(), &route)
    }

    fn judge(code: u16, headers: &HeaderMap, route: &Route) -> Verdict {
        verdict(StatusCode::from_u16(code).unwrap(), headers, route)
    }

    #[test]
    fn refusals_release_errors_are_stored_and_gateways_do_not_know() {
        for code in [401, 403, 408, 425, 429, 503, 529] {
            for setting in
                [None, Some(ServerErrors::Store), Some(ServerErrors::Release), Some(ServerErrors::Doubt)]
            {
                assert_eq!(of(code, setting), Verdict::Release, "{code}");
            }
        }
        for code in [200, 201, 204, 302, 400, 404, 409, 422, 500, 501, 505, 599, 600, 999] {
            assert_eq!(of(code, None), Verdict::Store, "{code}");
        }
        for code in [502, 504, 520, 522, 524, 527] {
            assert_eq!(of(code, None), Verdict::Doubt, "{code}");
        }
    }

    #[test]
    fn cloudflare_is_believed_that_it_did_not_reach_the_service() {
        let cloudflare = HeaderMap::from_iter([(CF_RAY, "8f1a-NRT".parse().unwrap())]);
        for code in [521, 523, 525, 526] {
            assert_eq!(of(code, None), Verdict::Doubt, "{code}");
            assert_eq!(judge(code, &cloudflare, &Route::default()), Verdict::Release, "{code}");
        }
        for code in [520, 522, 524, 527] {
            assert_eq!(judge(code, &cloudflare, &Route::default()), Verdict::Doubt, "{code}");
        }
    }

    #[test]
    fn a_bot_that_refuses_an_event_has_not_handled_it() {
        let none = HeaderMap::new();
        for preset in [Preset::SlackEvents, Preset::GitHub, Preset::StripeEvents, Preset::CloudEvents] {
            for code in [400, 404, 405, 413, 415, 422] {
                assert_eq!(judge(code, &none, &preset.route()), Verdict::Release, "{code}");
            }
            for code in [402, 406, 409, 410, 418, 499] {
                assert_eq!(judge(code, &none, &preset.route()), Verdict::Doubt, "{code}");
            }
            let told = Route { client_errors: Some(ClientErrors::Doubt), ..preset.route() };
            assert_eq!(judge(400, &none, &told), Verdict::Doubt);
        }
    }

    #[test]
    fn a_route_may_say_what_its_server_errors_mean() {
        for code in [500, 502, 504, 599] {
            assert_eq!(of(code, Some(ServerErrors::Store)), Verdict::Store);
            assert_eq!(of(code, Some(ServerErrors::Release)), Verdict::Release);
            assert_eq!(of(code, Some(ServerErrors::Doubt)), Verdict::Doubt);
        }
        assert_eq!(of(404, Some(ServerErrors::Release)), Verdict::Store);
    }

    #[test]
    fn a_route_may_say_what_its_client_errors_mean() {
        let of = |code: u16, client_errors| {
            let route = Route { client_errors: Some(client_errors), ..Route::default() };
            judge(code, &HeaderMap::new(), &route)
        };
        for code in [400, 404, 409, 422, 499] {
            assert_eq!(of(code, ClientErrors::Release), Verdict::Release);
            assert_eq!(of(code, ClientErrors::Doubt), Verdict::Doubt);
        }
        assert_eq!(of(401, ClientErrors::Doubt), Verdict::Release);
        assert_eq!(of(500, ClientErrors::Release), Verdict::Store);
    }
}
