use http::{HeaderMap, Response, StatusCode};

/// A response without its body, as [`refund_when`](crate::RateLimitLayerBuilder::refund_when) gets to see it.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
}

impl<'a> ResponseHead<'a> {
    pub(crate) fn new<B>(response: &'a Response<B>) -> Self {
        Self {
            status: response.status(),
            headers: response.headers(),
        }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers; the `grpc-status` of a gRPC call that fails at once is among them.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }
}
