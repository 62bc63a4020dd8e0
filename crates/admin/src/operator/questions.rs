//! Counts the questions that services are asked.

use ichido_core::Key;
use ichido_http::{AskService, Asked, NotAsked};
use metrics::counter;

/// The answers that questions are counted by.
const ANSWERS: [&str; 3] = ["done", "absent", "undecided"];

/// Asks a service, and counts its answer.
pub(crate) async fn ask(service: &dyn AskService, key: &Key) -> Result<Asked, NotAsked> {
    let asked = service.ask(key).await?;
    counter!("ichido_doubt_questions_total", "answer" => asked.answer.name()).increment(1);
    Ok(asked)
}

/// Reports zero for what has not happened yet.
pub(crate) fn register() {
    for answer in ANSWERS {
        counter!("ichido_doubt_questions_total", "answer" => answer).increment(0);
    }
}
