use std::{fmt, sync::Arc, time::Duration};

use super::{Cost, Policy};
use crate::{
    Algorithm, BuildError, Quota,
    key::{IntoKey, KeySink},
};

pub(crate) type KeyOf<Req> = Arc<dyn Fn(&Req, &mut KeySink) -> Option<()> + Send + Sync>;
pub(crate) type CostOf<Req> = Arc<dyn Fn(&Req) -> u64 + Send + Sync>;
pub(crate) type QuotaOf<Req> = Arc<dyn Fn(&Req) -> Option<Quota> + Send + Sync>;

/// A policy about requests that need not be HTTP; from [`Policy::by_request`], or from a [`Policy`] without a key.
///
/// ```
/// use tower_dist_ratelimit::{CallLimitLayer, Policy, Quota, RequestPolicy, backend::Memory};
///
/// struct Print { user: u64, pages: u64 }
///
/// let pages = RequestPolicy::from(Policy::new("pages", Quota::per_minute(100))).cost_fn(|print: &Print| print.pages);
/// let layer = CallLimitLayer::builder(Memory::default())
///     .limit(pages)
///     .limit(Policy::new("jobs", Quota::per_second(1)).by_request(|print: &Print| print.user))
///     .build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[must_use = "a policy does nothing until it is given to a limiter"]
pub struct RequestPolicy<Req> {
    pub(crate) policy: Policy,
    pub(crate) key: Option<KeyOf<Req>>,
    pub(crate) cost: Option<CostOf<Req>>,
    pub(crate) quota: Option<QuotaOf<Req>>,
}

impl<Req> RequestPolicy<Req> {
    pub(super) fn by<F, K>(policy: Policy, key: F) -> Self
    where
        F: Fn(&Req) -> K + Send + Sync + 'static,
        K: IntoKey,
    {
        Self {
            key: Some(Arc::new(move |request, sink| key(request).write(sink))),
            ..Self::from(policy)
        }
    }

    /// What a request costs, in tokens. Zero is free; above the burst, or the limit where there is no burst, it can never pass.
    ///
    /// # Default
    ///
    /// The policy's [`cost`](Policy::cost).
    pub fn cost_fn<F>(self, cost: F) -> Self
    where
        F: Fn(&Req) -> u64 + Send + Sync + 'static,
    {
        Self {
            cost: Some(Arc::new(cost)),
            ..self
        }
    }

    /// Gives each key a quota of its own, as [`Policy::quota_by`] does for HTTP. It is looked up once per request, also if that has to
    /// [wait](crate::ThrottleLayer).
    ///
    /// What takes time to look up is looked up before, and found in the request, or in a cache that is filled elsewhere.
    ///
    /// # Default
    ///
    /// The policy's own quota.
    pub fn quota_by<F>(self, quota: F) -> Self
    where
        F: Fn(&Req) -> Option<Quota> + Send + Sync + 'static,
    {
        Self {
            quota: Some(Arc::new(quota)),
            policy: self.policy.dynamic_quotas(),
            ..self
        }
    }

    /// With a leaky queue no longer than this.
    pub(crate) fn queueing_at_most(self, longest: Duration) -> Self {
        let policy = match self.policy.algorithm() {
            Algorithm::LeakyQueue { max_wait } => self.policy.leaky_queue(max_wait.min(longest)),
            _ => self.policy,
        };
        Self { policy, ..self }
    }
}

impl<Req> Clone for RequestPolicy<Req> {
    fn clone(&self) -> Self {
        Self {
            policy: self.policy.clone(),
            key: self.key.clone(),
            cost: self.cost.clone(),
            quota: self.quota.clone(),
        }
    }
}

impl<Req> From<Policy> for RequestPolicy<Req> {
    fn from(policy: Policy) -> Self {
        Self {
            policy,
            key: None,
            cost: None,
            quota: None,
        }
    }
}

impl<Req> fmt::Debug for RequestPolicy<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestPolicy")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// The cost of each request, if it is fixed.
    #[inline]
    pub(crate) fn fixed_cost(&self) -> u64 {
        match self.cost {
            Cost::Fixed(cost) => cost,
            Cost::Of(_) => 1,
        }
    }

    /// The cost, if the policy takes nothing from HTTP requests.
    pub(crate) fn only_fixed(&self, bound: &str) -> Result<u64, BuildError> {
        let set = |field| Err(BuildError::new(field, "set", bound).in_policy(self.name()));
        match self.cost {
            _ if self.key.is_some() => set("by"),
            _ if self.only_if.is_some() => set("only_if"),
            _ if self.dynamic.is_some() => set("quota_by"),
            Cost::Fixed(cost) => Ok(cost),
            Cost::Of(_) => set("cost_fn"),
        }
    }
}
