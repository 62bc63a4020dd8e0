//! Requests that the console must refuse, and data that no page may show.

use ichido_testkit::http_client::Response;

use super::{HOSTILE, start_with_claims};
use crate::serving::Serving;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const PAGE: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const PATHS: [&str; 4] = ["/", "/claims", "/sign-in", "/claims/one?key=a"];

/// The CSRF token in the forms of a page.
fn csrf_token(page: &Response) -> String {
    let page = page.text();
    let rest = page.split_once("name=\"csrf\" value=\"").unwrap_or_else(|| panic!("{page}")).1;
    rest.split('"').next().unwrap().to_owned()
}

fn sign_in(claims: &Serving, token: &str) -> (Response, Option<String>) {
    let body = format!("csrf={}&token={token}", csrf_token(&claims.call("GET", "/sign-in", &[PAGE], "")));
    let response = claims.call("POST", "/sign-in", &[FORM], &body);
    let cookie = response.header("set-cookie").map(ToOwned::to_owned);
    (response, cookie)
}

#[test]
fn every_page_has_security_headers() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    for path in PATHS {
        let page = claims.call("GET", path, &[PAGE], "");
        let field = |name: &str| page.header(name).unwrap_or_else(|| panic!("{path}: no {name} in {page:?}"));
        for (name, start) in [
            ("content-security-policy", "default-src 'none'; style-src 'self'; script-src 'self'"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert!(field(name).starts_with(start), "{path}: {name}: {}", field(name));
        }
        assert!(field("content-security-policy").contains("frame-ancestors 'none'"), "{path}: {page:?}");
    }
    let page = claims.get("/").text();
    for inline in ["<style", " style=", "<script>", " onclick=", "javascript:", "http://", "https://"] {
        assert!(!page.contains(inline), "{inline} is in {page}");
    }
}

#[test]
fn foreign_pages_cannot_submit_forms() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let claim = claims.get("/v1/claims?state=in-doubt").json()["claims"][0].clone();
    let (key, version) = (claim["key"].as_str().unwrap(), claim["version"].as_str().unwrap());
    let form = format!("key={key}&tenant=&route=%2Fv1%2Fclaims&as=absent&attempt=1&version={version}");
    let token = csrf_token(&claims.get("/"));
    let post = |fields: &[(&str, &str)], body: &str| {
        claims.call("POST", "/claims/resolve", &[&[FORM], fields].concat(), body).status
    };
    let valid = format!("{form}&csrf={token}");
    assert_eq!(post(&[("host", "evil.example")], &valid), 421, "a foreign host name");
    assert_eq!(post(&[("origin", "http://evil.example")], &valid), 403, "a form of another origin");
    assert_eq!(post(&[("origin", "null")], &valid), 403, "a sandboxed form");
    assert_eq!(post(&[("sec-fetch-site", "cross-site")], &valid), 403, "a form of another site");
    assert_eq!(post(&[("sec-fetch-site", "same-site")], &valid), 403, "a form on another port");
    assert_eq!(post(&[], &form), 403, "no CSRF token");
    let other = if token.starts_with('0') { '1' } else { '0' };
    assert_eq!(post(&[], &format!("{form}&csrf={other}{}", &token[1..])), 403, "a wrong CSRF token");
    let plain = claims.call("POST", "/claims/resolve", &[("content-type", "text/plain")], &valid);
    assert_eq!(plain.status, 400, "not a form");
    assert_eq!(
        claims.call("GET", &format!("/claims/resolve?{valid}"), &[], "").status,
        200,
        "the confirmation page"
    );
    assert_eq!(
        claims
            .call(
                "GET",
                "/",
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "no-cors"),
                    ("sec-fetch-dest", "image")
                ],
                ""
            )
            .status,
        403
    );
    let one = format!("/v1/claims/one?key={key}");
    assert_eq!(claims.get(&one).json()["state"], "in-doubt", "a refused request changed the claim");
    assert_eq!(
        post(&[("origin", &format!("http://{}", claims.address)), ("sec-fetch-site", "same-origin")], &valid),
        303
    );
    assert_eq!(claims.get(&one).status, 404);
}

