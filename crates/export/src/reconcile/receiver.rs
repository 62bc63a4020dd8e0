//! What the receiver counted, as the meter tells it: `GET /v1/records` beside `POST /v1/usage`.

use std::collections::BTreeMap;
use std::time::Duration;

use ichido_delivery::settings::Settings as Delivery;
use ichido_delivery::tls_roots::TlsRoots;
use ichido_delivery::token::Token;
use jiff::civil::Date;
use rust_decimal::Decimal;
use secrecy::ExposeSecret;
use serde::Deserialize;
use url::Url;

use crate::state::{Content, content_hash};
use ichido_core::error_chain;
use ichido_serve::Failure;

const PAGE: &str = "1000";
/// Pages of one period; beyond it something is wrong with the other side.
const MOST_PAGES: usize = 1_000_000;
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);

/// The receiver, to be asked.
#[derive(Debug)]
pub struct Receiver {
    client: reqwest::Client,
    url: Url,
    token: Token,
}

#[derive(Deserialize)]
struct Page {
    records: Vec<Line>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Line {
    source_event_id: String,
    request_count: u64,
    input_tokens: u64,
    output_tokens: u64,
    cost_actual: String,
    currency: String,
}

impl Receiver {
    /// Prepares to ask. Nothing is sent.
    pub fn new(settings: &Delivery) -> Result<Self, Failure> {
        let options = &settings.transport;
        let tls = TlsRoots::read(settings.ca_file.as_deref())?
            .client()
            .map_err(|error| Failure::internal(format!("preparing TLS: {error}")))?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(options.timeout)
            .build()
            .map_err(|error| {
                Failure::usage(format!("preparing the HTTP client: {}", error_chain(&error.without_url())))
            })?;
        let token = Token::open(settings.token.clone()).map_err(|error| Failure::usage(error.to_string()))?;
        let mut url = options.endpoint.url().clone();
        let path = url.path().trim_end_matches('/');
        let path = format!("{}/records", path.rsplit_once('/').map_or("", |(before, _)| before));
        url.set_path(&path);
        Ok(Self { client, url, token })
    }

    /// The records of a period, by id. `None`: the receiver does not tell.
    pub async fn records(&self, day: Date) -> Result<Option<BTreeMap<String, Content>>, Failure> {
        let (mut records, mut after) = (BTreeMap::new(), None::<String>);
        let day = day.to_string();
        for _ in 0..MOST_PAGES {
            let mut url = self.url.clone();
            url.query_pairs_mut().extend_pairs([("from", &day), ("to", &day)]).append_pair("limit", PAGE);
            if let Some(after) = &after {
                url.query_pairs_mut().append_pair("after", after);
            }
            let Some(page) = self.page(&url).await? else { return Ok(None) };
            for line in page.records {
                records.insert(line.source_event_id.clone(), line.content());
            }
            match page.next {
                Some(next) if after.as_ref() != Some(&next) => after = Some(next),
                _ => return Ok(Some(records)),
            }
        }
        Err(Failure::usage("the receiver's list of records has no end"))
    }

    async fn page(&self, url: &Url) -> Result<Option<Page>, Failure> {
        let mut tries = 0;
        let failed = |why: String| Failure::usage(format!("asking the receiver what it counted: {why}"));
        loop {
            tries += 1;
            let asked =
                self.client.get(url.clone()).bearer_auth(self.token.current().expose_secret()).send().await;
            let why = match asked {
                Ok(answer) => match answer.status().as_u16() {
                    200 => {
                        let bytes = answer
                            .bytes()
                            .await
                            .map_err(|error| failed(error_chain(&error.without_url())))?;
                        let page = serde_json::from_slice(&bytes);
                        return page
                            .map(Some)
                            .map_err(|_| failed("its answer is none that we know".to_owned()));
                    }
                    404 | 405 | 501 => return Ok(None),
                    status @ (408 | 425 | 429 | 500..=599) => format!("HTTP {status}"),
                    status => return Err(failed(format!("HTTP {status}"))),
                },
                Err(error) => error_chain(&error.without_url()),
            };
            if tries == TRIES {
                return Err(failed(why));
            }
            tokio::time::sleep(PAUSE * tries).await;
        }
    }
}

impl Line {
    fn content(&self) -> Content {
        let cost = self.cost_actual.parse::<Decimal>().unwrap_or_default().normalize().to_string();
        Content {
            hash: content_hash(
                &self.source_event_id,
                self.request_count,
                self.input_tokens,
                self.output_tokens,
                &cost,
                &self.currency,
            ),
            requests: self.request_count,
            input: self.input_tokens,
            output: self.output_tokens,
            cost,
            currency: self.currency.clone(),
        }
    }
}
