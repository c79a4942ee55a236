use std::{error::Error, fmt};

use crate::Algorithm;

/// A promise that a backend does not keep.
///
/// Its text has all parts: the check, the algorithm, the operation, the field, and the field's actual and expected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    check: &'static str,
    algorithm: Algorithm,
    found: Found,
}

/// An operation whose answer is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    operation: String,
    field: &'static str,
    expected: String,
    actual: String,
}

/// An operation, and the field of its answer that is wrong.
pub(super) fn found(
    operation: impl fmt::Display,
    field: &'static str,
    expected: impl fmt::Display,
    actual: impl fmt::Debug,
) -> Found {
    Found {
        operation: operation.to_string(),
        field,
        expected: expected.to_string(),
        actual: format!("{actual:?}"),
    }
}

impl Violation {
    pub(super) fn new(check: &'static str, algorithm: Algorithm, found: Found) -> Self {
        Self {
            check,
            algorithm,
            found,
        }
    }

    /// The check that found it: `building`, `decisions`, `retry`, `expiry`, `nothing written`, `refunds`, `reset`,
    /// `keys`, `racing`, `all or nothing` or `dynamic quotas`.
    #[must_use]
    pub fn check(&self) -> &str {
        self.check
    }

    /// The algorithm that it found it with.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The operation with the wrong answer, and what went before it.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.found.operation
    }

    /// The part of the answer that is wrong, such as `remaining`, `reset_after` or `error`.
    #[must_use]
    pub fn field(&self) -> &str {
        self.found.field
    }

    /// The value that the field should have.
    #[must_use]
    pub fn expected(&self) -> &str {
        &self.found.expected
    }

    /// The value that the field has, or the decision that it is part of.
    #[must_use]
    pub fn actual(&self) -> &str {
        &self.found.actual
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            check,
            algorithm,
            found,
        } = self;
        let Found {
            operation,
            field,
            expected,
            actual,
        } = found;
        write!(
            f,
            "{check}, {algorithm}: {operation}: {field} must be {expected}, but is {actual}"
        )
    }
}

impl Error for Violation {}
