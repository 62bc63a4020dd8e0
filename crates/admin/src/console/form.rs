//! Submitted forms: POST only, with the CSRF token of our pages.

use std::collections::BTreeMap;

use axum::extract::{Form, FromRef, FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use super::PageContext;
use super::page::{Section, View};
use crate::limits::BODY_TIMEOUT;

/// A form from a visitor who may act.
#[derive(Debug)]
pub(super) struct OperatorForm(BTreeMap<String, String>);

/// A form that everyone may send: sign-in, sign-out, language.
#[derive(Debug)]
pub(super) struct PublicForm(pub(super) BTreeMap<String, String>);

impl OperatorForm {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<S: Send + Sync> FromRequest<S> for PublicForm
where
    PageContext: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let view = View::from_request_parts(&mut parts, state).await.map_err(IntoResponse::into_response)?;
        let request = Request::from_parts(parts, body);
        let reading = Form::<BTreeMap<String, String>>::from_request(request, state);
        // Anyone may send forms. Without a timeout, unfinished ones could occupy all connections of this port.
        let Ok(fields) = tokio::time::timeout(BODY_TIMEOUT, reading).await else {
            return Err(view.error_page(StatusCode::REQUEST_TIMEOUT, Section::None, view.t.invalid_request));
        };
        let Ok(Form(fields)) = fields else {
            return Err(view.error_page(StatusCode::BAD_REQUEST, Section::None, view.t.invalid_request));
        };
        match view.visitor.csrf_matches(fields.get("csrf").map_or("", String::as_str)) {
            true => Ok(Self(fields)),
            false => Err(view.error_page(StatusCode::FORBIDDEN, Section::None, view.t.form_expired)),
        }
    }
}

impl<S: Send + Sync> FromRequest<S> for OperatorForm
where
    PageContext: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let view = View::from_request_parts(&mut parts, state).await.map_err(IntoResponse::into_response)?;
        if !view.may_act() {
            return Err(view.error_page(StatusCode::FORBIDDEN, Section::None, view.t.read_only));
        }
        let PublicForm(fields) = PublicForm::from_request(Request::from_parts(parts, body), state).await?;
        Ok(Self(fields))
    }
}
