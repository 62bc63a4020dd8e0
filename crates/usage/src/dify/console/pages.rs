//! Reads lists that are numbered by page and shift while they are read.

use std::collections::HashSet;

use serde::de::DeserializeOwned;

use super::client::Client;
use super::responses::Page;
use crate::dify::error::{Error, Kind};

/// The most items that the console returns per page.
const PAGE_ITEMS: &str = "100";
/// The most pages of a list; more mean that the server repeats itself.
const PAGES_MAX: usize = 100_000;
/// A list ends after this many pages without new items: a server might return the same page for ever.
const STALE_PAGES_MAX: usize = 3;
/// The most times that a shifting list is read.
const PASSES_MAX: usize = 5;

/// An item of a list.
pub(super) trait Listed: DeserializeOwned {
    /// The id of the item.
    fn id(&self) -> &str;
}

/// Reads all items of a list, each once.
///
/// If an item is inserted at the front while the list is read, the last item of a page appears again on the next
/// page, and an item that shifted to the front is not seen at all. So a pass in which an item appeared twice is
/// followed by another.
pub(super) async fn pages<T: Listed>(
    client: &mut Client,
    path: &str,
    filter: &[(&str, &str)],
) -> Result<Vec<T>, Error> {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    for _ in 0..PASSES_MAX {
        let shifted = read_once(client, path, filter, &mut all, &mut known).await?;
        if !shifted {
            return Ok(all);
        }
        tracing::info!(path, "list shifted while it was read; reading it again");
    }
    Ok(all)
}

/// Reads a list once. Returns whether an item appeared twice.
async fn read_once<T: Listed>(
    client: &mut Client,
    path: &str,
    filter: &[(&str, &str)],
    all: &mut Vec<T>,
    known: &mut HashSet<String>,
) -> Result<bool, Error> {
    let (mut seen, mut shifted, mut stale) = (HashSet::new(), false, 0);
    for number in 1..=PAGES_MAX {
        let number = number.to_string();
        let mut query = vec![("page", number.as_str()), ("limit", PAGE_ITEMS)];
        query.extend_from_slice(filter);
        let page: Page<T> = client.get(path, &query).await?;
        let before = seen.len();
        for item in page.data {
            shifted |= !seen.insert(item.id().to_owned());
            if known.insert(item.id().to_owned()) {
                all.push(item);
            }
        }
        stale = if seen.len() == before { stale + 1 } else { 0 };
        if !page.has_more || stale == STALE_PAGES_MAX {
            return Ok(shifted);
        }
    }
    Err(endless(path))
}

pub(super) fn endless(path: &str) -> Error {
    Error::new(Kind::Incompatible, format!("Dify's console: {path} does not end"))
}
