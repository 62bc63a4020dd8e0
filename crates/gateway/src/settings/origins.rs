//! `cors` of a route: the origins whose pages may read its answers.

use http::HeaderValue;
use http::uri::{Scheme, Uri};

use ichido_settings::Invalid;

/// Origins that may read answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// All of them.
    Any,
    /// These, as browsers write them.
    Only(Vec<HeaderValue>),
}

impl Origins {
    pub(super) fn check(field: &str, list: &[String]) -> Result<Self, Invalid> {
        if list == ["*"] {
            return Ok(Self::Any);
        }
        list.iter().map(|text| origin(field, text)).collect::<Result<_, _>>().map(Self::Only)
    }
}

/// Scheme, host and a port that is not the scheme's own: what browsers send.
fn origin(field: &str, text: &str) -> Result<HeaderValue, Invalid> {
    let bad = || {
        Invalid::new(
            field,
            format!("contains {text:?}; expected \"*\" alone, or origins such as \"https://app.example\""),
        )
    };
    let uri: Uri = text.parse().map_err(|_| bad())?;
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else { return Err(bad()) };
    let silent = if *scheme == Scheme::HTTPS { 443 } else { 80 };
    let is_as_sent = text == format!("{scheme}://{authority}")
        && !text.contains(|letter: char| letter.is_ascii_uppercase() || letter == '@')
        && authority.port_u16() != Some(silent);
    if !is_as_sent { Err(bad()) } else { HeaderValue::try_from(text).map_err(|_| bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_send_it() {
        let check = |text: &str| Origins::check("gateway.routes[0].cors", &[text.to_owned()]);
        assert_eq!(check("*").unwrap(), Origins::Any);
        for text in ["https://app.example", "http://localhost:3000", "http://127.0.0.1:8000"] {
            assert_eq!(check(text).unwrap(), Origins::Only(vec![text.parse().unwrap()]));
        }
        for text in [
            "app.example",
            "https://app.example/",
            "https://App.example",
            "https://app.example:443",
            "https://u@app.example",
            "null",
            "",
        ] {
            let message = check(text).unwrap_err().to_string();
            assert!(message.contains("gateway.routes[0].cors"), "{text}: {message}");
        }
    }
}
