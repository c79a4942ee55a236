use std::{error::Error, fmt};

use crate::Algorithm;

/// A promise that a backend does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    check: &'static str,
    algorithm: Algorithm,
    what: String,
}

impl Violation {
    pub(super) fn new(check: &'static str, algorithm: Algorithm, what: impl fmt::Display) -> Self {
        Self {
            check,
            algorithm,
            what: what.to_string(),
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
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}: {}", self.check, self.algorithm, self.what)
    }
}

impl Error for Violation {}
