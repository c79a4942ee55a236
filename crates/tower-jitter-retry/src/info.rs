use std::time::Duration;

use crate::StopReason;

/// A retry layer's report on a call, in the extensions of its HTTP or gRPC response.
///
/// A response has a report if the layer sent a retry, or would have sent one but could not, for the reason in `stop`.
/// A response that the layer creates when a call's deadline expires also has one.
///
/// There is no report if the [mode](crate::Mode) is not `On`. There is also none if the first attempt succeeded, or if
/// its failure is not retryable, not safe to retry, or left to another retry layer.
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Empty;
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_jitter_retry::{RetryInfo, RetryLayer, StopReason};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
/// let unavailable = service_fn(|_: Request<_>| async {
///     Response::builder().status(503).body(String::new()).map_err(BoxError::from)
/// });
/// let service = RetryLayer::http().layer(unavailable);
/// let response = service.oneshot(Request::new(Empty::<Bytes>::new())).await?;
/// let info = response.extensions().get::<RetryInfo>().unwrap();
/// assert_eq!((info.attempts, info.stop), (3, StopReason::AttemptsExhausted));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryInfo {
    /// The number of attempts, the first one included.
    pub attempts: u32,
    /// The sum of the delays before the retries.
    pub slept: Duration,
    /// The reason why no further attempt was sent.
    pub stop: StopReason,
}
