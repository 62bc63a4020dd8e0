//! What the export has sent, for traces.

use std::path::Path;
use std::sync::Arc;

use ichido_admin::{ExportSearch, ExportState, Exported};
use ichido_export::State;
use serde_json::{Map, Value};

#[derive(Debug)]
struct Sent(State);

impl ExportState for Sent {
    fn find(&self, id: &str) -> Exported {
        let found = self.0.find(id);
        let details = |period: String, content: ichido_export::Content| -> Map<String, Value> {
            let fields: [(&str, Value); 5] = [
                ("period", period.into()),
                ("requests", content.requests.into()),
                ("input_tokens", content.input.into()),
                ("output_tokens", content.output.into()),
                ("cost", format!("{} {}", content.cost, content.currency).into()),
            ];
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        };
        let sent = found.sent.into_iter().map(|(at, period, content)| (at, details(period, content)));
        Exported { sent: sent.collect(), searched: found.searched, problems: found.problems }
    }
}

/// The state of the export in a data directory. It may be created later.
pub(crate) fn search(data_dir: &Path) -> ExportSearch {
    Arc::new(Sent(State::new(data_dir)))
}
