//! Reads the tenant from a verified JWT. A refreshed token belongs to the same tenant.

use std::fmt;
use std::path::Path;

use http::header::AUTHORIZATION;
use http::request::Parts;
use ichido_http::{TenantError, TenantResolver};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

/// Uses a claim of the bearer token as the tenant, after checking its signature, times, issuer and audience.
pub(crate) struct JwtTenant {
    claim: String,
    keys: Vec<(Option<String>, DecodingKey)>,
    trusted: Trusted,
}

/// Which issuers and audiences are accepted. `None` accepts any.
#[derive(Debug, Default)]
pub(crate) struct Trusted {
    pub(crate) issuers: Option<Vec<String>>,
    pub(crate) audiences: Option<Vec<String>>,
}

impl Trusted {
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.validate_nbf = true;
        validation.validate_aud = self.audiences.is_some();
        // A claim that is checked is required: a token without an audience could be for anyone.
        if let Some(issuers) = &self.issuers {
            validation.set_issuer(issuers);
            validation.required_spec_claims.insert("iss".to_owned());
        }
        if let Some(audiences) = &self.audiences {
            validation.set_audience(audiences);
            validation.required_spec_claims.insert("aud".to_owned());
        }
        validation
    }
}

impl JwtTenant {
    /// Reads the keys from a file: a public key as PEM, a JWK set, or the bytes of a shared secret.
    pub(crate) fn load(claim: &str, file: &Path, trusted: Trusted) -> Result<Self, String> {
        let bytes = std::fs::read(file)
            .map_err(|error| format!("{}: cannot read the file: {error}", file.display()))?;
        let keys = keys(&bytes).map_err(|why| format!("{}: the file {why}", file.display()))?;
        Ok(Self { claim: claim.to_owned(), keys, trusted })
    }

    fn verify(&self, token: &str) -> Result<Map<String, Value>, String> {
        let header = decode_header(token).map_err(|_| "the bearer token is not a JWT".to_owned())?;
        let candidates = self.keys.iter().filter(|(kid, key)| {
            let named = match (kid, &header.kid) {
                (Some(ours), Some(theirs)) => ours == theirs,
                _ => true,
            };
            named && algorithms(key.family()).contains(&header.alg)
        });
        let mut why = "no key matches the bearer token".to_owned();
        for (_, key) in candidates {
            let validation = self.trusted.validation(header.alg);
            match decode::<Map<String, Value>>(token, key, &validation) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(error) => why = format!("the bearer token is invalid: {error}"),
            }
        }
        Err(why)
    }
}

impl TenantResolver for JwtTenant {
    fn tenant(&self, parts: &Parts) -> Result<Option<String>, TenantError> {
        let Some(value) = parts.headers.get(AUTHORIZATION) else { return Ok(None) };
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let token = token.ok_or_else(|| {
            TenantError::Unverified("the Authorization header has no bearer token".to_owned())
        })?;
        let claims = self.verify(token).map_err(TenantError::Unverified)?;
        let value = match claims.get(&self.claim) {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => {
                return Err(TenantError::Unverified(format!(
                    "the bearer token has no claim {:?}",
                    self.claim
                )));
            }
        };
        Ok(Some(format!("{}:{value}", self.claim)))
    }

    fn describe(&self) -> String {
        format!("keys are separate for each value of the claim {} of the bearer token", self.claim)
    }

    fn caution(&self) -> Option<&'static str> {
        match (&self.trusted.issuers, &self.trusted.audiences) {
            (Some(_), Some(_)) => None,
            (None, Some(_)) => Some("gateway.jwt_issuer is not set, so tokens of any issuer are accepted"),
            (_, None) => Some("gateway.jwt_audience is not set, so tokens for other services are accepted"),
        }
    }
}

/// Omits the keys.
impl fmt::Debug for JwtTenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtTenant").field("claim", &self.claim).finish_non_exhaustive()
    }
}

const NO_KEY: &str =
    "contains no key: expected a public key as PEM, a JWK set, or a secret of at least 32 bytes";

