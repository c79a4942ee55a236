use std::borrow::Cow;
use std::{error, fmt};

/// The error for an invalid setting, usually one that is out of its range or contradicts another setting.
///
/// The text names the setting and the condition that it must meet, and usually its value.
///
/// ```
/// use tower_attempt::Budget;
///
/// let error = Budget::ratio(-0.5).validate().unwrap_err();
/// assert_eq!(error.field(), "budget.ratio");
/// assert_eq!(error.to_string(), "budget.ratio is -0.5, but must be from 0 to 10 extra attempts per deposit");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    field: &'static str,
    value: String,
    bound: Cow<'static, str>,
}

impl BuildError {
    /// Returns the error with the text "`field` is `value`, but must be `bound`". The text contains the `Debug` form of
    /// `value`.
    #[must_use]
    pub fn new(
        field: &'static str,
        value: impl fmt::Debug,
        bound: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (value, bound) = (format!("{value:?}"), bound.into());
        Self {
            field,
            value,
            bound,
        }
    }

    /// Returns the error that the two settings `field` and `other` exclude each other.
    #[must_use]
    pub fn besides(field: &'static str, other: &str) -> Self {
        Self::new(field, format_args!("set"), format!("unset besides {other}"))
    }

    /// Returns the name of the setting, such as `max_attempts` or `budget.ratio`.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, value, bound) = (self.field, &self.value, &self.bound);
        write!(f, "{field} is {value}, but must be {bound}")
    }
}

impl error::Error for BuildError {}
