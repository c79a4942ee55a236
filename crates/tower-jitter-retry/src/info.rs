use std::time::Duration;

use crate::StopReason;

/// A retry layer's report on a call, in the extensions of its HTTP response.
///
/// A response has a report if its call was retried, or if a retry was due and was not sent. A response without a report
/// belongs to a first attempt that needed no retry.
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
    /// The time that the call waited between its attempts.
    pub slept: Duration,
    /// The reason why no further attempt was sent.
    pub stop: StopReason,
}
