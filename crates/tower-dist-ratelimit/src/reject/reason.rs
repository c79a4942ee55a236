use http::StatusCode;

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A policy has no tokens for it.
    Quota,
    /// It has no key, and a policy [rejects](crate::MissingKey::Reject) such requests.
    MissingKey,
    /// It has no key, although every request should have one: the server is not set up for the policy's key. The
    /// [hint](crate::Rejection::hint) says what it lacks.
    Misconfigured,
    /// The store has not decided, and the layer [denies](crate::FailureMode::Closed) in that case.
    Backend,
    /// The store has not decided, and this process has no tokens for it in its
    /// [share](crate::FailureMode::Local).
    ReducedCapacity,
    /// It would have to wait, and there are as many requests waiting as may. Only in a [`Throttle`](crate::Throttle).
    QueueFull,
    /// Its turn would come later than it may wait. Only in a [`Throttle`](crate::Throttle).
    TooLong,
}

impl Reason {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Quota => StatusCode::TOO_MANY_REQUESTS,
            Self::MissingKey => StatusCode::BAD_REQUEST,
            Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Backend | Self::ReducedCapacity | Self::QueueFull | Self::TooLong => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}
