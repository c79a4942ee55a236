use http::StatusCode;

/// The reason for a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The quota of a policy rejects the request.
    Quota,
    /// The request lacks the key of a policy with [`MissingKey::Reject`](crate::MissingKey::Reject).
    MissingKey,
    /// The request lacks the key of a policy with [`MissingKey::Error`](crate::MissingKey::Error). Every request should
    /// have that key, so the server is misconfigured. If the key has a [hint](crate::Rejection::hint), the hint
    /// explains how to configure the server.
    Misconfigured,
    /// Neither the backend nor this instance decided, usually because the limit
    /// [fails closed](crate::FailureMode::Closed).
    Backend,
    /// The [local fallback](crate::FailureMode::Local) lacks tokens for the request, during or after a failure of the
    /// backend or of a quota look-up.
    ReducedCapacity,
    /// The services of a [`ThrottleLayer`](crate::ThrottleLayer) already have
    /// [`max_waiters`](crate::CallLimitLayerBuilder::max_waiters) waiting requests.
    QueueFull,
    /// The wait of the request exceeds, or would probably exceed, the
    /// [`max_wait`](crate::CallLimitLayerBuilder::max_wait) of a [`Throttle`](crate::Throttle).
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
