use std::{error::Error, fmt, sync::Arc, time::Duration};

/// A backend did not decide: it is unreachable, it did not answer within the timeout, or its answer is invalid.
///
/// On a decision the [`FailureMode`](crate::FailureMode) applies: a layer never returns this error, and
/// [`Limiter`](crate::Limiter) returns it only with [`FailureMode::Closed`](crate::FailureMode::Closed). Refunds,
/// resets and returned leases report it with every failure mode. [`Memory`](super::Memory) fails only on a policy that
/// is not registered, and on a quota that the policy's algorithm cannot count.
#[derive(Clone, Debug)]
pub struct BackendError {
    late: bool,
    busy: bool,
    /// `None`: the circuit breaker is open. A cause in an `Arc` would cost an allocation.
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
    /// A failure with this cause, which may be text.
    #[must_use]
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            late: false,
            busy: false,
            source: Some(cause.into().into()),
        }
    }

    /// The error of a decision while the circuit breaker is open.
    pub(crate) const fn circuit_open() -> Self {
        Self {
            late: false,
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

    /// A failure with this cause that charged nothing, of a backend that still answers: a later attempt may succeed.
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

    /// Returns whether nothing was charged and a later attempt may succeed.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// A failure of a backend that did not answer within this timeout.
    #[must_use]
    pub fn late(deadline: Duration) -> Self {
        Self {
            late: true,
            ..Self::new(format!("no answer within {deadline:?}"))
        }
    }

    /// Returns whether the backend did not answer within the timeout. It may have charged the request.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.late
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
