//! Pages for addresses that have none, and for the `type` of a problem.

use axum::Router;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http::StatusCode;
use maud::html;

use super::page::{Section, View};
use super::{PageContext, problem_types};
use crate::browser::is_page_request;
use ichido_serve::problem;

/// Adds them to the routes of a process.
pub(crate) fn with_pages(router: Router, context: PageContext) -> Router {
    let types = Router::new().route("/problems/{code}", get(problem_type)).with_state(context.clone());
    router.merge(types).fallback_service(any(missing).with_state(context))
}

/// A browser gets a page; programs get a problem.
async fn missing(view: Result<View, StatusCode>, request: Request) -> Response {
    match view {
        Ok(view) if is_page_request(&request) => not_found(&view),
        Ok(_) | Err(_) => problem::not_found(request.uri().clone()).await.into_response(),
    }
}

async fn problem_type(view: View, Path(code): Path<String>) -> Response {
    let Some(description) = problem_types::describe(&code, view.lang) else { return not_found(&view) };
    let body = html! {
        p { code.key { (code) } }
        p { (description) }
        p { a href="/" { (view.t.back_to_overview) } }
    };
    view.page(Section::None, view.t.problem_type, body)
}

fn not_found(view: &View) -> Response {
    let body = html! {
        p.empty { (view.t.page_not_found_hint) }
        p { a href="/" { (view.t.back_to_overview) } }
    };
    view.page_with_status(StatusCode::NOT_FOUND, Section::None, view.t.page_not_found, body)
}
