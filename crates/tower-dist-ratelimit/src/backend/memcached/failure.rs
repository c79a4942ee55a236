use std::{fmt, sync::Arc};

use crate::backend::BackendError;

/// Why there is no answer; the same for all whom it concerns.
#[derive(Clone, Debug)]
pub(super) struct Failure(Arc<str>);

impl Failure {
    pub(super) fn new(why: impl fmt::Display) -> Self {
        Self(why.to_string().into())
    }

    pub(super) fn is_no_number(&self) -> bool {
        is_no_number(&self.0)
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
        Self::new(failure.0.to_string())
    }
}
