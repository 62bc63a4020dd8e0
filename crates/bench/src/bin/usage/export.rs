//! Measures how fast a month of Dify's messages is exported, and that memory does not grow with them.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use ichido_bench::command::{ProcessStats, watch};
use ichido_bench::median::median;
use ichido_bench::options::Options;
use ichido_bench::processes::scratch;
use ichido_bench::receiver::Receiver;
use ichido_bench::table::Table;
use serde_json::Value;
use tokio_postgres::{Client, NoTls};

pub(crate) const SERVER: &str = "ICHIDO_BENCH_POSTGRES_URL";
const SCHEMA: &str = "dify_bench";

/// Dify's tables, as in the tests. Messages are inserted before their indices are created, and need not survive a
/// crash.
const TABLES: &str = concat!(
    include_str!("../../../../ichido/tests/it/export/dify.sql"),
    "ALTER TABLE messages SET UNLOGGED, DROP CONSTRAINT messages_pkey;
     DROP INDEX message_created_at_id_idx;
     INSERT INTO apps
         SELECT md5('app ' || n)::uuid, md5('tenant')::uuid, 'Help desk', 'chat' FROM generate_series(0, 19) n;
     INSERT INTO end_users SELECT md5('user ' || n)::uuid, 'user-' || n FROM generate_series(0, 199) n;"
);

/// Inserts this many messages, evenly over 30 days: 20 apps, 200 users, 5 models.
fn messages(count: u64) -> String {
    format!(
        "INSERT INTO messages
         SELECT gen_random_uuid(), md5('app ' || drawn % 20)::uuid,
                (ARRAY['langgenius/openai/openai', 'langgenius/anthropic/anthropic', 'langgenius/openai/openai',
                       'langgenius/gemini/google', 'langgenius/bedrock/bedrock'])[1 + drawn % 5],
                (ARRAY['gpt-4o-mini', 'claude-3-5-sonnet-20241022', 'gpt-4.1', 'gemini-2.0-flash',
                       'anthropic.claude-3-5-sonnet-20241022-v2:0'])[1 + drawn % 5],
                drawn % 3000, drawn % 700, (drawn % 900000 + 1)::numeric / 10000000, 'USD', 'service-api',
                md5('user ' || drawn / 5 % 200)::uuid, NULL, at, at
           FROM (SELECT n * 2654435761 % 4294967296 / 256 AS drawn,
                        timestamp '2025-09-01' + n * (interval '30 days' / {count}) AS at
                   FROM generate_series(0::bigint, {count} - 1) n) rows;
         ALTER TABLE messages ADD PRIMARY KEY (id);
         CREATE INDEX message_created_at_id_idx ON messages (created_at, id);
         ANALYZE;"
    )
}

/// A Dify whose tables are created anew for each measurement.
struct Dify {
    url: String,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Dify {
    fn connect(server: &str) -> Self {
        let url = format!("{server}?options=-c%20search_path%3D{SCHEMA}");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        Self { url, client, runtime }
    }

    fn fill(&self, count: u64) {
        self.clear();
        let sql = format!(
            "SET maintenance_work_mem = '512MB'; CREATE SCHEMA {SCHEMA}; {TABLES} {}",
            messages(count)
        );
        self.runtime.block_on(self.client.batch_execute(&sql)).unwrap();
    }

    fn clear(&self) {
        let sql = format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE");
        self.runtime.block_on(self.client.batch_execute(&sql)).unwrap();
    }
}

/// Exports a fifth of the messages, then all of them, from PostgreSQL to a receiver on the same machine.
pub(crate) fn export(options: &Options, table: &mut Table) {
    let Some(server) = std::env::var(SERVER).ok().filter(|url| !url.is_empty()) else {
        return table.note("export of Dify's messages", format!("not measured: {SERVER} is not set"));
    };
    let (dify, receiver) = (Dify::connect(&server), Receiver::start());
    let peaks = [options.many / 5, options.many].map(|count| {
        dify.fill(count);
        // A full round takes long, so there are fewer.
        let took: Vec<ProcessStats> =
            (0..options.rounds.div_ceil(3)).map(|_| month(&dify.url, &receiver, count)).collect();
        let of = |figure: fn(&ProcessStats) -> f64| median(took.iter().map(figure).collect());
        let (seconds, cpu, peak_mb) = (of(|took| took.seconds), of(|took| took.cpu), of(|took| took.peak_mb));
        let rate = count as f64 / seconds;
        table.note(
            format!("export of {count} messages"),
            format!("{rate:.0} rows/s, {cpu:.2} s CPU, peak {peak_mb:.1} MB"),
        );
        peak_mb
    });
    dify.clear();
    table.at_most("export: peak memory, all messages / a fifth of them", peaks[1] / peaks[0], "×", 1.1);
}

/// Exports the whole month with the real command, into its own directory.
fn month(url: &str, receiver: &Receiver, count: u64) -> ProcessStats {
    let dir = scratch();
    let report = dir.path().join("report.json");
    receiver.clear();
    let took = watch(command(dir.path(), url, receiver, &report));
    let report: Value = serde_json::from_reader(File::open(report).unwrap()).unwrap();
    let rows = report["periods"].as_array().unwrap().iter().map(|period| period["rows"].as_u64().unwrap());
    assert_eq!(rows.sum::<u64>(), count, "every message is read once");
    assert!(receiver.seen().0 >= 30, "something is sent for each day");
    took
}

fn command(dir: &Path, url: &str, receiver: &Receiver, report: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap().with_file_name("ichido"));
    command
        .args(["export", "dify", "--from", "2025-09-01", "--to", "2025-09-30", "--json"])
        .current_dir(dir)
        .env_clear()
        .env("DIFY_DATABASE_URL", url)
        .env("EXTERNAL_API_ENDPOINT", receiver.url())
        .env("EXTERNAL_API_TOKEN", "bench-token")
        .env("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "true")
        .env("EXTERNAL_API_ENVELOPE", "api_meter")
        .env("EXTERNAL_API_TENANT_ID", "bench")
        .env("EXTERNAL_API_CONFLICT", "record")
        .stdin(Stdio::null())
        .stdout(File::create(report).unwrap())
        .stderr(Stdio::null());
    command
}
