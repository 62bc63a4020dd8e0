//! Metadata that is stored with a claim.

use ichido_core::Metadata;

use crate::json::Document;
use crate::pointer::Pointer;

/// Longer values are not stored: they are not ids.
const VALUE_BYTES_MAX: usize = 256;

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

/// The metadata of a request. `ids` identify the request in logs and traces.
pub(crate) fn of_request(
    sources: &[(String, MetadataSource)],
    document: &Document<'_>,
    instance: &str,
    ids: impl IntoIterator<Item = (&'static str, Option<String>)>,
) -> Metadata {
    let value = |source: &MetadataSource| match source {
        MetadataSource::Instance => Some(instance.to_owned()),
        MetadataSource::Body(pointers) => {
            let found = pointers.iter().find_map(|pointer| document.text(pointer));
            found.filter(|text| text.len() <= VALUE_BYTES_MAX).map(ToOwned::to_owned)
        }
    };
    let ids = ids.into_iter().filter_map(|(name, id)| Some((name.to_owned(), id?)));
    let pairs = || sources.iter().filter_map(|(name, source)| Some((name.clone(), value(source)?)));
    // A name that the operator chose comes last, and wins. If there is not enough room, only those are kept.
    Metadata::new(ids.chain(pairs())).or_else(|_| Metadata::new(pairs())).unwrap_or_default()
}