fn keys(bytes: &[u8]) -> Result<Vec<(Option<String>, DecodingKey)>, &'static str> {
    let text = bytes.trim_ascii_start();
    if text.starts_with(b"-----BEGIN") {
        let key = DecodingKey::from_rsa_pem(bytes)
            .or_else(|_| DecodingKey::from_ec_pem(bytes))
            .or_else(|_| DecodingKey::from_ed_pem(bytes));
        return key.map(|key| vec![(None, key)]).map_err(|_| NO_KEY);
    }
    if text.starts_with(b"{") {
        let set: JwkSet = serde_json::from_slice(bytes).map_err(|_| NO_KEY)?;
        let keys =
            set.keys.iter().map(|jwk| Some((jwk.common.key_id.clone(), DecodingKey::from_jwk(jwk).ok()?)));
        return keys.collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty()).ok_or(NO_KEY);
    }
    if let Some(why) = not_a_secret(text) {
        return Err(why);
    }
    let secret = bytes.trim_ascii_end();
    match secret.len() >= 32 {
        true => Ok(vec![(None, DecodingKey::from_secret(secret))]),
        false => Err(NO_KEY),
    }
}

/// Why a file that is neither PEM nor a JWK set is not a secret either. If a public key were used as a secret, anyone could
/// sign tokens.
fn not_a_secret(text: &[u8]) -> Option<&'static str> {
    let begins = |prefixes: &[&[u8]]| prefixes.iter().any(|prefix| text.starts_with(prefix));
    if begins(&[b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"]) {
        return Some("starts with a byte order mark: save the file without one");
    }
    if text.windows(9).any(|part| part == b"---BEGIN " || part == b"--- BEGIN") {
        return Some("has text before its PEM section: remove everything before -----BEGIN");
    }
    if begins(&[b"ssh-", b"ecdsa-", b"sk-ssh-", b"sk-ecdsa-"]) {
        return Some("contains an OpenSSH key: convert it to PEM, e.g. with ssh-keygen -e -m PKCS8");
    }
    if begins(&[b"["]) {
        return Some("contains a JSON array: a JWK set is an object with the member keys");
    }
    is_der(text).then_some("contains a DER key: convert it to PEM, e.g. with openssl pkey -inform DER -pubin")
}

/// Whether the file is a single ASN.1 sequence, as a DER public key is.
fn is_der(bytes: &[u8]) -> bool {
    match bytes {
        [0x30, 0x82, high, low, rest @ ..] => rest.len() == usize::from(u16::from_be_bytes([*high, *low])),
        [0x30, 0x81, length, rest @ ..] | [0x30, length @ ..=0x7f, rest @ ..] => {
            rest.len() == usize::from(*length)
        }
        _ => false,
    }
}

