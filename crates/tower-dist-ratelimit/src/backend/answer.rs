use std::{fmt, pin::Pin};

use super::BackendError;
use crate::Decisions;

/// An owned, boxed future that is `Send`, as in the `futures` crate.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A backend's answer: a result, a failure, or the future of a result.
#[non_exhaustive]
pub enum Answer {
    /// An immediate result. In the answer to [`acquire`](super::Backend::acquire), the value is `true` if every policy
    /// allows the request. The argument `out` of `acquire` holds the decisions. In the answer to
    /// [`settle`](super::Backend::settle), the value is `true`, and there are no decisions.
    Done(bool),
    /// The backend did not decide.
    Failed(BackendError),
    /// The future of the result. It borrows nothing from the [charges](super::Charge).
    Later(BoxFuture<'static, Result<JointDecision, BackendError>>),
}

impl Answer {
    /// Returns the value of an immediate answer. [`Later`](Self::Later) is an error.
    pub(crate) fn immediate(self) -> Result<bool, BackendError> {
        match self {
            Self::Done(allowed) => Ok(allowed),
            Self::Failed(error) => Err(error),
            Self::Later(_) => Err(BackendError::new(
                "the backend is not remote, but answers later",
            )),
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(allowed) => f.debug_tuple("Done").field(allowed).finish(),
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
        }
    }
}

/// The decisions on charges that are decided together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointDecision {
    /// Whether all of these charges are allowed. `true` in the answer to [`settle`](super::Backend::settle).
    pub allowed: bool,
    /// One decision per charge, in the order of the charges. Empty in the answer to
    /// [`settle`](super::Backend::settle).
    pub decisions: Decisions,
}
