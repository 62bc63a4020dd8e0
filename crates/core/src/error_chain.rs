//! One line for an error and its causes.

use std::error::Error;

/// The error and its causes on one line. A cause whose text is already part of the line is left out.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        source = cause.source();
    }
    line.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn causes_follow_on_one_line_and_are_not_repeated() {
        let inner = Layer("connection\nrefused", None);
        let middle = Layer("cannot connect", Some(Box::new(inner)));
        let outer = Layer("sending failed: cannot connect", Some(Box::new(middle)));
        assert_eq!(error_chain(&outer), "sending failed: cannot connect: connection refused");
    }
}
