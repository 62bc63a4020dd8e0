//! What a response means for the claim.

use http::{HeaderMap, HeaderName, StatusCode};

use crate::options::{ClientErrors, ServerErrors};
use crate::rules::Route;

/// What happens to the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is completed: retries get this response.
    Store,
    /// It is released: the effect provably did not happen.
    Release,
    /// It is in doubt: the effect may have happened.
    InDoubt,
}

/// Cloudflare's request id, which its own error responses carry.
const CF_RAY: HeaderName = HeaderName::from_static("cf-ray");

/// Judges a response by the rules of its route.
pub fn verdict(status: StatusCode, headers: &HeaderMap, route: &Route) -> Verdict {
    match status.as_u16() {
        // 529: the service is overloaded and refuses the request.
        401 | 403 | 408 | 425 | 429 | 503 | 529 => Verdict::Release,
        // Cloudflare could not connect to the service or set up TLS, so the request was not sent. Without Cloudflare, these
        // statuses can mean anything.
        521 | 523 | 525 | 526 if headers.contains_key(CF_RAY) => Verdict::Release,
        code @ 400..=499 => match (route.client_errors, route.preset) {
            (None, None) | (Some(ClientErrors::Store), _) => Verdict::Store,
            // The service rejects the event as it is, without having handled it.
            (None, Some(_)) if matches!(code, 400 | 404 | 405 | 413 | 415 | 422) => Verdict::Release,
            (Some(ClientErrors::Release), _) => Verdict::Release,
            (None, Some(_)) | (Some(ClientErrors::Doubt), _) => Verdict::InDoubt,
        },
        code @ 500..=599 => match route.server_errors {
            None if matches!(code, 502 | 504 | 520..=527) => Verdict::InDoubt,
            None | Some(ServerErrors::Store) => Verdict::Store,
            Some(ServerErrors::Release) => Verdict::Release,
            Some(ServerErrors::Doubt) => Verdict::InDoubt,
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
    fn refusals_release_errors_are_stored_and_gateway_errors_are_in_doubt() {
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
            assert_eq!(of(code, None), Verdict::InDoubt, "{code}");
        }
    }

    #[test]
    fn cloudflare_errors_before_a_connection_release() {
        let cloudflare = HeaderMap::from_iter([(CF_RAY, "8f1a-NRT".parse().unwrap())]);
        for code in [521, 523, 525, 526] {
            assert_eq!(of(code, None), Verdict::InDoubt, "{code}");
            assert_eq!(judge(code, &cloudflare, &Route::default()), Verdict::Release, "{code}");
        }
        for code in [520, 522, 524, 527] {
            assert_eq!(judge(code, &cloudflare, &Route::default()), Verdict::InDoubt, "{code}");
        }
    }

    #[test]
    fn a_rejected_event_was_not_handled() {
        let none = HeaderMap::new();
        let presets = [Preset::SlackEvents, Preset::GitHub, Preset::StripeEvents, Preset::StandardWebhooks];
        for preset in presets.into_iter().chain([Preset::CloudEvents]) {
            for code in [400, 404, 405, 413, 415, 422] {
                assert_eq!(judge(code, &none, &preset.route()), Verdict::Release, "{code}");
            }
            for code in [402, 406, 409, 410, 418, 499] {
                assert_eq!(judge(code, &none, &preset.route()), Verdict::InDoubt, "{code}");
            }
            let in_doubt = Route { client_errors: Some(ClientErrors::Doubt), ..preset.route() };
            assert_eq!(judge(400, &none, &in_doubt), Verdict::InDoubt);
        }
    }

    #[test]
    fn a_route_can_define_its_server_errors() {
        for code in [500, 502, 504, 599] {
            assert_eq!(of(code, Some(ServerErrors::Store)), Verdict::Store);
            assert_eq!(of(code, Some(ServerErrors::Release)), Verdict::Release);
            assert_eq!(of(code, Some(ServerErrors::Doubt)), Verdict::InDoubt);
        }
        assert_eq!(of(404, Some(ServerErrors::Release)), Verdict::Store);
    }

    #[test]
    fn a_route_can_define_its_client_errors() {
        let of = |code: u16, client_errors| {
            let route = Route { client_errors: Some(client_errors), ..Route::default() };
            judge(code, &HeaderMap::new(), &route)
        };
        for code in [400, 404, 409, 422, 499] {
            assert_eq!(of(code, ClientErrors::Release), Verdict::Release);
            assert_eq!(of(code, ClientErrors::Doubt), Verdict::InDoubt);
        }
        assert_eq!(of(401, ClientErrors::Doubt), Verdict::Release);
        assert_eq!(of(500, ClientErrors::Release), Verdict::Store);
    }
}
