//! Generates records, spool files and input.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use ichido_core::{Clock, SystemClock, Timestamp};
use ichido_delivery::store::{BatchDir, FileName, Layout, StoredBatch};
use ichido_delivery::{Batch, Record};

/// A usage record of about this many bytes.
pub fn record(number: u64, bytes: usize) -> String {
    let mut text = format!(
        "{{\"usage_date\":\"2025-11-{:02}\",\"provider\":\"openai\",\"model\":\"gpt-4o-mini\",\"app_id\":\"app-{:04}\",\
         \"input_tokens\":{},\"output_tokens\":{},\"total_tokens\":{},\"cost_actual\":{}.{:04},\"currency\":\"USD\",\
         \"metadata\":{{\"source_event_id\":\"dify-2025-11-openai-gpt-4o-mini-{number:012}\",\"note\":\"",
        1 + number % 28,
        number % 977,
        number % 100_003,
        number % 9_973,
        number % 109_976,
        number % 7,
        number % 9_999,
    );
    let padding = bytes.saturating_sub(text.len() + "\"}}".len());
    text.extend("the quick brown fox jumps over the lazy dog, ".chars().cycle().take(padding));
    text.push_str("\"}}");
    text
}

/// Fills a spool with files of 550-byte records, as an outage of one hour would.
pub fn fill(data: &Path, files: u64, records: u64) {
    let layout = Layout::new(data);
    let dir = layout.dir(BatchDir::Spool);
    fs::create_dir_all(&dir).unwrap();
    let begin = SystemClock::default().now().0 - 3_600_000;
    for file in 0..files {
        let records = (0..records).map(|index| record(file * records + index, 550));
        let records = records.map(|text| Record::parse(&text).unwrap()).collect();
        let at = Timestamp(begin + 3_600_000 * file / files);
        let mut stored = StoredBatch::fresh(Batch::new(records), at);
        stored.note(at, "HTTP 503 Service Unavailable");
        let name = FileName::new(at, stored.batch.key(), false).text(BatchDir::Spool.as_str());
        fs::write(dir.join(name), stored.encode(false)).unwrap();
    }
}

/// Writes a JSON Lines file of records.
pub fn lines(dir: &Path, records: u64, bytes: usize) -> PathBuf {
    let path = dir.join("input.jsonl");
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).unwrap());
    for number in 0..records {
        writeln!(file, "{}", record(number, bytes)).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    path
}
