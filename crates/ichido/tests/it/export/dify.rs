//! A PostgreSQL schema with Dify's tables (only the columns that the export reads), and generated usage.

use std::collections::BTreeMap;

use ichido_testkit::ledger_server::unique;
use ichido_testkit::required_env;
use jiff::tz::TimeZone;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rust_decimal::Decimal;
use tokio_postgres::{Client, NoTls};

const TABLES: &str = include_str!("dify.sql");

pub(super) const TENANT: &str = "11111111-1111-4111-8111-111111111111";
pub(super) const OTHER_TENANT: &str = "22222222-2222-4222-8222-222222222222";

/// Sums by day, provider and model.
pub(super) type Totals = BTreeMap<(String, String, String), Sum>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) requests: u64,
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cost: Decimal,
}

/// One row of `messages`.
#[derive(Clone, Debug)]
pub(super) struct Message<'a> {
    pub(super) app: &'a str,
    pub(super) at: &'a str,
    pub(super) provider: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) input: i32,
    pub(super) output: i32,
    pub(super) price: Option<&'a str>,
    pub(super) currency: &'a str,
    pub(super) invoke_from: Option<&'a str>,
    pub(super) end_user: Option<&'a str>,
    pub(super) account: Option<&'a str>,
}

pub(super) struct Dify {
    pub(super) url: String,
    pub(super) totals: Totals,
    client: Client,
    runtime: tokio::runtime::Runtime,
    random: StdRng,
}

