use std::{error::Error, fmt};

/// A setting that cannot work, found when a limiter is built.
///
/// Whatever can be wrong with a limit is found here, so that nothing is left to go wrong (or to panic) at call time.
/// The error names the policy it belongs to, the field, the value it has and what the value must be.
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

impl BuildError {
    /// A `field` that has this `value`, but must be within `bound` (which completes the sentence "but must be ..").
    ///
    /// For those who write a [`Backend`](crate::backend::Backend) or a [`KeyExtractor`](crate::key::KeyExtractor).
    #[must_use]
    pub fn new(field: &'static str, value: impl fmt::Display, bound: impl fmt::Display) -> Self {
        Self {
            policy: None,
            field,
            value: value.to_string(),
            bound: bound.to_string(),
        }
    }

    /// The same error, said to be about the policy of this name.
    #[must_use]
    pub fn in_policy(self, name: &str) -> Self {
        Self {
            policy: Some(name.to_owned()),
            ..self
        }
    }

    /// The policy that has the setting; `None` when it belongs to the whole limiter.
    #[must_use]
    pub fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The setting, by the name of its setter.
    #[must_use]
    pub fn field(&self) -> &str {
        self.field
    }

    /// The value that the setting has.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What the value must be.
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
