use std::{fmt, sync::Arc};

use tower_dist_ratelimit::backend::BackendError;

/// Why there is no answer; the same for all whom it concerns.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    why: Arc<str>,
    busy: bool,
}

impl Failure {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self {
            why: why.to_string().into(),
            busy: false,
        }
    }

    /// Too much was to be done to begin with this, or to get through. Nothing was charged.
    pub(super) fn busy(why: impl fmt::Display) -> Self {
        Self {
            busy: true,
            ..Self::new(why)
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(super) fn is_no_number(&self) -> bool {
        is_no_number(&self.why)
    }

    pub(super) fn lost(why: impl fmt::Display) -> Self {
        Self::new(format_args!("no connection to Memcached: {why}"))
    }
}

/// Whether a server was to add to something that is no number.
pub(super) fn is_no_number(error: &str) -> bool {
    error.starts_with("CLIENT_ERROR cannot increment or decrement non-numeric value")
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        Self::new(failure.why.to_string())
    }
}
