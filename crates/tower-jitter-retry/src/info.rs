use std::time::Duration;

use crate::StopReason;

/// A retry layer's report on a call, in the extensions of its HTTP response.
///
/// A response has a report if the layer sent a retry, or would have sent one but could not, for the reason in `stop`.
/// There is no report if the [mode](crate::Mode) is not `On`. There is also none if the first attempt succeeded, if its
/// failure must not be retried, or if another retry layer is responsible for its failure.
///
/// ```
/// use tower_jitter_retry::RetryInfo;
///
/// fn log<B>(response: &http::Response<B>) {
///     if let Some(info) = response.extensions().get::<RetryInfo>() {
///         println!("{} attempts, waited {:?}, {:?}", info.attempts, info.slept, info.stop);
///     }
/// }
/// # log(&http::Response::new(()));
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
