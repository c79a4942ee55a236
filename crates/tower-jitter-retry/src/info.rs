use std::time::Duration;

use crate::StopReason;

/// What a retry layer did for a call, in the extensions of its HTTP response.
///
/// It is there when something was repeated, or should have been and was not. A response without one
/// is the first attempt's, and there is nothing to tell.
///
/// ```
/// use tower_jitter_retry::RetryInfo;
///
/// fn log<B>(response: &http::Response<B>) {
///     if let Some(info) = response.extensions().get::<RetryInfo>() {
///         println!("{} attempts, waited {:?}, {:?}", info.attempts(), info.slept(), info.stop());
///     }
/// }
/// # log(&http::Response::new(()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryInfo {
    attempts: u32,
    slept: Duration,
    stop: StopReason,
}

impl RetryInfo {
    pub(crate) fn new(attempts: u32, slept: Duration, stop: StopReason) -> Self {
        Self {
            attempts,
            slept,
            stop,
        }
    }

    /// How many attempts were made, the first included.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// How long the call waited between its attempts.
    #[must_use]
    pub fn slept(&self) -> Duration {
        self.slept
    }

    /// Why there was no further attempt.
    #[must_use]
    pub fn stop(&self) -> StopReason {
        self.stop
    }
}
