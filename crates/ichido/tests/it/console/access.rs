//! Who may not come in, and what no page shows.

use super::{HOSTILE, start_with_claims};
use crate::serving::{Response, Serving};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const PAGE: (&str, &str) = ("accept", "text/html,application/xhtml+xml");
const PATHS: [&str; 4] = ["/", "/claims", "/sign-in", "/claims/one?key=a"];

/// The secret of the forms on a page.
fn csrf(page: &Response) -> String {
    let rest = page.body.split_once("name=\"csrf\" value=\"").unwrap_or_else(|| panic!("{}", page.body)).1;
    rest.split('"').next().unwrap().to_owned()
}

fn sign_in(claims: &Serving, token: &str) -> (Response, Option<String>) {
    let body = format!("csrf={}&token={token}", csrf(&claims.call("GET", "/sign-in", &[PAGE], "")));
    let answer = claims.call("POST", "/sign-in", &[FORM], &body);
    let cookie =
        answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ").map(ToOwned::to_owned));
    (answer, cookie)
}

#[test]
fn every_page_has_security_headers() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    for path in PATHS {
        let head = claims.call("GET", path, &[PAGE], "").head;
        for field in [
            "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self'",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: same-origin",
            "cache-control: no-store",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(field), "{path}: {field} is not in {head}");
        }
    }
    let page = claims.get("/").body;
    for inline in ["<style", " style=", "<script>", " onclick=", "javascript:", "http://", "https://"] {
        assert!(!page.contains(inline), "{inline} is in {page}");
    }
}

#[test]
fn foreign_pages_cannot_act() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let key = claims.get("/v1/claims?state=in-doubt").json()["claims"][0]["key"].as_str().unwrap().to_owned();
    let good = format!("key={key}&tenant=&route=%2Fv1%2Fclaims&as=absent&attempt=1");
    let word = csrf(&claims.get("/"));
    let post = |fields: &[(&str, &str)], body: &str| {
        claims.call("POST", "/claims/resolve", &[&[FORM], fields].concat(), body).status
    };
    let ours = format!("{good}&csrf={word}");
    assert_eq!(post(&[("host", "evil.example")], &ours), 421, "another name for this port");
    assert_eq!(post(&[("origin", "http://evil.example")], &ours), 403, "a form elsewhere");
    assert_eq!(post(&[("origin", "null")], &ours), 403, "a form in a sandbox");
    assert_eq!(post(&[("sec-fetch-site", "cross-site")], &ours), 403, "a form elsewhere, as browsers say it");
    assert_eq!(post(&[("sec-fetch-site", "same-site")], &ours), 403, "a form on another port");
    assert_eq!(post(&[], &good), 403, "no secret");
    let other = if word.starts_with('0') { '1' } else { '0' };
    assert_eq!(post(&[], &format!("{good}&csrf={other}{}", &word[1..])), 403, "another secret");
    let json = claims.call("POST", "/claims/resolve", &[("content-type", "text/plain")], &ours);
    assert_eq!(json.status, 400, "no form");
    assert_eq!(
        claims.call("GET", &format!("/claims/resolve?{ours}"), &[], "").status,
        200,
        "only a question"
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
    assert_eq!(claims.get(&one).json()["state"], "in-doubt", "nothing was done");
    assert_eq!(
        post(&[("origin", &format!("http://{}", claims.address)), ("sec-fetch-site", "same-origin")], &ours),
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
    assert_eq!(granted.status, 201, "{}", granted.body);

    let sent = claims.call("GET", "/claims", &[PAGE], "");
    assert!(sent.status == 303 && sent.head.contains("location: /sign-in"), "{}", sent.head);
    assert_eq!(claims.get("/claims").status, 401, "a program is told");
    assert_eq!(claims.call("GET", "/live", &[("accept", "text/event-stream")], "").status, 401);
    let (wrong, cookie) = sign_in(&claims, "s3cre");
    assert_eq!((wrong.status, cookie), (401, None));

    let cookie = sign_in(&claims, "s3cret").1.unwrap();
    assert!(
        cookie.contains("httponly") && cookie.contains("samesite=strict") && !cookie.contains("s3cret"),
        "{cookie}"
    );
    let session = cookie.split(';').next().unwrap().to_owned();
    let full = [("cookie", session.as_str()), PAGE];
    let page = claims.call("GET", "/claims/one?key=k&route=%2Fv1%2Fclaims", &full, "");
    assert!(page.status == 200 && page.body.contains("Release the key"), "{}", page.body);
    assert!(!page.body.contains("s3cret") && !page.body.contains("l00k"));
    let api = claims.call("GET", "/v1/claims", &full, "");
    assert_eq!(api.status, 401, "a session is for pages");

    // Signed out, the cookie opens nothing.
    let out =
        claims.call("POST", "/sign-out", &[FORM, ("cookie", &session)], &format!("csrf={}", csrf(&page)));
    assert_eq!(out.status, 303);
    assert_eq!(claims.call("GET", "/claims", &full, "").status, 303);
    let said = claims.stderr();
    assert!(
        !said.contains("s3cret")
            && said.contains("\"action\":\"sign in\"")
            && said.contains("\"result\":\"refused\""),
        "{said}"
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
    let which = "key=k&tenant=&route=%2Fv1%2Fclaims";
    let page = claims.call("GET", &format!("/claims/one?{which}"), &fields, "");
    assert!(
        page.status == 200 && !page.body.contains("Release the key"),
        "no action is offered: {}",
        page.body
    );
    let body = format!("{which}&as=release&attempt=1&csrf={}", csrf(&page));
    let tried = claims.call("POST", "/claims/resolve", &[FORM, ("cookie", &session)], &body);
    assert_eq!(tried.status, 403, "{}", tried.body);
    assert_eq!(claims.call("GET", &format!("/claims/resolve?{which}&as=release"), &fields, "").status, 409);
    assert_eq!(claims.call("GET", "/v1/claims/one?key=k", &bearer, "").json()["state"], "running");
    // Nor do programs with that token.
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
        masked.body.contains("console.bodies") && !masked.body.contains("SECRET-OUTCOME"),
        "{}",
        masked.body
    );
    let shown =
        super::start_with_claims_and_variables(dir.path(), &[("ICHIDO_CONSOLE_BODIES", "shown")]).get(path);
    assert!(shown.body.contains("SECRET-OUTCOME"), "{}", shown.body);
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
        assert!(!page.body.contains("<script>doc") && !page.body.contains("<img"), "{path}: {}", page.body);
    }
}

fn url_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
