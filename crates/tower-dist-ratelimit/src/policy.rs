mod cost;
mod missing_key;

use std::fmt;

pub(crate) use cost::Cost;
pub use missing_key::MissingKey;

use crate::{
    BuildError, Quota,
    key::{FnKey, IntoKey, KeyExtractor, RequestHead, StrKey},
};

/// The longest name. Names go out with every response.
const MAX_NAME: usize = 64;

/// One limit: its name, how much, for whom, and what a request costs.
///
/// # Default
///
/// One bucket for all requests; each costs 1 token.
///
/// # Errors
///
/// Reported when the limiter is built: a name that cannot stand in the `RateLimit` fields (1 to 64 printable ASCII
/// characters; quotes and backslashes are fine), one that two policies have, a quota that cannot be kept, a fixed cost
/// that is zero or above the burst, a key that no request can have.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, key};
///
/// let policy = Policy::new("uploads", Quota::per_hour(1_000).burst(50))
///     .by(key::header("x-api-key"))
///     .cost_fn(|head| if head.method() == "POST" { 10 } else { 1 });
/// assert_eq!((policy.name(), policy.quota().limit()), ("uploads", 1_000));
/// ```
#[must_use = "a policy does nothing until it is given to a limiter"]
pub struct Policy {
    name: String,
    quota: Quota,
    pub(crate) key: Option<Box<dyn KeyExtractor>>,
    pub(crate) cost: Cost,
    pub(crate) missing_key: MissingKey,
}

impl Policy {
    /// A policy of this name, which clients see.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self {
            name: name.into(),
            quota,
            key: None,
            cost: Cost::Fixed(1),
            missing_key: MissingKey::Shared,
        }
    }

    /// One bucket per key.
    ///
    /// # Default
    ///
    /// One bucket for all requests.
    pub fn by(self, key: impl KeyExtractor) -> Self {
        Self {
            key: Some(Box::new(key)),
            ..self
        }
    }

    /// One bucket per key that the closure returns: anything owned that is [`IntoKey`].
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota};
    ///
    /// #[derive(Clone)]
    /// struct User { id: u64 }
    ///
    /// Policy::new("per-user", Quota::per_second(5)).by_fn(|head| head.extensions().get::<User>().map(|user| user.id));
    /// ```
    pub fn by_fn<F, K>(self, key: F) -> Self
    where
        F: Fn(RequestHead<'_>) -> K + Send + Sync + 'static,
        K: IntoKey + 'static,
    {
        self.by(FnKey(key))
    }

    /// One bucket per text that the closure borrows from the request, so nothing is copied or allocated.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota};
    ///
    /// Policy::new("per-host", Quota::per_second(5)).by_str(|head| head.uri().host());
    /// ```
    pub fn by_str<F>(self, key: F) -> Self
    where
        F: for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        self.by(StrKey(key))
    }

    /// What each request costs, in tokens, from 1 to the burst.
    ///
    /// # Default
    ///
    /// 1.
    pub fn cost(self, tokens: u64) -> Self {
        Self {
            cost: Cost::Fixed(tokens),
            ..self
        }
    }

    /// What a request costs, in tokens. Zero is free; above the burst it can never pass.
    pub fn cost_fn<F>(self, cost: F) -> Self
    where
        F: Fn(RequestHead<'_>) -> u64 + Send + Sync + 'static,
    {
        Self {
            cost: Cost::Of(Box::new(cost)),
            ..self
        }
    }

    /// What happens to requests that have no key.
    ///
    /// # Default
    ///
    /// [`MissingKey::Shared`].
    pub fn missing_key(self, action: MissingKey) -> Self {
        Self {
            missing_key: action,
            ..self
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How much is allowed.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        self.check_parts()
            .map_err(|error| error.in_policy(&self.name))
    }

    fn check_parts(&self) -> Result<(), BuildError> {
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        if self.name.is_empty() || self.name.len() > MAX_NAME || !self.name.bytes().all(printable) {
            let bound = format_args!("1 to {MAX_NAME} printable ASCII characters");
            return Err(BuildError::new(
                "name",
                format_args!("{:?}", self.name),
                bound,
            ));
        }
        self.quota.check()?;
        self.cost.check(self.quota.burst_size())?;
        self.key.as_ref().map_or(Ok(()), |key| key.check())
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("quota", &self.quota)
            .field("missing_key", &self.missing_key)
            .finish_non_exhaustive()
    }
}
