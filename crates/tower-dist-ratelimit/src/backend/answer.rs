use std::{fmt, future::Future, pin::Pin};

use super::BackendError;
use crate::Decisions;

/// A boxed future, as `futures` spells it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A backend's answer, which need not wait and need not box.
#[non_exhaustive]
pub enum Answer {
    /// Decided already; the decisions are where the caller asked for them. Whether every policy allows the request.
    Done(bool),
    /// The store cannot decide.
    Failed(BackendError),
    /// The store was asked; this future has what it says. The request has to be encoded before, not inside it.
    Later(BoxFuture<'static, Result<JointDecision, BackendError>>),
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

/// What a store says about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JointDecision {
    /// Whether every policy allows the request.
    pub allowed: bool,
    /// One decision per charge, in the order of the charges.
    pub decisions: Decisions,
}
