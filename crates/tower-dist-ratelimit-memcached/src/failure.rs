use std::fmt;

use tower_dist_ratelimit::backend::BackendError;

/// The error of a command without a connection: the connection was lost, or none has been made yet.
pub(super) fn lost(reason: impl fmt::Display) -> BackendError {
    BackendError::new(format!("no connection to Memcached: {reason}"))
}

/// The error that reports that a task of the backend has ended with its runtime.
pub(super) fn ended() -> BackendError {
    lost("the runtime that it was made on has ended")
}
