use std::time::Duration;

use tower_attempt::BuildError;
use tower_attempt::layer::Live;

use crate::Backoff;
use crate::settings::Settings;

/// Watches a retry layer, and changes the layer's settings while the layer is in use.
///
/// Every service of the layer follows a change from its next call on. Calls in flight end with the settings
/// that they began with.
///
/// ```
/// use tower_jitter_retry::{Mode, RetryLayer};
///
/// let layer = RetryLayer::http();
/// let handle = layer.handle();
/// handle.set_mode(Mode::Off);
/// // On again, with 2 attempts instead of 3.
/// handle.set_max_attempts(2)?;
/// handle.set_mode(Mode::On);
/// assert_eq!(handle.mode(), Mode::On);
/// assert_eq!(handle.counts().retries, 0);
/// assert_eq!(handle.budget().available(), 100);
/// # Ok::<_, tower_jitter_retry::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryHandle(pub(crate) Live<Settings>);

impl RetryHandle {
    /// Sets the maximum number of attempts per call, the first one included.
    ///
    /// # Errors
    ///
    /// Returns an error if `attempts` is 0.
    pub fn set_max_attempts(&self, attempts: u32) -> Result<(), BuildError> {
        self.change(|given| given.max_attempts = Some(attempts))
    }

    /// Sets the backoff.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Backoff::validate`].
    pub fn set_backoff(&self, backoff: Backoff) -> Result<(), BuildError> {
        self.change(|given| given.backoff = Some(backoff))
    }

    /// Sets the maximum `Retry-After` to honour.
    pub fn set_max_retry_after(&self, longest: Duration) {
        // Cannot fail: every duration is valid and contradicts no other setting.
        let _ = self.change(|given| given.max_retry_after = Some(longest));
    }

    /// Sets the timeout of each attempt.
    ///
    /// # Errors
    ///
    /// Returns an error if `timeout` is zero, or if the layer was built with none of `attempt_timeout`, `deadline` and
    /// `on_timeout`.
    pub fn set_attempt_timeout(&self, timeout: Duration) -> Result<(), BuildError> {
        self.change(|given| given.attempt_timeout = Some(timeout))
    }

    /// Sets the maximum duration of a call.
    ///
    /// # Errors
    ///
    /// Returns an error if `limit` is zero, or if the layer was built with none of `attempt_timeout`, `deadline` and
    /// `on_timeout`.
    pub fn set_deadline(&self, limit: Duration) -> Result<(), BuildError> {
        self.change(|given| given.deadline = Some(limit))
    }
}
