//! Sign-in through a header that an authenticating proxy sets.

use std::net::SocketAddr;

use ichido_testkit::http_client::{Response, head, read_response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::{FORM, PAGE, csrf_token, entries, fields};
use crate::serving::Serving;
use crate::{ichido, stderr};

/// One request from this address of the machine.
async fn send_from(
    from: &str,
    to: SocketAddr,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    let host = to.to_string();
    let headers = [&[("host", host.as_str())], headers].concat();
    stream.write_all(&head(method, path, &headers, Some(body.len()))).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    read_response(&mut &response[..]).unwrap()
}

const PROXY: &str = "127.0.0.2";

fn start(dir: &std::path::Path, access: &str, token: Option<(&str, &str)>) -> Serving {
    let settings = format!(
        "[admin]\ntrusted_user_header = \"X-Forwarded-User\"\ntrusted_proxies = [\"{PROXY}\"]\ntrusted_user_access = \"{access}\"\n"
    );
    std::fs::write(dir.join("ichido.toml"), settings).unwrap();
    Serving::claims_with(dir, "memory:", token.as_slice())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_proxy_can_name_a_user() {
    let dir = tempfile::tempdir().unwrap();
    let serving = start(dir.path(), "full", Some(("ICHIDO_ADMIN_TOKEN", "s3cret")));
    let to = serving.address;
    let user = ("x-forwarded-user", "alice@example.com");
    let bearer = [("authorization", "Bearer s3cret"), ("content-type", "application/json")];
    let claimed = serving.call("POST", "/v1/claims", &bearer, r#"{"key":"k","lease_ms":600000}"#);
    assert_eq!(claimed.status, 201);

    let path = "/claims/one?key=k&route=%2Fv1%2Fclaims";
    let page = send_from(PROXY, to, ("GET", path), &[PAGE, user], "").await;
    assert!(page.status == 200 && page.text().contains(">alice@example.com</span>"), "{}", page.text());
    for (from, headers) in [("127.0.0.1", &[PAGE, user][..]), ("127.0.0.3", &[PAGE, user]), (PROXY, &[PAGE])]
    {
        let other = send_from(from, to, ("GET", path), headers, "").await;
        assert_eq!((other.status, other.header("location")), (303, Some("/sign-in")), "{from}");
    }
    let two = send_from(PROXY, to, ("GET", path), &[PAGE, user, ("x-forwarded-user", "mallory")], "").await;
    assert_eq!(two.status, 303, "of two names, one may be the client's");
    let api = send_from(PROXY, to, ("GET", "/v1/claims"), &[user], "").await;
    assert_eq!(api.status, 401, "the API needs a token");

    // The pages have the host name of the proxy; only the proxy may say so.
    let form = format!("key=k&tenant=&route=%2Fv1%2Fclaims&as=release&attempt=1&csrf={}", csrf_token(&page));
    let own = [FORM, user, ("origin", "https://ichido.example"), ("x-forwarded-host", "ichido.example")];
    let foreign = [FORM, user, ("origin", "https://evil.example"), ("x-forwarded-host", "ichido.example")];
    let post = ("POST", "/claims/resolve");
    assert_eq!(send_from(PROXY, to, post, &foreign, &form).await.status, 403);
    assert_eq!(send_from("127.0.0.1", to, post, &own, &form).await.status, 403);
    let stolen = form.replace("csrf=", "csrf=0");
    assert_eq!(send_from(PROXY, to, post, &own, &stolen).await.status, 403);
    assert_eq!(send_from(PROXY, to, post, &own, &form).await.status, 303);
    let released = entries(dir.path());
    assert_eq!(
        fields(&released, &["who", "via", "action", "result"])[1],
        "alice@example.com | proxy | release by force | applied"
    );
    assert!(released[1]["from"].as_str().unwrap().starts_with(PROXY), "{}", released[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_users_of_the_proxy_cannot_act() {
    let dir = tempfile::tempdir().unwrap();
    let serving = start(dir.path(), "read", None);
    let user = ("x-forwarded-user", "bob");
    let page = send_from(PROXY, serving.address, ("GET", "/claims"), &[PAGE, user], "").await;
    assert!(page.status == 200 && page.text().contains("read-only"), "{}", page.text());
    let form = format!("key=k&tenant=&route=&as=release&attempt=1&csrf={}", csrf_token(&page));
    let posted = send_from(PROXY, serving.address, ("POST", "/claims/resolve"), &[FORM, user], &form).await;
    assert_eq!(posted.status, 403);
    // Without tokens there is nothing to sign in with.
    let page = serving.call("GET", "/sign-in", &[PAGE], "");
    assert!(page.status == 401 && page.text().contains("through the proxy"), "{}", page.text());
}

#[test]
fn header_without_proxies_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = ichido(dir.path());
    command.args(["claims", "--listen", "127.0.0.1:0", "--ledger", "memory:"]);
    let output = command.env("ICHIDO_ADMIN_TRUSTED_USER_HEADER", "X-Forwarded-User").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let line = stderr(&output);
    assert!(line.contains("admin.trusted_user_header: requires admin.trusted_proxies"), "{line}");
}
