use std::fmt;

use tower_dist_ratelimit::backend::BackendError;

/// The error of a command whose connection is lost.
pub(super) fn lost(reason: impl fmt::Display) -> BackendError {
    BackendError::new(format!("no connection to Memcached: {reason}"))
}

/// The error of a command whose task has ended with its runtime.
pub(super) fn ended() -> BackendError {
    lost("the runtime that it was made on has ended")
}
