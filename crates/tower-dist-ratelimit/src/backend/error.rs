use std::{error::Error, fmt, sync::Arc, time::Duration};

/// The error of a backend that did not decide, for example because it is unreachable, busy or late.
///
/// If a decision fails, the [`FailureMode`](crate::FailureMode) decides instead. So a service's call never fails with
/// this error. A check of a [`Limiter`](crate::Limiter) usually returns this error only with
/// [`FailureMode::Closed`](crate::FailureMode::Closed), or for an [invalid quota](crate::Limiter::with_quota). Extra
/// charges, refunds, resets and [returned leases](crate::Limiter::return_leases) can fail with this error in every
/// failure mode.
///
/// [`Memory`](super::Memory) returns this error only if a charge's policy is not registered, or if a charge has a quota
/// but its policy has no dynamic quotas.
#[derive(Clone, Debug)]
pub struct BackendError {
    timed_out: bool,
    busy: bool,
    /// `None` if the circuit breaker is open, because an `Arc` would cost an allocation for each such error.
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The circuit breaker is open, so the backend got no request.
#[derive(Debug)]
pub(crate) struct CircuitOpen;

impl fmt::Display for CircuitOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the circuit breaker is open after repeated failures")
    }
}

impl Error for CircuitOpen {}

impl BackendError {
    /// The error of a failure with this cause, which may be text.
    #[must_use]
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            timed_out: false,
            busy: false,
            source: Some(cause.into().into()),
        }
    }

    /// The error of an operation while the circuit breaker is open.
    pub(crate) const fn circuit_open() -> Self {
        Self {
            timed_out: false,
            busy: false,
            source: None,
        }
    }

    fn cause(&self) -> &(dyn Error + 'static) {
        match &self.source {
            Some(source) => &**source,
            None => &CircuitOpen,
        }
    }

    /// The error of a backend that works but could not serve this request, for example because its queue is full. Use
    /// this error only if nothing was charged and a later attempt may succeed.
    ///
    /// ```
    /// use tower_dist_ratelimit::backend::BackendError;
    ///
    /// assert!(BackendError::busy("8192 requests wait already").is_busy());
    /// ```
    #[must_use]
    pub fn busy(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            busy: true,
            ..Self::new(cause)
        }
    }

    /// Returns whether this is a [`busy`](Self::busy) error. Usually nothing was charged, and a later attempt may
    /// succeed.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// The error of an answer that did not come within `timeout`.
    #[must_use]
    pub fn timeout(timeout: Duration) -> Self {
        Self::late("answer", timeout)
    }

    /// The timeout error with this message: no `awaited` within `timeout`.
    pub(crate) fn late(awaited: &str, timeout: Duration) -> Self {
        Self {
            timed_out: true,
            ..Self::new(format!("no {awaited} within {timeout:?}"))
        }
    }

    /// Returns whether this is a [`timeout`](Self::timeout) error. It means that one of these took too long: an answer
    /// of the backend, a [quota look-up](crate::Policy::quota_by_async), or a wait at shutdown, such as a backend's
    /// `finish_corrections`. If an answer was late, the backend may have charged the request. A backend can have a
    /// timeout of its own, and report it as another error.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.timed_out
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the rate limit's backend did not decide: {}",
            self.cause()
        )
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause())
    }
}
