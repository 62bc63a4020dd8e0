//! A real Chromium, driven over WebDriver with one HTTP request per command.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ichido_testkit::http_client::{send, try_send};
use ichido_testkit::process::Process;
use ichido_testkit::required_env;
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};

/// The field in which WebDriver returns the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window. Dropping it ends the session and the driver.
pub(crate) struct Browser {
    driver: Process,
    address: SocketAddr,
    session: String,
    /// The browser's files, removed when it is dropped.
    _dir: tempfile::TempDir,
}

/// The device and the preferences that the browser emulates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Emulation {
    pub(crate) width: u32,
    pub(crate) lang: &'static str,
    pub(crate) color_scheme: &'static str,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let program = required_env("ICHIDO_TEST_CHROMEDRIVER");
        let dir = tempfile::tempdir().unwrap();
        let mut driver =
            Process::start(Command::new(program).arg("--port=0").env("TMPDIR", dir.path())).unwrap();
        let mut lines = BufReader::new(driver.child.stdout.take().unwrap()).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
        });
        // Discards the rest of the output, so that the pipe does not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("chromedriver prints its port")));
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ];
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let response = send(address, "POST", "/session", &[], capabilities.to_string().as_bytes()).json();
        let session =
            response["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned();
        Self { driver, address, session, _dir: dir }
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let path = format!("/session/{}{path}", self.session);
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let response = send(self.address, method, &path, &[], body.as_bytes());
        let value = response.json()["value"].take();
        if response.status == 200 { Ok(value) } else { Err(value) }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Runs a command of the Chrome DevTools Protocol, for what WebDriver does not cover.
    fn devtools(&self, command: &str, params: &Value) -> Value {
        self.call("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": params }))
    }

    /// Applies to the open page, except for the language, and to all pages opened later.
    pub(crate) fn emulate(&self, emulation: Emulation) {
        let Emulation { width, lang, color_scheme } = emulation;
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": color_scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &features);
        let agent = json!({ "userAgent": "Mozilla/5.0 Chrome", "acceptLanguage": lang });
        self.devtools("Emulation.setUserAgentOverride", &agent);
    }

    pub(crate) fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a script in the page and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The visible text of the page.
    pub(crate) fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap().to_owned()
    }

    pub(crate) fn title(&self) -> String {
        self.call("GET", "/title", &Value::Null).as_str().unwrap().to_owned()
    }

    fn element(&self, css: &str) -> Option<String> {
        let found =
            self.try_call("POST", "/element", &json!({ "using": "css selector", "value": css })).ok()?;
        Some(found[ELEMENT].as_str()?.to_owned())
    }

    pub(crate) fn has(&self, css: &str) -> bool {
        self.element(css).is_some()
    }

    /// Clicks on an element, and waits until the next page has loaded.
    pub(crate) fn click(&self, css: &str) {
        let element =
            self.element(css).unwrap_or_else(|| panic!("no element matches {css}: {}", self.text()));
        self.run("window.before = true");
        self.call("POST", &format!("/element/{element}/click"), &json!({}));
        eventually("the next page", || {
            let ready = self.try_call(
                "POST",
                "/execute/sync",
                &json!({
                "script": "return !window.before && document.readyState === 'complete'", "args": [] }),
            );
            (ready.ok()? == true).then_some(())
        });
    }

    pub(crate) fn type_text(&self, css: &str, text: &str) {
        let element = self.element(css).unwrap_or_else(|| panic!("no element matches {css}"));
        self.call("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Sends keys to the focused element.
    pub(crate) fn press(&self, keys: &[&str]) {
        let actions: Vec<_> = keys
            .iter()
            .flat_map(|key| {
                [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
            })
            .collect();
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": actions }] });
        self.call("POST", "/actions", &actions);
    }

    /// The warnings and errors that the browser has logged since the last call.
    pub(crate) fn logged_problems(&self) -> Vec<String> {
        let lines = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        let lines = lines
            .as_array()
            .unwrap()
            .iter()
            .filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG");
        lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The cookies of the page, including those that scripts cannot read.
    pub(crate) fn cookies(&self) -> Vec<Value> {
        self.call("GET", "/cookie", &Value::Null).as_array().unwrap().clone()
    }

    /// Saves a screenshot of the page, up to 4,000 pixels high, for manual review.
    pub(crate) fn save_screenshot(&self, name: &str) {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
        std::fs::create_dir_all(&dir).unwrap();
        let height = self.run("return Math.min(document.documentElement.scrollHeight, 4000)");
        let width = self.run("return innerWidth");
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let screenshot =
            self.devtools("Page.captureScreenshot", &json!({ "captureBeyondViewport": true, "clip": clip }));
        let bytes = from_base64(screenshot["data"].as_str().unwrap());
        std::fs::write(dir.join(format!("{name}.png")), bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let path = format!("/session/{}", self.session);
        let _ = try_send(self.address, "DELETE", &path, &[], b"");
        self.driver.signal("TERM");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        bits = (bits << 6) | u32::from(digit(byte));
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(((bits >> count) & 0xff) as u8);
        }
    }
    bytes
}