#[test]
fn console_with_a_token_requires_sign_in() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = [("ICHIDO_ADMIN_TOKEN", "s3cret"), ("ICHIDO_ADMIN_READ_TOKEN", "l00k")];
    let claims = Serving::claims_with(dir.path(), "memory:", &tokens);
    let bearer = [("authorization", "Bearer s3cret"), ("content-type", "application/json")];
    let granted = claims.call("POST", "/v1/claims", &bearer, r#"{"key":"k","lease_ms":600000}"#);
    assert_eq!(granted.status, 201, "{}", granted.text());

    let redirect = claims.call("GET", "/claims", &[PAGE], "");
    let location = redirect.header("location");
    assert!(
        redirect.status == 303 && location.is_some_and(|page| page.starts_with("/sign-in")),
        "{redirect:?}"
    );
    assert_eq!(claims.get("/claims").status, 401, "only browsers are redirected");
    assert_eq!(claims.call("GET", "/live", &[("accept", "text/event-stream")], "").status, 401);
    let (wrong, cookie) = sign_in(&claims, "s3cre");
    assert_eq!((wrong.status, cookie), (401, None));

    let cookie = sign_in(&claims, "s3cret").1.unwrap();
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains("s3cret"),
        "{cookie}"
    );
    let session = cookie.split(';').next().unwrap().to_owned();
    let full = [("cookie", session.as_str()), PAGE];
    let page = claims.call("GET", "/claims/one?key=k&route=%2Fv1%2Fclaims", &full, "");
    assert!(page.status == 200 && page.text().contains("Release the key"), "{}", page.text());
    assert!(!page.text().contains("s3cret") && !page.text().contains("l00k"));
    let api = claims.call("GET", "/v1/claims", &full, "");
    assert_eq!(api.status, 401, "a session is not valid for the API");

    // After signing out, the cookie is no longer valid.
    let sign_out = claims.call(
        "POST",
        "/sign-out",
        &[FORM, ("cookie", &session)],
        &format!("csrf={}", csrf_token(&page)),
    );
    assert_eq!(sign_out.status, 303);
    assert_eq!(claims.call("GET", "/claims", &full, "").status, 303);
    let log = claims.stderr();
    assert!(
        !log.contains("s3cret")
            && log.contains("\"action\":\"sign in\"")
            && log.contains("\"result\":\"refused\""),
        "{log}"
    );
}

#[test]
fn read_token_cannot_change_anything() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = [("ICHIDO_ADMIN_TOKEN", "s3cret"), ("ICHIDO_ADMIN_READ_TOKEN", "l00k")];
    let claims = Serving::claims_with(dir.path(), "memory:", &tokens);
    let bearer = [("authorization", "Bearer s3cret"), ("content-type", "application/json")];
    claims.call("POST", "/v1/claims", &bearer, r#"{"key":"k","lease_ms":600000}"#);
    let session = sign_in(&claims, "l00k").1.unwrap().split(';').next().unwrap().to_owned();
    let fields = [("cookie", session.as_str()), PAGE];
    let claim = "key=k&tenant=&route=%2Fv1%2Fclaims";
    let page = claims.call("GET", &format!("/claims/one?{claim}"), &fields, "");
    assert!(
        page.status == 200 && !page.text().contains("Release the key"),
        "the page must not offer an action: {}",
        page.text()
    );
    let body = format!("{claim}&as=release&attempt=1&csrf={}", csrf_token(&page));
    let refused = claims.call("POST", "/claims/resolve", &[FORM, ("cookie", &session)], &body);
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(claims.call("GET", &format!("/claims/resolve?{claim}&as=release"), &fields, "").status, 409);
    assert_eq!(claims.call("GET", "/v1/claims/one?key=k", &bearer, "").json()["state"], "running");
    // The API refuses the read token as well.
    let read = [("authorization", "Bearer l00k"), ("content-type", "application/json")];
    assert_eq!(claims.call("GET", "/metrics", &read, "").status, 200);
    let api = claims.call("POST", "/v1/claims/release-by-operator", &read, r#"{"key":"k","force":true}"#);
    assert_eq!((api.status, api.problem().as_str()), (403, "read-only"));
    assert_eq!(claims.call("GET", "/v1/claims/one?key=k", &read, "").status, 403);
}

#[test]
fn stored_responses_are_shown_only_if_the_settings_allow_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = "/claims/one?key=order-2026-0001&route=%2Fv1%2Fclaims";
    let masked = start_with_claims(dir.path()).get(path);
    assert!(
        masked.text().contains("console.bodies") && !masked.text().contains("SECRET-OUTCOME"),
        "{}",
        masked.text()
    );
    let shown =
        super::start_with_claims_and_variables(dir.path(), &[("ICHIDO_CONSOLE_BODIES", "shown")]).get(path);
    assert!(shown.text().contains("SECRET-OUTCOME"), "{}", shown.text());
}

#[test]
fn hostile_names_are_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let query: String = url_encoded(HOSTILE);
    for path in [
        format!("/claims?prefix={query}"),
        format!("/claims?state={query}&cursor={query}&result={query}"),
        format!("/claims/one?key={query}&route=%2Fv1%2Fclaims&result={query}"),
        format!("/claims/resolve?key={query}&route=%2Fv1%2Fclaims&as=release"),
        format!("/claims/one?key={query}&route={query}"),
        format!("/nowhere/{query}"),
    ] {
        let page = claims.call(
            "GET",
            &path,
            &[PAGE, ("accept-language", HOSTILE), ("cookie", "ichido-lang=<b>")],
            "",
        );
        assert!(
            !page.text().contains("<script>doc") && !page.text().contains("<img"),
            "{path}: {}",
            page.text()
        );
    }
}

fn url_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
