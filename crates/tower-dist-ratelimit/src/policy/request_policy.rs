use std::{fmt, time::Duration};

use super::{Cost, Policy};
use crate::{
    Algorithm, BuildError, Quota,
    key::{IntoKey, KeySink},
    limits::{Applies, Quoted, Rule},
};

type KeyOf<Req> = Box<dyn Fn(&Req, &mut KeySink) -> Option<()> + Send + Sync>;
type CostOf<Req> = Box<dyn Fn(&Req) -> u64 + Send + Sync>;
type QuotaOf<Req> = Box<dyn Fn(&Req) -> Option<Quota> + Send + Sync>;

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
    policy: Policy,
    key: Option<KeyOf<Req>>,
    cost: Option<CostOf<Req>>,
    quota: Option<QuotaOf<Req>>,
}

impl<Req> RequestPolicy<Req> {
    pub(super) fn by<F, K>(policy: Policy, key: F) -> Self
    where
        F: Fn(&Req) -> K + Send + Sync + 'static,
        K: IntoKey,
    {
        Self {
            key: Some(Box::new(move |request, sink| key(request).write(sink))),
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
            cost: Some(Box::new(cost)),
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
            quota: Some(Box::new(quota)),
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

    /// What is about the request, and what is about the store. Fails if the latter is about HTTP.
    pub(crate) fn split(self) -> Result<(Policy, Look<Req>), BuildError> {
        let cost = self
            .policy
            .only_fixed("unset where requests need not be HTTP")?;
        let look = Look {
            key: self.key,
            cost: self.cost.ok_or(cost),
            quota: self.quota,
        };
        Ok((self.policy, look))
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

/// What a policy takes from a request.
pub(crate) struct Look<Req> {
    key: Option<KeyOf<Req>>,
    /// Or else always the same.
    cost: Result<CostOf<Req>, u64>,
    quota: Option<QuotaOf<Req>>,
}

impl<Req> Look<Req> {
    /// Whether all keys have the policy's quota.
    pub(crate) fn has_fixed_quota(&self) -> bool {
        self.quota.is_none()
    }

    pub(crate) fn at(&self, request: &Req, rule: &Rule, sink: &mut KeySink) -> Applies {
        let key = match &self.key {
            None => 0..0,
            Some(write) => {
                let (key, found) = sink.key(|sink| write(request, sink));
                if !found && let Err(applies) = rule.without_key() {
                    return applies;
                }
                key
            }
        };
        Applies::To {
            key,
            cost: self
                .cost
                .as_ref()
                .map_or_else(|&cost| cost, |cost| cost(request)),
            quota: match &self.quota {
                None => Quoted::Own,
                Some(quota) => Quoted::Found(quota(request)),
            },
        }
    }
}

impl Policy {
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