impl Dify {
    pub(super) fn new() -> Self {
        let server = required_env("ICHIDO_TEST_POSTGRES_URL");
        let schema =
            format!("dify_{}", unique().to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), ""));
        let url = format!("{server}?options=-c%20search_path%3D{schema}");
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
            client.batch_execute(TABLES).await.unwrap();
            client
        });
        Self { url, totals: Totals::new(), client, runtime, random: StdRng::seed_from_u64(7) }
    }

    pub(super) fn sql(&self, sql: &str) {
        self.runtime
            .block_on(self.client.batch_execute(sql))
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(super) fn id(&mut self) -> String {
        let [a, b]: [u64; 2] = [self.random.random(), self.random.random()];
        let hex = format!("{a:016x}{b:016x}");
        format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
    }

    pub(super) fn app(&mut self, mode: &str, name: &str) -> String {
        self.app_of(TENANT, mode, name)
    }

    pub(super) fn app_of(&mut self, tenant: &str, mode: &str, name: &str) -> String {
        let id = self.id();
        self.sql(&format!("INSERT INTO apps VALUES ('{id}', '{tenant}', '{name}', '{mode}')"));
        id
    }

    pub(super) fn end_user(&mut self, session: &str) -> String {
        let id = self.id();
        self.sql(&format!("INSERT INTO end_users VALUES ('{id}', '{session}')"));
        id
    }

    pub(super) fn account(&mut self, email: &str) -> String {
        let id = self.id();
        self.sql(&format!("INSERT INTO accounts VALUES ('{id}', '{email}')"));
        id
    }

    pub(super) fn message(&mut self, message: &Message<'_>) -> String {
        let id = self.id();
        let quoted = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
        let Message { app, at, provider, model, input, output, price, currency, .. } = message;
        self.sql(&format!(
            "INSERT INTO messages VALUES ('{id}', '{app}', {}, {}, {input}, {output}, {}, '{currency}', {}, {}, {}, '{at}', '{at}')",
            quoted(*provider),
            quoted(*model),
            quoted(*price),
            quoted(message.invoke_from),
            quoted(message.end_user),
            quoted(message.account),
        ));
        id
    }

    /// Inserts a workflow run and its nodes: type, process_data, outputs, execution_metadata.
    pub(super) fn run(
        &mut self,
        app: &str,
        at: &str,
        triggered_from: &str,
        by: (&str, &str),
        nodes: &[(&str, &str, &str, &str)],
    ) -> String {
        let id = self.id();
        let (role, created_by) = by;
        let mut sql = format!(
            "INSERT INTO workflow_runs VALUES ('{id}', '{app}', '{triggered_from}', '{role}', '{created_by}', '{at}');"
        );
        for (kind, process, outputs, metadata) in nodes {
            let node = self.id();
            let quoted = |text: &str| match text {
                "" => "NULL".to_owned(),
                text => format!("'{}'", text.replace('\'', "''")),
            };
            sql += &format!(
                "INSERT INTO workflow_node_executions VALUES ('{node}', '{id}', '{kind}', {}, {}, {});",
                quoted(process),
                quoted(outputs),
                quoted(metadata)
            );
        }
        self.sql(&sql);
        id
    }

    /// Adds one call to the expected totals of its day in `zone`.
    pub(super) fn add_to_totals(
        &mut self,
        zone: &str,
        at: &str,
        model: (&str, &str),
        tokens: (u64, u64),
        cost: &str,
    ) {
        let utc: jiff::civil::DateTime = at.replace(' ', "T").parse().unwrap();
        let day = utc.to_zoned(TimeZone::UTC).unwrap().with_time_zone(TimeZone::get(zone).unwrap()).date();
        let sum = self.totals.entry((day.to_string(), model.0.to_owned(), model.1.to_owned())).or_default();
        sum.requests += 1;
        sum.input += tokens.0;
        sum.output += tokens.1;
        sum.cost += cost.parse::<Decimal>().unwrap();
    }

    /// Generates usage of every kind of app on some days, and adds it to the expected totals.
    pub(super) fn generate(
        &mut self,
        seed: u64,
        days: std::ops::RangeInclusive<u32>,
        rows: usize,
        zone: &str,
    ) {
        const PROVIDERS: [(&str, &str); 4] = [
            ("langgenius/openai/openai", "openai"),
            ("OpenAI ", "openai"),
            ("langgenius/anthropic/anthropic", "anthropic"),
            ("langgenius/gemini/google", "google"),
        ];
        const MODELS: [&str; 3] = ["gpt-4o", "claude-3-5-sonnet-20241022", "gemini-1.5-pro"];
        let mut random = StdRng::seed_from_u64(seed);
        let modes = ["chat", "completion", "agent-chat", "workflow", "advanced-chat"];
        let apps: Vec<(String, &str)> = modes
            .iter()
            .flat_map(|mode| [(self.app(mode, "one"), *mode), (self.app(mode, "two"), *mode)])
            .collect();
        let users: Vec<String> = (0..4).map(|n| self.end_user(&format!("user-{n}"))).collect();
        let account = self.account("dev@example.com");
        for _ in 0..rows {
            let (app, mode) = apps[random.random_range(0..apps.len())].clone();
            let day = random.random_range(days.clone());
            let (hour, minute, second) =
                (random.random_range(0..24u32), random.random_range(0..60u32), random.random_range(0..60u32));
            let at = format!("2025-11-{day:02} {hour:02}:{minute:02}:{second:02}");
            let (raw, provider) = PROVIDERS[random.random_range(0..PROVIDERS.len())];
            let model = MODELS[random.random_range(0..MODELS.len())];
            let (input, output): (u32, u32) = (random.random_range(0..4000), random.random_range(0..900));
            let cost = format!("0.{:07}", random.random_range(0..900_000u32));
            let user = users[random.random_range(0..users.len())].clone();
            self.add_to_totals(zone, &at, (provider, model), (input.into(), output.into()), &cost);
            let usage = format!(
                r#"{{"prompt_tokens":{input},"completion_tokens":{output},"total_tokens":{},"total_price":"{cost}","currency":"USD"}}"#,
                input + output
            );
            if mode == "workflow" || mode == "advanced-chat" {
                let process =
                    format!(r#"{{"model_provider":"{raw}","model_name":"{model}","usage":{usage}}}"#);
                let process_without_usage = format!(r#"{{"model_provider":"{raw}","model_name":"{model}"}}"#);
                let outputs = format!(r#"{{"text":"hi","usage":{usage}}}"#);
                let node = match random.random_bool(0.5) {
                    true => (
                        "llm",
                        process.as_str(),
                        r#"{"text":"hi"}"#,
                        r#"{"total_tokens":1,"total_price":"9","currency":"USD"}"#,
                    ),
                    false => ("llm", process_without_usage.as_str(), outputs.as_str(), ""),
                };
                // An iteration reports the sum of the nodes in it, and a message reports the sum of the run again.
                let sum = format!(
                    r#"{{"total_tokens":{},"total_price":"{cost}","currency":"USD"}}"#,
                    input + output
                );
                let iteration = ("iteration", "{}", "{}", sum.as_str());
                self.run(
                    &app,
                    &at,
                    "app-run",
                    ("end_user", &user),
                    &[("start", "", "", ""), node, iteration],
                );
                if mode == "advanced-chat" {
                    self.plain(&app, &at, None, (input, output), Some(&cost), &user);
                }
            } else {
                let (i, o) = (i32::try_from(input).unwrap(), i32::try_from(output).unwrap());
                let debugger = random.random_bool(0.1);
                self.message(&Message {
                    app: &app,
                    at: &at,
                    provider: Some(raw),
                    model: Some(model),
                    input: i,
                    output: o,
                    price: Some(&cost),
                    currency: "USD",
                    invoke_from: if debugger { Some("debugger") } else { None },
                    end_user: (!debugger).then_some(user.as_str()),
                    account: debugger.then_some(account.as_str()),
                });
            }
        }
    }

    /// Inserts a message with nothing but its usage.
    pub(super) fn plain(
        &mut self,
        app: &str,
        at: &str,
        model: Option<(&str, &str)>,
        tokens: (u32, u32),
        price: Option<&str>,
        user: &str,
    ) -> String {
        self.message(&Message {
            app,
            at,
            provider: model.map(|model| model.0),
            model: model.map(|model| model.1),
            input: i32::try_from(tokens.0).unwrap(),
            output: i32::try_from(tokens.1).unwrap(),
            price,
            currency: "USD",
            invoke_from: None,
            end_user: Some(user),
            account: None,
        })
    }
}