/// The algorithms that may be used with a key. The token's `alg` alone is not enough: with HS256, anyone could sign with the
/// public key as the secret.
fn algorithms(family: AlgorithmFamily) -> &'static [Algorithm] {
    use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512, PS256, PS384, PS512, RS256, RS384, RS512};
    match family {
        AlgorithmFamily::Hmac => &[HS256, HS384, HS512],
        AlgorithmFamily::Rsa => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmFamily::Ec => &[ES256, ES384],
        AlgorithmFamily::Ed => &[EdDSA],
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn tenant() -> JwtTenant {
        with_trusted(Trusted::default())
    }

    fn with_trusted(trusted: Trusted) -> JwtTenant {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, SECRET).unwrap();
        JwtTenant::load("sub", &file, trusted).unwrap()
    }

    fn token(claims: &Value, secret: &[u8]) -> String {
        encode(&Header::default(), claims, &EncodingKey::from_secret(secret)).unwrap()
    }

    fn resolve(authorization: Option<&str>) -> Result<Option<String>, TenantError> {
        resolve_with(&tenant(), authorization)
    }

    fn resolve_with(tenant: &JwtTenant, authorization: Option<&str>) -> Result<Option<String>, TenantError> {
        let mut request = Request::builder();
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        tenant.tenant(&request.body(()).unwrap().into_parts().0)
    }

    const FAR: u64 = 4_000_000_000;

    #[test]
    fn a_refreshed_token_belongs_to_the_same_tenant() {
        let first = token(&json!({"sub": "u1", "exp": FAR, "jti": 1}), SECRET);
        let second = token(&json!({"sub": "u1", "exp": FAR + 1, "jti": 2}), SECRET);
        assert_ne!(first, second);
        assert_eq!(resolve(Some(&format!("Bearer {first}"))), Ok(Some("sub:u1".to_owned())));
        assert_eq!(resolve(Some(&format!("bearer {second}"))), Ok(Some("sub:u1".to_owned())));
    }

    #[test]
    fn an_invalid_token_is_unverified() {
        let bad = [
            token(&json!({"sub": "u1", "exp": FAR}), b"another secret of thirty-two bytes"),
            token(&json!({"sub": "u1", "exp": 1}), SECRET),
            token(&json!({"sub": "u1"}), SECRET),
            token(&json!({"exp": FAR}), SECRET),
            token(&json!({"sub": "u1", "exp": FAR, "nbf": FAR - 1}), SECRET),
            "a.b.c".to_owned(),
            // {"alg":"none"} and {"sub":"u1"}
            "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1MSJ9.".to_owned(),
        ];
        for token in bad {
            assert!(
                matches!(resolve(Some(&format!("Bearer {token}"))), Err(TenantError::Unverified(_))),
                "{token}"
            );
        }
        assert!(matches!(resolve(Some("Basic dTpw")), Err(TenantError::Unverified(_))));
        assert_eq!(resolve(None), Ok(None));
    }

    #[test]
    fn a_token_of_another_issuer_or_audience_is_unverified() {
        let strict = with_trusted(Trusted {
            issuers: Some(vec!["https://issuer".to_owned()]),
            audiences: Some(vec!["orders".to_owned(), "payments".to_owned()]),
        });
        let resolve =
            |claims: Value| resolve_with(&strict, Some(&format!("Bearer {}", token(&claims, SECRET))));
        let good = json!({"sub": "u1", "exp": FAR, "iss": "https://issuer", "aud": ["x", "orders"]});
        assert_eq!(resolve(good.clone()), Ok(Some("sub:u1".to_owned())));
        for (name, value) in [
            ("iss", json!("https://other")),
            ("iss", Value::Null),
            ("aud", json!("other")),
            ("aud", json!([])),
            ("aud", Value::Null),
        ] {
            let mut bad = good.clone();
            if value.is_null() {
                drop(bad.as_object_mut().unwrap().remove(name));
            } else {
                bad[name] = value;
            }
            assert!(matches!(resolve(bad.clone()), Err(TenantError::Unverified(_))), "{bad}");
        }
        assert_eq!(strict.caution(), None);
        assert!(tenant().caution().unwrap().contains("jwt_audience"));
    }

    #[test]
    fn a_file_without_a_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        for text in
            ["", "short", "{\"keys\":[]}", "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n"]
        {
            std::fs::write(&file, text).unwrap();
            assert!(
                JwtTenant::load("sub", &file, Trusted::default()).unwrap_err().contains("contains no key"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_public_key_is_not_accepted_as_a_secret() {
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, pem).unwrap();
        JwtTenant::load("sub", &file, Trusted::default()).unwrap();
        let der = [&[0x30, 0x2a][..], &[7; 42]].concat();
        let long = [&[0x30, 0x82, 0x01, 0x22][..], &[7; 0x122]].concat();
        for (bytes, word) in [
            (format!("# the key of the issuer\n{pem}").into_bytes(), "PEM"),
            (format!("\u{feff}{pem}").into_bytes(), "byte order mark"),
            (
                pem.encode_utf16().fold(vec![0xff, 0xfe], |mut all, unit| {
                    all.extend(unit.to_le_bytes());
                    all
                }),
                "byte order mark",
            ),
            (format!("---- BEGIN SSH2 PUBLIC KEY ----\n{}\n", "A".repeat(68)).into_bytes(), "PEM"),
            (format!("\n ssh-ed25519 {} me@here", "A".repeat(68)).into_bytes(), "OpenSSH"),
            (format!("ecdsa-sha2-nistp256 {} me@here", "A".repeat(68)).into_bytes(), "OpenSSH"),
            (b"[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"GXYZ\"}]".to_vec(), "JWK set"),
            (der, "DER"),
            (long, "DER"),
        ] {
            std::fs::write(&file, &bytes).unwrap();
            let line = JwtTenant::load("sub", &file, Trusted::default()).unwrap_err();
            assert!(line.contains(word) && !line.contains("AAAA") && !line.contains('\n'), "{word}: {line}");
        }
    }
}
