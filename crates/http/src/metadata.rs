//! Metadata that is stored with a claim.

use http::HeaderMap;
use ichido_core::Metadata;

use crate::json::Document;
use crate::pointer::Pointer;

/// Longer values are not stored: they are not ids.
const VALUE_BYTES_MAX: usize = 256;
/// The header with which clients and proxies identify a request in their logs, and its name in metadata.
const REQUEST_ID: (&str, &str) = ("x-request-id", "request_id");

/// Where a metadata value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataSource {
    /// The first string or number that these pointers find in a JSON body.
    Body(Vec<Pointer>),
    /// The id of the instance that received the request.
    Instance,
}

impl MetadataSource {
    /// The values of a JSON body that it may use.
    pub(crate) fn pointers(&self) -> &[Pointer] {
        match self {
            Self::Body(pointers) => pointers,
            Self::Instance => &[],
        }
    }
}

/// The metadata of a request.
pub(crate) fn of_request(
    sources: &[(String, MetadataSource)],
    document: &Document<'_>,
    instance: &str,
    headers: &HeaderMap,
) -> Metadata {
    let value = |source: &MetadataSource| match source {
        MetadataSource::Instance => Some(instance.to_owned()),
        MetadataSource::Body(pointers) => {
            let found = pointers.iter().find_map(|pointer| document.text(pointer));
            found.filter(|text| text.len() <= VALUE_BYTES_MAX).map(ToOwned::to_owned)
        }
    };
    let request_id = headers.get(REQUEST_ID.0).and_then(|id| id.to_str().ok());
    let request_id = request_id.filter(|id| (1..=VALUE_BYTES_MAX).contains(&id.len()));
    let request_id = request_id.map(|id| (REQUEST_ID.1.to_owned(), id.to_owned()));
    // What the route says comes later, and wins.
    let pairs = sources.iter().filter_map(|(name, source)| Some((name.clone(), value(source)?)));
    Metadata::new(request_id.into_iter().chain(pairs)).unwrap_or_default()
}
