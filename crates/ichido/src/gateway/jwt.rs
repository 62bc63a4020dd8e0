//! The tenant from a verified token: a refreshed token is still the same tenant.

use std::fmt;
use std::path::Path;

use http::header::AUTHORIZATION;
use http::request::Parts;
use ichido_http::{TenantError, TenantOf};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

/// Reads a claim of the bearer token after its signature and its times were checked.
pub(crate) struct JwtTenant {
    claim: String,
    keys: Vec<(Option<String>, DecodingKey)>,
}

impl JwtTenant {
    /// With the keys in a file: a public key as PEM, a JWK set, or the bytes of a shared secret.
    pub(crate) fn load(claim: &str, file: &Path) -> Result<Self, String> {
        let bytes =
            std::fs::read(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        let keys = keys(&bytes).ok_or_else(|| {
            format!(
                "{} holds no key: expected a public key as PEM, a JWK set, or a secret of at least 32 bytes",
                file.display()
            )
        })?;
        Ok(Self { claim: claim.to_owned(), keys })
    }

    fn verify(&self, token: &str) -> Result<Map<String, Value>, String> {
        let header = decode_header(token).map_err(|_| "the bearer token is not a JWT".to_owned())?;
        let fitting = self.keys.iter().filter(|(kid, key)| {
            let named = match (kid, &header.kid) {
                (Some(ours), Some(theirs)) => ours == theirs,
                _ => true,
            };
            named && algorithms(key.family()).contains(&header.alg)
        });
        let mut why = "no key fits the bearer token".to_owned();
        for (_, key) in fitting {
            let mut validation = Validation::new(header.alg);
            validation.validate_aud = false;
            validation.validate_nbf = true;
            match decode::<Map<String, Value>>(token, key, &validation) {
                Ok(decoded) => return Ok(decoded.claims),
                Err(error) => why = format!("the bearer token is not valid: {error}"),
            }
        }
        Err(why)
    }
}

impl TenantOf for JwtTenant {
    fn tenant(&self, parts: &Parts) -> Result<Option<String>, TenantError> {
        let Some(value) = parts.headers.get(AUTHORIZATION) else { return Ok(None) };
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        let token =
            token.ok_or_else(|| TenantError::Unverified("Authorization holds no bearer token".to_owned()))?;
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
}

/// Shows no key.
impl fmt::Debug for JwtTenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtTenant").field("claim", &self.claim).finish_non_exhaustive()
    }
}

fn keys(bytes: &[u8]) -> Option<Vec<(Option<String>, DecodingKey)>> {
    if bytes.trim_ascii_start().starts_with(b"-----BEGIN") {
        let key = DecodingKey::from_rsa_pem(bytes)
            .or_else(|_| DecodingKey::from_ec_pem(bytes))
            .or_else(|_| DecodingKey::from_ed_pem(bytes));
        return key.ok().map(|key| vec![(None, key)]);
    }
    if bytes.trim_ascii_start().starts_with(b"{") {
        let set: JwkSet = serde_json::from_slice(bytes).ok()?;
        let keys =
            set.keys.iter().map(|jwk| Some((jwk.common.key_id.clone(), DecodingKey::from_jwk(jwk).ok()?)));
        return keys.collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty());
    }
    let secret = bytes.trim_ascii_end();
    (secret.len() >= 32).then(|| vec![(None, DecodingKey::from_secret(secret))])
}

/// What may have signed with such a key. Never the token's own word alone: a public key is no shared secret.
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
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, SECRET).unwrap();
        JwtTenant::load("sub", &file).unwrap()
    }

    fn token(claims: &Value, secret: &[u8]) -> String {
        encode(&Header::default(), claims, &EncodingKey::from_secret(secret)).unwrap()
    }

    fn of(authorization: Option<&str>) -> Result<Option<String>, TenantError> {
        let mut request = Request::builder();
        if let Some(value) = authorization {
            request = request.header(AUTHORIZATION, value);
        }
        tenant().tenant(&request.body(()).unwrap().into_parts().0)
    }

    const FAR: u64 = 4_000_000_000;

    #[test]
    fn a_refreshed_token_is_the_same_tenant() {
        let first = token(&json!({"sub": "u1", "exp": FAR, "jti": 1}), SECRET);
        let second = token(&json!({"sub": "u1", "exp": FAR + 1, "jti": 2}), SECRET);
        assert_ne!(first, second);
        assert_eq!(of(Some(&format!("Bearer {first}"))), Ok(Some("sub:u1".to_owned())));
        assert_eq!(of(Some(&format!("bearer {second}"))), Ok(Some("sub:u1".to_owned())));
    }

    #[test]
    fn a_token_that_is_not_good_names_nobody() {
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
                matches!(of(Some(&format!("Bearer {token}"))), Err(TenantError::Unverified(_))),
                "{token}"
            );
        }
        assert!(matches!(of(Some("Basic dTpw")), Err(TenantError::Unverified(_))));
        assert_eq!(of(None), Ok(None));
    }

    #[test]
    fn a_file_without_a_key_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        for text in
            ["", "short", "{\"keys\":[]}", "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n"]
        {
            std::fs::write(&file, text).unwrap();
            assert!(JwtTenant::load("sub", &file).unwrap_err().contains("holds no key"), "{text}");
        }
    }
}
