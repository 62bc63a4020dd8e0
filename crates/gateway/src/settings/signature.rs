//! `signature = { … }` of a route: how a sender without a preset signs its requests.

use ichido_http::{Algorithm, Encoding, Preset, Scheme, Signature, SignatureRule};
use schemars::JsonSchema;
use serde::Deserialize;

use super::parse::{parse, word};
use super::secrets::{RawSecrets, given_secrets};
use ichido_settings::Invalid;

/// A signature in a header of its own, over headers and the body.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSignature {
    /// The header with the signature.
    header: String,
    /// `hmac-sha256` (default) or `ed25519`.
    scheme: Option<String>,
    /// The secrets; for `ed25519` the public keys, in hexadecimal digits or base64. One that matches is enough.
    secret: RawSecrets,
    /// How the signature is written: `hex` (default) or `base64`.
    encoding: Option<String>,
    /// What comes before the signature in its header, such as `sha256=`.
    prefix: Option<String>,
    /// What is signed: text, headers in braces, and the body at the end. Default: `{body}`.
    signed: Option<String>,
    /// A signed header with the time in seconds. A request that is more than 5 minutes old is refused.
    timestamp: Option<String>,
}

impl RawSignature {
    pub(super) fn check(self, name: &str, preset: Option<Preset>) -> Result<Option<Signature>, Invalid> {
        if let Some(preset) = preset.filter(|preset| preset.scheme().is_some()) {
            let problem = format!("preset {:?} already says how requests are signed", preset.as_str());
            return Err(Invalid::new(name, problem));
        }
        let field = |field: &str| format!("{name}.{field}");
        let header = |of: &str, text: &str| {
            text.parse().map_err(|_| Invalid::new(field(of), format!("{text:?} is not the name of a header")))
        };
        let timestamp = self.timestamp.as_deref().map(|text| header("timestamp", text)).transpose()?;
        let rule = SignatureRule {
            header: header("header", &self.header)?,
            prefix: self.prefix.unwrap_or_default(),
            algorithm: word(&field("scheme"), self.scheme.as_deref(), Algorithm::HmacSha256)?,
            encoding: word(&field("encoding"), self.encoding.as_deref(), Encoding::Hex)?,
            signed: match &self.signed {
                Some(text) => parse(&field("signed"), text)?,
                None => ichido_http::SignedText::default(),
            },
            timestamp,
        };
        if let Some(timestamp) = &rule.timestamp
            && !rule.signed.includes(timestamp)
        {
            let problem =
                format!("is not signed, so anyone could change it; add {{{timestamp}}} to `signed`");
            return Err(Invalid::new(field("timestamp"), problem));
        }
        let secrets = given_secrets(&field("secret"), self.secret)?;
        let signature = Signature::new(Scheme::Other(rule), &secrets);
        signature.map_err(|error| Invalid::new(field("secret"), error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Option<Signature>, Invalid> {
        toml::from_str::<RawSignature>(text).unwrap().check("gateway.routes[0].signature", None)
    }

    #[test]
    fn rule_is_read() {
        let zoom = "header = \"x-zm-signature\"\nprefix = \"v0=\"\nsecret = [\"new\", \"old\"]\n\
                    signed = \"v0:{x-zm-request-timestamp}:{body}\"\ntimestamp = \"X-Zm-Request-Timestamp\"\n";
        assert_eq!(check(zoom).unwrap().unwrap().header(), "x-zm-signature");
        let shopify = "header = \"X-Shopify-Hmac-Sha256\"\nsecret = \"s\"\nencoding = \"base64\"\n";
        assert!(check(shopify).unwrap().is_some());
        let key = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
        let discord = format!(
            "header = \"X-Signature-Ed25519\"\nscheme = \"ed25519\"\nsecret = {key:?}\n\
             signed = \"{{X-Signature-Timestamp}}{{body}}\"\ntimestamp = \"X-Signature-Timestamp\"\n"
        );
        assert!(check(&discord).unwrap().is_some());
    }

    #[test]
    fn preset_that_knows_its_signature_takes_no_rule() {
        let rule = |text| toml::from_str::<RawSignature>(text).unwrap();
        let text = "header = \"a\"\nsecret = \"s\"\n";
        assert!(rule(text).check("signature", Some(Preset::CloudEvents)).unwrap().is_some());
        let refused = rule(text).check("signature", Some(Preset::GitHub)).unwrap_err().to_string();
        assert_eq!(refused, "signature: preset \"github\" already says how requests are signed");
    }

    #[test]
    fn mistakes_are_named() {
        for (rest, expected) in [
            ("header = \"a b\"\nsecret = \"s\"", "header: \"a b\" is not the name of a header"),
            ("header = \"a\"\nsecret = \"\"", "secret: is empty"),
            ("header = \"a\"\nsecret = \"s\"\nsigned = \"{b}\"", "signed: \"{b}\" does not end with {body}"),
            (
                "header = \"a\"\nsecret = \"s\"\nsigned = \"{b{body}\"",
                "signed: \"{b{body}\" has a { without }",
            ),
            (
                "header = \"a\"\nsecret = \"s\"\nsigned = \"{body}{body}\"",
                "signed: \"{body}{body}\" has {body} twice",
            ),
            ("header = \"a\"\nsecret = \"s\"\ntimestamp = \"t\"", "timestamp: is not signed"),
            (
                "header = \"a\"\nsecret = \"hunter2\"\nscheme = \"ed25519\"",
                "secret: is not an Ed25519 public key",
            ),
            (
                "header = \"a\"\nsecret = \"s\"\nscheme = \"md5\"",
                "scheme: \"md5\" is not one of: hmac-sha256, ed25519",
            ),
        ] {
            let message = check(rest).unwrap_err().to_string();
            assert!(message.starts_with(&format!("gateway.routes[0].signature.{expected}")), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
