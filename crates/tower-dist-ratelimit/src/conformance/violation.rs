use std::{error::Error, fmt, ops::RangeInclusive, time::Duration};

use super::Checked;
use crate::{Algorithm, Decision};

/// The error of a backend that breaks a promise of [`Backend`](crate::backend::Backend).
///
/// The message names the check, the algorithm, the operation, the field, and the expected and the actual value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The name of the check: `building`, `decisions`, `retry`, `expiry`, `nothing written`, `refunds`, `reset`,
    /// `keys`, `racing`, `all or nothing` or `dynamic quotas`.
    pub check: &'static str,
    /// The algorithm under test.
    pub algorithm: Algorithm,
    /// A description of what the check did to get the wrong answer.
    pub operation: String,
    /// The wrong part of the answer: a field of [`Decision`], such as `remaining`, or another part, such as `error`.
    pub field: &'static str,
    /// A description of the values that the field may have.
    pub expected: String,
    /// A description of the value that the field has, or of the whole answer.
    pub actual: String,
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

/// Returns a violation unless the promise is kept. [`run_checks`](super::Conformance::run_checks) adds the check and
/// the algorithm.
pub(super) fn promise(
    kept: bool,
    operation: impl fmt::Display,
    field: &'static str,
    expected: impl fmt::Display,
    actual: impl fmt::Debug,
) -> Checked {
    if kept {
        return Ok(());
    }
    Err(Violation {
        check: "",
        algorithm: Algorithm::default(),
        operation: operation.to_string(),
        field,
        expected: expected.to_string(),
        actual: format!("{actual:?}"),
    })
}

/// Fails unless two values are equal.
pub(super) fn equal<T: PartialEq + fmt::Debug>(
    operation: impl fmt::Display,
    field: &'static str,
    expected: T,
    actual: T,
) -> Checked {
    let kept = expected == actual;
    promise(kept, operation, field, format_args!("{expected:?}"), actual)
}

/// Fails unless a value is in a range.
pub(super) fn within<T: PartialOrd + fmt::Debug>(
    operation: impl fmt::Display,
    field: &'static str,
    expected: RangeInclusive<T>,
    actual: T,
) -> Checked {
    let kept = expected.contains(&actual);
    promise(kept, operation, field, format_args!("{expected:?}"), actual)
}

/// Fails if an operation failed.
pub(super) fn succeeds<T>(
    operation: &str,
    result: Result<T, impl fmt::Display>,
) -> Result<T, Violation> {
    result.map_err(|error| {
        let failed = promise(false, operation, "error", "none", format_args!("{error}"));
        failed.expect_err("a promise that is not kept is a violation")
    })
}

/// Fails unless a request is allowed or rejected as `expected`.
pub(super) fn allows(operation: impl fmt::Display, expected: bool, seen: Decision) -> Checked {
    let kept = seen.allowed == expected;
    promise(kept, operation, "allowed", expected, seen)
}

/// Fails unless a key has `expected` remaining tokens.
pub(super) fn remains(operation: impl fmt::Display, expected: u64, seen: Decision) -> Checked {
    let kept = seen.remaining == expected;
    promise(kept, operation, "remaining", expected, seen)
}

/// Fails unless a decision has the remaining tokens of an `unused` key, and a `reset_after` of zero.
pub(super) fn is_unused(operation: impl fmt::Display, unused: Decision, seen: Decision) -> Checked {
    remains(&operation, unused.remaining, seen)?;
    equal(operation, "reset_after", Duration::ZERO, seen.reset_after)
}
