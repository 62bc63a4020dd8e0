//! Duplicate keys within one batch of marks: the backend sees each key once, and only its first request can be new.

use std::collections::HashMap;

use ichido_core::Timestamp;
use ichido_core::mark::{self, Mark};

use crate::Marked;

/// The first request of each key, and for each request the position of its key in that list. `None` if all keys
/// differ.
pub(crate) fn deduplicate(requests: &[mark::Request]) -> Option<(Vec<mark::Request>, Vec<usize>)> {
    if requests.len() < 2 {
        return None;
    }
    let mut first = HashMap::with_capacity(requests.len());
    let positions: Vec<usize> = requests
        .iter()
        .map(|request| {
            let next = first.len();
            *first.entry(request.key.index()).or_insert(next)
        })
        .collect();
    if first.len() == requests.len() {
        return None;
    }
    let mut distinct = Vec::with_capacity(first.len());
    for (request, position) in requests.iter().zip(&positions) {
        if *position == distinct.len() {
            distinct.push(request.clone());
        }
    }
    Some((distinct, positions))
}

/// Expands results to one per request: the first request of a key gets the ledger's result, duplicates get "seen
/// now".
pub(crate) fn expand(
    distinct: &[mark::Request],
    positions: &[usize],
    answers: &[Marked],
    now: Timestamp,
) -> Vec<Marked> {
    let mut answered = vec![false; answers.len()];
    positions
        .iter()
        .map(|&position| {
            let answer = answers[position].clone();
            if !std::mem::replace(&mut answered[position], true) {
                return answer;
            }
            match answer.mark {
                Mark::New => {
                    let metadata = distinct[position].metadata.clone();
                    Marked { mark: Mark::Seen { first_seen: now, metadata }, ..answer }
                }
                Mark::Seen { .. } => answer,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ichido_core::{MarkKey, Metadata, Nonce};

    use super::*;

    fn request(key: &str, nonce: u8) -> mark::Request {
        let metadata = Metadata::new([("n".to_owned(), nonce.to_string())]).unwrap();
        let key = MarkKey::new(key).unwrap();
        mark::Request { key, nonce: Nonce::from_bytes([nonce; 16]), retention_ms: 1, metadata }
    }

    #[test]
    fn duplicate_key_in_a_batch_is_new_once() {
        let requests = [request("a", 1), request("b", 2), request("a", 3)];
        assert_eq!(deduplicate(&requests[..2]), None);
        let (distinct, positions) = deduplicate(&requests).unwrap();
        assert_eq!(distinct, [requests[0].clone(), requests[1].clone()]);
        let new = Marked { mark: Mark::New, degraded: false };
        let answers = expand(&distinct, &positions, &[new.clone(), new.clone()], Timestamp(9));
        let metadata = requests[0].metadata.clone();
        let seen = Marked { mark: Mark::Seen { first_seen: Timestamp(9), metadata }, degraded: false };
        assert_eq!(answers, [new.clone(), new, seen]);
    }
}
