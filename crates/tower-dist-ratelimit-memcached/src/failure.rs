use std::fmt;

use tower_dist_ratelimit::backend::BackendError;

/// Why a command has no answer, or an operation no verdict.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    reason: String,
    /// Nothing was charged and the connection lasts: sending again is safe and may succeed.
    pub(super) is_busy: bool,
}

impl Failure {
    pub(super) fn new(reason: impl fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
            is_busy: false,
        }
    }

    pub(super) fn busy(reason: impl fmt::Display) -> Self {
        Self {
            is_busy: true,
            ..Self::new(reason)
        }
    }

    pub(super) fn lost(reason: impl fmt::Display) -> Self {
        Self::new(format_args!("no connection to Memcached: {reason}"))
    }

    /// The task that serves the connection has ended with its runtime.
    pub(super) fn ended() -> Self {
        Self::lost("the runtime that it was made on has ended")
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        Self::new(failure.reason)
    }
}
