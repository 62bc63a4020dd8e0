//! Short names for the trait bounds that the layer puts on services and bodies.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use ichido_ledger::BoxError;
use tower_service::Service;

use crate::failure::IntoFailure;
use crate::request_body::RequestBody;

/// A body that the layer can read and pass on.
pub(crate) trait HttpBody:
    Body<Data = Bytes, Error: Into<BoxError> + Send> + Unpin + Send + 'static
{
}

impl<T> HttpBody for T where T: Body<Data = Bytes, Error: Into<BoxError> + Send> + Unpin + Send + 'static {}

/// A service that the layer can wrap: it takes requests with body `B` and returns responses with body `A`.
pub(crate) trait InnerService<B, A>:
    Service<
        Request<RequestBody<B>>,
        Response = Response<A>,
        Error: IntoFailure + Send + 'static,
        Future: Send,
    > + Send
    + 'static
{
}

impl<T, B, A> InnerService<B, A> for T where
    T: Service<
            Request<RequestBody<B>>,
            Response = Response<A>,
            Error: IntoFailure + Send + 'static,
            Future: Send,
        > + Send
        + 'static
{
}
