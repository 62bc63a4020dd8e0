//! The admin port over TLS: for browsers, for programs, and for commands that go through it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ichido_testkit::certificates::{Authority, Identity};
use ichido_testkit::http_client::{Response, head, read_response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{FORM, PAGE, csrf_token, entries, fields};
use crate::serving::Serving;
use crate::{ichido, stderr, stdout};

/// Writes a certificate and the files of authorities, and returns the environment of a process that presents it.
fn write_files(dir: &Path, authority: &Authority, identity: &Identity) -> [(&'static str, &'static str); 2] {
    for (name, pem) in [
        ("cert.pem", &identity.certificate),
        ("key.pem", &identity.key),
        ("ca.pem", &authority.pem()),
        ("other-ca.pem", &Authority::new().pem()),
    ] {
        std::fs::write(dir.join(name), pem).unwrap();
    }
    [("ICHIDO_ADMIN_TLS_CERT_FILE", "cert.pem"), ("ICHIDO_ADMIN_TLS_KEY_FILE", "key.pem")]
}

async fn send(
    to: SocketAddr,
    authority: &Authority,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<Response> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A browser offers HTTP/2, which this port does not speak.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = tokio::net::TcpStream::connect(to).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(&head(method, path, headers, Some(body.len()))).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    read_response(&mut &response[..])
}

/// Runs `ichido ledger sweep` with these settings.
fn sweep(dir: &Path, args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = ichido(dir);
    command.args(["ledger", "sweep", "--ledger", "file:ledger"]).args(args).envs(variables.iter().copied());
    let output = command.output().unwrap();
    (output.status.code(), stderr(&output))
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_port_serves_browsers_and_commands_over_tls() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let tls = write_files(dir.path(), &authority, &authority.localhost());
    let tokens = ("ICHIDO_ADMIN_TOKENS", "alice=t0ken-alice");
    let serving = Serving::claims_over_tls(dir.path(), "file:ledger", &[&tls[..], &[tokens]].concat());
    let to = serving.address;
    let get = |path: &'static str| send(to, &authority, ("GET", path), &[PAGE], "");
    assert_eq!(get("/healthz").await.unwrap().status, 200);
    assert!(send(to, &Authority::new(), ("GET", "/healthz"), &[], "").await.is_err(), "another authority");
    let bearer = [("authorization", "Bearer t0ken-alice")];
    assert_eq!(send(to, &authority, ("GET", "/metrics"), &bearer, "").await.unwrap().status, 200);
    let form = format!("csrf={}&token=t0ken-alice", csrf_token(&get("/sign-in").await.unwrap()));
    let signed_in = send(to, &authority, ("POST", "/sign-in"), &[FORM], &form).await.unwrap();
    let cookie = signed_in.header("set-cookie").unwrap();
    assert!(signed_in.status == 303 && cookie.ends_with("; Secure"), "{cookie}");

    let token = ("ICHIDO_ADMIN_TOKEN", "t0ken-alice");
    let (ca, other) = (("ICHIDO_ADMIN_CA_FILE", "ca.pem"), ("ICHIDO_ADMIN_CA_FILE", "other-ca.pem"));
    let url = format!("https://localhost:{}", to.port());
    // Through the address that the holder of the ledger recorded, and through the one that the operator gives.
    for args in [&[][..], &["--admin", &url]] {
        assert_eq!(sweep(dir.path(), args, &[token, ca]), (Some(0), String::new()), "{args:?}");
        for (variables, error) in [
            (&[token, other][..], "admin.ca_file and admin.server_name say which certificate is trusted"),
            (&[token], "certificate"),
            (&[ca], "set ICHIDO_ADMIN_TOKEN"),
            (&[token, ("ICHIDO_ADMIN_CA_FILE", "missing.pem")], "admin.ca_file: missing.pem cannot be read"),
        ] {
            let (code, line) = sweep(dir.path(), args, variables);
            assert!(code == Some(2) && line.contains(error), "{args:?} {variables:?}: {line}");
        }
    }
    let (code, line) = sweep(dir.path(), &["--admin", &to.to_string()], &[token, ca]);
    assert!(code == Some(2) && line.contains("if the port uses TLS, use https://"), "{line}");
    let recorded = entries(dir.path());
    let sweeps = fields(&recorded, &["who", "via", "action", "result"]);
    assert_eq!(
        sweeps.iter().filter(|line| *line == "alice | token | sweep | applied").count(),
        2,
        "{sweeps:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_may_have_another_name() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let tls = write_files(dir.path(), &authority, &authority.other_host());
    let _serving = Serving::claims_over_tls(dir.path(), "file:ledger", &tls);
    let ca = ("ICHIDO_ADMIN_CA_FILE", "ca.pem");
    let (code, line) = sweep(dir.path(), &[], &[ca]);
    assert!(code == Some(2) && line.contains("admin.server_name"), "{line}");
    let name = ("ICHIDO_ADMIN_SERVER_NAME", "other.example");
    assert_eq!(sweep(dir.path(), &[], &[ca, name]), (Some(0), String::new()));
    let (code, line) = sweep(dir.path(), &[], &[ca, ("ICHIDO_ADMIN_SERVER_NAME", "not a name")]);
    assert!(code == Some(2) && line.contains("admin.server_name: must be a host name"), "{line}");
}

#[test]
fn bad_certificate_is_reported_before_the_start() {
    let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    write_files(dir.path(), &authority, &authority.localhost());
    std::fs::write(dir.path().join("other-key.pem"), authority.localhost().key).unwrap();
    for (cert, key, error) in [
        ("cert.pem", "other-key.pem", "admin.tls_key_file: other-key.pem: does not match cert.pem"),
        ("key.pem", "key.pem", "admin.tls_cert_file: key.pem: contains no certificate"),
        ("missing.pem", "key.pem", "admin.tls_cert_file: missing.pem: No such file"),
        ("cert.pem", "", "admin.tls_cert_file: is set without admin.tls_key_file"),
    ] {
        let settings = format!(
            "[ledger]\nurl = \"memory:\"\n[admin]\ntls_cert_file = \"{cert}\"\ntls_key_file = \"{key}\"\n"
        );
        std::fs::write(dir.path().join("ichido.toml"), settings).unwrap();
        let check = ichido(dir.path()).arg("check").output().unwrap();
        assert_eq!(check.status.code(), Some(1));
        assert!(stdout(&check).contains(error), "{}", stdout(&check));
        let start = ichido(dir.path()).args(["claims", "--listen", "127.0.0.1:0"]).output().unwrap();
        assert!(start.status.code() == Some(2) && stderr(&start).contains(error), "{}", stderr(&start));
    }
}
