//! The stylesheet, the script and the icon. They are part of the binary.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, StatusCode, header};

use crate::auth::ASSETS_PATH;

pub(super) const STYLE: Asset =
    Asset { name: "style.css", kind: "text/css; charset=utf-8", text: include_str!("style.css") };
pub(super) const SCRIPT: Asset =
    Asset { name: "console.js", kind: "text/javascript; charset=utf-8", text: include_str!("console.js") };
pub(super) const ICON: Asset =
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("icon.svg") };

/// A static file of the console.
pub(super) struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    /// The URL, with a hash of the content: browsers may cache the file for as long as it does not change.
    pub(super) fn href(&self) -> String {
        format!("{ASSETS_PATH}{}?{:016x}", self.name, content_hash(self.text.as_bytes()))
    }

    fn response(&self) -> Response {
        let fields: [(HeaderName, &str); 3] = [
            (header::CONTENT_TYPE, self.kind),
            (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        (fields, self.text).into_response()
    }
}

pub(super) async fn asset(axum::extract::Path(name): axum::extract::Path<String>) -> Response {
    match [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| asset.name == name) {
        Some(asset) => asset.response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// FNV-1a. It only tells versions apart.
const fn content_hash(bytes: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}
