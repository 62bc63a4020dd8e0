//! The Lambda Extensions API, version 2020-01-01.

use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;

use crate::cli::http1::exchange;
use ichido_serve::Failure;

const VARIABLE: &str = "AWS_LAMBDA_RUNTIME_API";
const ID: &str = "lambda-extension-identifier";
/// For calls that Lambda answers at once.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A registered extension.
#[derive(Debug)]
pub(super) struct Extension {
    api: String,
    id: HeaderValue,
}

/// What happens to the sandbox.
#[derive(Debug, Deserialize)]
#[serde(tag = "eventType", rename_all = "UPPERCASE")]
pub(super) enum Event {
    /// The function is invoked, perhaps after a freeze.
    Invoke,
    /// The sandbox ends.
    Shutdown {
        #[serde(rename = "shutdownReason", default)]
        reason: String,
    },
}

/// When a failure happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Init,
    Exit,
}

impl Extension {
    /// Registers for all events. `name` is the file name of the executable.
    pub(super) async fn register(name: &str) -> Result<Self, Failure> {
        let api = std::env::var(VARIABLE).ok().filter(|api| !api.is_empty()).ok_or_else(|| {
            Failure::usage(format!("--lambda-extension works only inside AWS Lambda: {VARIABLE} is not set"))
        })?;
        let fail = |why: String| {
            Failure::internal(format!(
                "cannot register {name:?} with the Lambda Extensions API at {api}: {why}"
            ))
        };
        let request = Request::builder().method(Method::POST).header("lambda-extension-name", name);
        let body = json!({ "events": ["INVOKE", "SHUTDOWN"] });
        let response = within(call(&api, request, "register", body.to_string())).await.map_err(fail)?;
        let id = response.headers().get(ID).cloned().ok_or_else(|| fail(format!("no header {ID}")))?;
        Ok(Self { api, id })
    }

    /// Waits for the next event, for as long as it takes. Lambda may freeze the process meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may lose an event.
    pub(super) async fn next_event(&self) -> Result<Event, Failure> {
        let fail = |why: String| {
            Failure::internal(format!("cannot get the next event of the Lambda sandbox: {why}"))
        };
        let request = Request::builder().header(ID, self.id.clone());
        let response = call(&self.api, request, "event/next", String::new()).await.map_err(fail)?;
        serde_json::from_slice(response.body()).map_err(|error| fail(error.to_string()))
    }

    /// Reports a failure to Lambda, which then ends the sandbox, and returns it.
    pub(super) async fn report(&self, phase: Phase, failure: Failure) -> Failure {
        let (path, kind) = match phase {
            Phase::Init => ("init/error", "Extension.StartFailed"),
            Phase::Exit => ("exit/error", "Extension.Failed"),
        };
        let request = Request::builder()
            .method(Method::POST)
            .header(ID, self.id.clone())
            .header("lambda-extension-function-error-type", kind);
        let body = json!({ "errorMessage": failure.to_string(), "errorType": kind, "stackTrace": [] });
        if let Err(error) = within(call(&self.api, request, path, body.to_string())).await {
            tracing::warn!(error, "cannot report the failure to Lambda");
        }
        failure
    }
}

async fn within<T>(call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let timed_out = |_| Err(format!("no response within {} s", TIMEOUT.as_secs()));
    tokio::time::timeout(TIMEOUT, call).await.unwrap_or_else(timed_out)
}

async fn call(
    api: &str,
    request: http::request::Builder,
    path: &str,
    body: String,
) -> Result<Response<Bytes>, String> {
    let request = request
        .uri(format!("/2020-01-01/extension/{path}"))
        .header(HOST, api)
        .header("content-type", "application/json")
        .body(Full::from(body))
        .map_err(|error| error.to_string())?;
    let stream = TcpStream::connect(api).await.map_err(|error| error.to_string())?;
    let response = exchange(stream, request).await?;
    match response.status().is_success() {
        true => Ok(response),
        false => Err(format!(
            "it returned {}: {}",
            response.status(),
            String::from_utf8_lossy(response.body()).chars().take(200).collect::<String>()
        )),
    }
}
