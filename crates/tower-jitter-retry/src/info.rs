use std::time::Duration;

use crate::StopReason;

/// A retry layer's report on a call, in the extensions of the call's HTTP or gRPC response.
///
/// The layer adds a report if it sent a retry. It also adds a report if it would have sent a retry but could not;
/// [`stop`](Self::stop) names the reason. A response that the layer creates when a call's deadline expires receives a
/// report, too. The report replaces the report of a retry layer below.
///
/// The layer adds no report if the [mode](crate::Mode) is not `On`. It also adds no report if the first attempt
/// succeeded, if the verdict on the first attempt is [`Fatal`](crate::Verdict::Fatal) or
/// [`Unsafe`](crate::Verdict::Unsafe), or if the call ends after the first attempt with [`StopReason::Nested`]. In all
/// these cases, the report of a retry layer below stays.
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
    /// The number of attempts that the layer sent, the first one included.
    pub attempts: u32,
    /// The sum of the delays before the retries. The delay of a retry that was scheduled but not sent counts, too.
    pub slept: Duration,
    /// The reason why no further attempt was sent.
    pub stop: StopReason,
}
