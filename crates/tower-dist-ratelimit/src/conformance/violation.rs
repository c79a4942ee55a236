use std::{error::Error, fmt};

use crate::Algorithm;

/// A promise that a backend breaks.
///
/// Its text names the check, the algorithm, the operation, the field, and the expected and the actual value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub(super) check: &'static str,
    pub(super) algorithm: Algorithm,
    pub(super) operation: String,
    pub(super) field: &'static str,
    pub(super) expected: String,
    pub(super) actual: String,
}

impl Violation {
    /// Returns the name of the check: `building`, `decisions`, `retry`, `expiry`, `nothing written`, `refunds`, `reset`,
    /// `keys`, `racing`, `all or nothing` or `dynamic quotas`.
    #[must_use]
    pub fn check(&self) -> &str {
        self.check
    }

    /// Returns the algorithm under test.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the operation with the wrong answer, and the operations before it.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// Returns the wrong part of the answer, such as `remaining`, `reset_after` or `error`.
    #[must_use]
    pub fn field(&self) -> &str {
        self.field
    }

    /// Returns the value that the field should have.
    #[must_use]
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// Returns the value that the field has, or the decision that it is part of.
    #[must_use]
    pub fn actual(&self) -> &str {
        &self.actual
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            check,
            algorithm,
            operation,
            field,
            expected,
            actual,
        } = self;
        write!(
            f,
            "{check}, {algorithm}: {operation}: {field} must be {expected}, but is {actual}"
        )
    }
}

impl Error for Violation {}
