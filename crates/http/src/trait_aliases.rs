//! What the layer asks of the services and bodies around it, under two names.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use ichido_ledger::BoxError;
use tower_service::Service;

use crate::failure::IntoFailure;
use crate::request_body::RequestBody;

/// A body that the layer can read and hand on.
pub(crate) trait Carried:
    Body<Data = Bytes, Error: Into<BoxError> + Send> + Unpin + Send + 'static
{
}

impl<T> Carried for T where T: Body<Data = Bytes, Error: Into<BoxError> + Send> + Unpin + Send + 'static {}

/// A service that the layer can stand before: it takes requests with a body `B`, and answers with a body `A`.
pub(crate) trait Inner<B, A>:
    Service<
        Request<RequestBody<B>>,
        Response = Response<A>,
        Error: IntoFailure + Send + 'static,
        Future: Send,
    > + Send
    + 'static
{
}

impl<T, B, A> Inner<B, A> for T where
    T: Service<
            Request<RequestBody<B>>,
            Response = Response<A>,
            Error: IntoFailure + Send + 'static,
            Future: Send,
        > + Send
        + 'static
{
}
