use std::time::Duration;

use crate::backend::BackendError;

/// Why a charge was not decided.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    error: BackendError,
    /// Nothing was charged, and the store answers: sending the charge again is safe and may succeed.
    pub(super) is_busy: bool,
}

impl Failure {
    pub(super) fn busy(reason: String) -> Self {
        Self {
            error: BackendError::new(reason),
            is_busy: true,
        }
    }

    pub(super) fn late(timeout: Duration) -> Self {
        BackendError::late(timeout).into()
    }

    /// The task that decided about the key has ended: its runtime has, or the store has panicked.
    pub(super) fn ended() -> Self {
        BackendError::new("the runtime that it was made on has ended, or the store has panicked")
            .into()
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self {
            error,
            is_busy: false,
        }
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}
