use std::{error::Error, fmt, sync::Arc, time::Duration};

/// The store did not decide: it cannot be reached, does not answer in time, or answers nonsense.
///
/// In a [`RateLimitLayer`](crate::RateLimitLayer) it becomes what [`FailureMode`](crate::FailureMode) says;
/// [`Limiter`](crate::Limiter) returns it with [`FailureMode::Closed`](crate::FailureMode::Closed). [`Memory`](super::Memory) never fails.
#[derive(Clone, Debug)]
pub struct BackendError {
    late: bool,
    source: Arc<dyn Error + Send + Sync>,
}

impl BackendError {
    /// A failure with this cause, which may be text.
    #[must_use]
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            late: false,
            source: cause.into().into(),
        }
    }

    /// A failure of a backend that did not answer within this timeout.
    #[must_use]
    pub fn late(deadline: Duration) -> Self {
        Self {
            late: true,
            ..Self::new(format!("no answer within {deadline:?}"))
        }
    }

    /// Whether the answer did not come within the deadline. Then nobody knows whether the request was charged.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.late
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rate limit's store did not decide: {}", self.source)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
