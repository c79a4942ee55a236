use std::{error::Error, fmt};

/// An invalid setting, usually found when a limit is built.
///
/// A builder checks its settings when it builds, so that an invalid setting does not make later calls fail. The error
/// names the field, its value and its bound. For a setting of a policy, it usually also names the policy.
///
/// ```
/// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
///
/// let error = Limiter::new(Memory::default(), Policy::new("login", Quota::per_minute(0))).unwrap_err();
/// assert_eq!(error.policy(), Some("login"));
/// assert_eq!((error.field(), error.value(), error.bound()), ("limit", "0", "at least 1"));
/// assert_eq!(error.to_string(), r#"policy "login": limit is 0, but must be at least 1"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    policy: Option<String>,
    field: &'static str,
    value: String,
    bound: String,
}

/// Returns from the function with a [`BuildError`] about a field with this value, unless the condition holds. The bound
/// is a format string. The value is formatted with `Debug`, and only if the condition does not hold.
macro_rules! ensure {
    ($is_valid:expr, $field:tt is $value:expr, $($bound:tt)+) => {
        if !$is_valid {
            return Err($crate::BuildError::new(
                $field,
                format_args!("{:?}", $value),
                format_args!($($bound)+),
            ));
        }
    };
}

pub(crate) use ensure;

impl BuildError {
    /// An error about a `field` with this `value`. `bound` completes the sentence "but must be ..".
    ///
    /// For authors of a [`Backend`](crate::backend::Backend) or a [`KeyExtractor`](crate::key::KeyExtractor).
    #[must_use]
    pub fn new(field: &'static str, value: impl fmt::Display, bound: impl fmt::Display) -> Self {
        Self::of(field, &value, &bound)
    }

    // Not generic, so that it is compiled only once.
    fn of(field: &'static str, value: &dyn fmt::Display, bound: &dyn fmt::Display) -> Self {
        Self {
            policy: None,
            field,
            value: value.to_string(),
            bound: bound.to_string(),
        }
    }

    /// Adds the name of the policy that the error concerns.
    #[must_use]
    pub fn in_policy(mut self, name: &str) -> Self {
        self.policy = Some(name.to_owned());
        self
    }

    /// The name of the policy that the error concerns. `None`, for example, if the error concerns the whole limit, or a
    /// quota without a policy.
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The name of the setting, often the name of its setter.
    #[must_use]
    pub fn field(&self) -> &str {
        self.field
    }

    /// The value of the setting.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The bound that the value must satisfy.
    #[must_use]
    pub fn bound(&self) -> &str {
        &self.bound
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = &self.policy {
            write!(f, "policy {policy:?}: ")?;
        }
        write!(
            f,
            "{} is {}, but must be {}",
            self.field, self.value, self.bound
        )
    }
}

impl Error for BuildError {}
