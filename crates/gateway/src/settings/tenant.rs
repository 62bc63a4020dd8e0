//! `gateway.tenant`: whose key it is, and how a token is verified that says so.

use std::path::PathBuf;
use std::sync::Arc;

use ichido_http::{Rules, Tenant};

use crate::jwt::{JwtTenant, Trusted};
use ichido_serve::tls;
use ichido_settings::{Invalid, OneOrMany};

/// The settings as they stand in the file.
pub(super) struct RawTenant {
    pub(super) rule: Option<String>,
    pub(super) jwt_key_file: Option<PathBuf>,
    pub(super) jwt_issuer: Option<OneOrMany>,
    pub(super) jwt_audience: Option<OneOrMany>,
}

impl RawTenant {
    pub(super) fn check(self) -> Result<Tenant, Invalid> {
        let bad = |why: &str| {
            let expected = "expected auto, header:NAME, cookie:NAME, jwt:CLAIM or none";
            Invalid::new("gateway.tenant", format!("{why}; {expected}"))
        };
        let rule = self.rule.clone();
        let tenant = match rule.as_deref().map(|text| text.split_once(':').unwrap_or((text, ""))) {
            None => Rules::default().tenant,
            Some(("auto", "")) => Tenant::Auto,
            Some(("none", "")) => Tenant::None,
            Some(("header", name)) => Tenant::Header(name.parse().map_err(|_| bad("names no header field"))?),
            Some(("cookie", name)) if !name.is_empty() && !name.contains(['=', ';', ' ']) => {
                Tenant::Cookie(name.to_owned())
            }
            Some(("cookie", _)) => return Err(bad("names no cookie")),
            Some(("jwt", "")) => return Err(bad("names no claim")),
            Some(("jwt", claim)) => return self.verified(claim),
            Some(_) => return Err(bad("is not a known rule")),
        };
        let given = [
            ("jwt_key_file", tls::non_empty(self.jwt_key_file).is_some()),
            ("jwt_issuer", self.jwt_issuer.is_some()),
            ("jwt_audience", self.jwt_audience.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(Invalid::new(format!("gateway.{name}"), "is set, but gateway.tenant is not jwt:CLAIM"))
            }
            None => Ok(tenant),
        }
    }

    fn verified(self, claim: &str) -> Result<Tenant, Invalid> {
        let file = tls::non_empty(self.jwt_key_file).ok_or_else(|| {
            Invalid::new("gateway.jwt_key_file", "is not set, but gateway.tenant is jwt:CLAIM")
        })?;
        let names = |name: &str, texts: Option<OneOrMany>| match texts {
            Some(OneOrMany(texts)) if texts.is_empty() || texts.iter().any(String::is_empty) => {
                Err(Invalid::new(format!("gateway.{name}"), "is empty; name what to expect, or remove it"))
            }
            texts => Ok(texts.map(|OneOrMany(texts)| texts)),
        };
        let trusted = Trusted {
            issuers: names("jwt_issuer", self.jwt_issuer)?,
            audiences: names("jwt_audience", self.jwt_audience)?,
        };
        let tenant = JwtTenant::load(claim, &file, trusted)
            .map_err(|why| Invalid::new("gateway.jwt_key_file", why))?;
        Ok(Tenant::Custom(Arc::new(tenant)))
    }
}
