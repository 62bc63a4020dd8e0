//! Drives each example client with the same JSON requests: through a process, or in this one for Rust.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use ichido_client_example::{Event, Failure, Ichido, Options};
use serde_json::{Value, json};

use crate::events::json_lines_process::JsonLinesProcess;
use ichido_testkit::required_env;

/// A client under test.
pub(super) enum Driver {
    Process(JsonLinesProcess),
    InProcess(Box<(Ichido, tokio::runtime::Runtime)>),
}

impl Driver {
    pub(super) fn python(url: &str) -> Self {
        let driver = driver_dir().join("driver.py");
        let mut python = Command::new(required_env("ICHIDO_TEST_PYTHON"));
        python.args(["-B", "-I"]).arg(driver).arg(examples().join("python")).arg(url);
        Self::Process(JsonLinesProcess::start(&mut python))
    }

    pub(super) fn typescript(url: &str) -> Self {
        let mut node = Command::new(required_env("ICHIDO_TEST_NODE"));
        Self::Process(JsonLinesProcess::start(node.arg(COMPILED.join("build/driver.js")).arg(url)))
    }

    pub(super) fn rust(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self::InProcess(Box::new((Ichido::new(url, None), runtime)))
    }

    pub(super) fn call(&mut self, request: &Value) -> Value {
        match self {
            Self::Process(process) => process.call(request),
            Self::InProcess(client) => {
                let (ichido, runtime) = &**client;
                runtime.block_on(handle(ichido, request))
            }
        }
    }
}

pub(super) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/clients")
}

fn driver_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/events/clients")
}

/// The directory with the TypeScript client and its driver, compiled as the example describes.
pub(super) static COMPILED: LazyLock<PathBuf> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("typescript-client");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let sources = std::fs::read_dir(examples().join("typescript")).unwrap();
    let sources = sources.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    for source in sources.chain([driver_dir().join("driver.ts")]) {
        std::fs::copy(&source, directory.join(source.file_name().unwrap())).unwrap();
    }
    let modules = PathBuf::from(required_env("ICHIDO_TEST_NODE_MODULES"));
    let mut tsc = Command::new(required_env("ICHIDO_TEST_NODE"));
    tsc.arg(modules.join("typescript/bin/tsc")).arg("-p").arg(&directory);
    let compiled = tsc.arg("--typeRoots").arg(modules.join("@types")).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stdout));
    directory
});

async fn handle(ichido: &Ichido, request: &Value) -> Value {
    if let Some(events) = request["check"].as_array() {
        let checked = events.iter().map(|event| Event {
            key: event["key"].as_str().unwrap().to_owned(),
            metadata: serde_json::from_value(event["metadata"].clone()).unwrap_or_default(),
        });
        let results = ichido.check(&checked.collect::<Vec<_>>()).await.unwrap();
        let results_json = results
            .iter()
            .map(|one| json!({ "key": one.key, "is_new": one.is_new, "degraded": one.degraded }));
        return json!({ "results": results_json.collect::<Vec<_>>() });
    }
    let mut options =
        Options { fingerprint: request["fingerprint"].as_str().map(str::to_owned), ..Options::default() };
    if let Some(lease_ms) = request["lease_ms"].as_u64() {
        options.lease = Duration::from_millis(lease_ms);
    }
    let mut ran = 0;
    let work = async || {
        ran += 1;
        match request["work"].as_str() {
            Some("slow") => tokio::time::sleep(Duration::from_secs(4)).await,
            Some("nothing") => return Err(Failure::NothingHappened("no connection".to_owned())),
            Some("unknown") => return Err(Failure::Unknown("no response".to_owned())),
            _ => {}
        }
        Ok(json!({ "by": "the client" }))
    };
    match ichido.once(request["once"].as_str().unwrap(), &options, work).await {
        Ok(outcome) => json!({ "outcome": outcome, "ran": ran }),
        Err(error) => {
            let name = format!("{error:?}");
            json!({ "error": name.split('(').next().unwrap(), "ran": ran })
        }
    }
}
