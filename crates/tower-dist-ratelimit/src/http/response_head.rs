use http::{HeaderMap, Response, StatusCode};

/// A borrowed view of a response without its body, for [`refund_when`](crate::RateLimitLayerBuilder::refund_when).
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

    /// The headers. They include `grpc-status` in a Trailers-Only response, which usually is a gRPC failure before the
    /// first message.
    #[must_use]
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }
}
