//! The usage page of a meter.

use ichido_testkit::http_client::get;
use serde_json::{Value, json};

use super::browser::Browser;
use super::{HOSTILE, check_page};
use crate::meter::{Meter, record};

/// A month of records with eight models, nine apps and five users. One model and one app have a [`HOSTILE`] name.
fn records() -> Vec<Value> {
    let model = |id: usize| if id % 8 == 7 { HOSTILE.to_owned() } else { format!("claude-{}", id % 8) };
    (0..400)
        .map(|id| {
            let mut record = record(id);
            record["model"] = model(id).into();
            record["metadata"]["source_app_id"] = format!("app-{}", id % 9).into();
            record["metadata"]["source_app_name"] =
                if id % 9 == 4 { HOSTILE.into() } else { format!("サポート {}", id % 9).into() };
            record["cost_actual"] = "0.0125".into();
            record["input_tokens"] = (id * 7 % 900).into();
            record["total_tokens"] = (id * 7 % 900 + 5).into();
            record
        })
        .collect()
}

#[test]
fn usage_page_renders_in_every_width_language_and_color_scheme_and_downloads_as_csv() {
    let dir = tempfile::tempdir().unwrap();
    let meter = Meter::start(dir.path());
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", meter.admin);
    check_page(&browser, &at("/usage"), "usage-empty");
    let batch = json!({ "records": records() });
    assert_eq!(meter.post(&batch).status, 201);
    assert_eq!(meter.post(&batch).status, 409, "a duplicate batch");
    let month = "from=2025-11-01&to=2025-11-30";
    check_page(&browser, &at(&format!("/usage?{month}")), "usage");
    let text = browser.text();
    for expected in ["5 USD", "400", "重複（計上対象外）", "上位のアプリ", "サポート", "その他"]
    {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
    assert!(browser.run("return document.querySelectorAll('svg rect').length").as_u64().unwrap() >= 28);
    browser.open(&at("/"));
    assert_eq!(browser.run("return location.pathname"), "/usage", "the start page of a meter is its usage");

    let csv = get(meter.admin, &format!("/usage.csv?{month}"));
    assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
    assert!(csv.header("content-disposition").unwrap().contains("usage-2025-11-01-2025-11-30.csv"));
    let lines = csv.text();
    assert!(lines.starts_with("usage_date,provider,model,"), "{lines}");
    let daily_sums = lines.lines().skip(1).filter(|line| line.contains("daily_sum")).count();
    assert!(daily_sums >= 28 && lines.contains("claude-3"), "{lines}");
}
