//! Lists that are numbered by page, and move while they are read.

use std::collections::HashSet;

use serde::de::DeserializeOwned;

use super::client::Client;
use super::responses::Page;
use crate::dify::error::{Error, Kind};

/// The most that the console gives at once.
const LIMIT: &str = "100";
/// Pages of one list; beyond it something is wrong with the other side.
const MOST_PAGES: usize = 100_000;
/// Pages without anything new after which a list is over: a server may give the same page for ever.
const MOST_STALE: usize = 3;
/// How often a list that moves is read.
const MOST_PASSES: usize = 5;

/// Something in a list.
pub(super) trait Listed: DeserializeOwned {
    /// What it is known by.
    fn id(&self) -> &str;
}

/// Everything in a list, each once.
///
/// When something is put in front, the last of a page comes again on the next one, and what was moved to the front is not
/// seen at all. So a pass in which something came twice is followed by another one.
pub(super) async fn pages<T: Listed>(
    client: &mut Client,
    path: &str,
    filter: &[(&str, &str)],
) -> Result<Vec<T>, Error> {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    for _ in 0..MOST_PASSES {
        let moved = pass(client, path, filter, &mut all, &mut known).await?;
        if !moved {
            return Ok(all);
        }
        tracing::info!(path, "the list moved while it was read: it is read again");
    }
    Ok(all)
}

/// Reads a list once. Says whether something came twice.
async fn pass<T: Listed>(
    client: &mut Client,
    path: &str,
    filter: &[(&str, &str)],
    all: &mut Vec<T>,
    known: &mut HashSet<String>,
) -> Result<bool, Error> {
    let (mut here, mut moved, mut stale) = (HashSet::new(), false, 0);
    for number in 1..=MOST_PAGES {
        let number = number.to_string();
        let mut query = vec![("page", number.as_str()), ("limit", LIMIT)];
        query.extend_from_slice(filter);
        let page: Page<T> = client.get(path, &query).await?;
        let before = here.len();
        for item in page.data {
            moved |= !here.insert(item.id().to_owned());
            if known.insert(item.id().to_owned()) {
                all.push(item);
            }
        }
        stale = if here.len() == before { stale + 1 } else { 0 };
        if !page.has_more || stale == MOST_STALE {
            return Ok(moved);
        }
    }
    Err(endless(path))
}

pub(super) fn endless(path: &str) -> Error {
    Error::new(Kind::Shape, format!("Dify's console: {path} has no end"))
}
