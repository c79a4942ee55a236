use std::{fmt, sync::Arc, time::Duration};

use super::Policy;
use crate::{Algorithm, Quota, key::KeySink};

/// A policy for requests of any type, from [`Policy::by_request`] or from a [`Policy`] without a key.
///
/// Call the setters of [`Policy`] that read no request, such as the algorithm and [`missing_key`](Policy::missing_key),
/// before `by_request`. There is no counterpart of [`only_if`](Policy::only_if). To exempt some requests, let the key
/// be `None` and set [`MissingKey::Skip`](crate::MissingKey::Skip).
///
/// ```
/// use std::convert::Infallible;
/// use tower::{Layer, Service, ServiceExt, service_fn};
/// use tower_dist_ratelimit::{CallLimitLayer, Policy, Quota, RequestPolicy, backend::Memory};
///
/// struct Print { user: u64, pages: u64 }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pages = RequestPolicy::from(Policy::new("pages", Quota::per_minute(100))).cost_fn(|print: &Print| print.pages);
/// let layer = CallLimitLayer::builder(Memory::default())
///     .limit(pages)
///     .limit(Policy::new("jobs", Quota::per_second(1)).by_request(|print: &Print| print.user))
///     .build()?;
///
/// let mut service = layer.layer(service_fn(async |_: Print| Ok::<_, Infallible>(())));
/// assert!(service.ready().await?.call(Print { user: 1, pages: 80 }).await.is_ok());
/// assert!(service.ready().await?.call(Print { user: 2, pages: 30 }).await.is_err());
/// # Ok(())
/// # }
/// ```
#[must_use = "a policy does nothing until it is given to a limiter"]
pub struct RequestPolicy<Req> {
    pub(crate) policy: Policy,
    pub(crate) key: Option<Arc<KeyFn<Req>>>,
    pub(crate) cost: Option<RequestFn<Req, u64>>,
    pub(crate) quota: Option<RequestFn<Req, Option<Quota>>>,
}

/// A function of a request.
type RequestFn<Req, T> = Arc<dyn Fn(&Req) -> T + Send + Sync>;

type KeyFn<Req> = dyn Fn(&Req, &mut KeySink) -> Option<()> + Send + Sync;

impl<Req> RequestPolicy<Req> {
    /// Computes the cost of a request in tokens. A request of cost zero takes no tokens. The policy rejects a request
    /// that costs more than the burst, or than the limit if the algorithm has no burst. Waiting does not help.
    ///
    /// # Default
    ///
    /// The policy's [`cost`](Policy::cost).
    pub fn cost_fn<F>(mut self, cost: F) -> Self
    where
        F: Fn(&Req) -> u64 + Send + Sync + 'static,
    {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Gives each key its own quota, like [`Policy::quota_by`]. The closure runs at most once per request, also for a
    /// request that [waits](crate::ThrottleLayer).
    ///
    /// For an asynchronous look-up, let a layer above store the quota in the request, or let the closure read the quota
    /// from a cache.
    ///
    /// # Default
    ///
    /// The policy's quota.
    pub fn quota_by<F>(mut self, quota: F) -> Self
    where
        F: Fn(&Req) -> Option<Quota> + Send + Sync + 'static,
    {
        self.quota = Some(Arc::new(quota));
        self.policy = self.policy.dynamic_quotas();
        self
    }

    /// Bounds the `max_wait` of a leaky queue by `longest`.
    pub(crate) fn queueing_at_most(mut self, longest: Duration) -> Self {
        // Not by `leaky_queue`, which refers to the code of all algorithms, also if the policy is a bucket.
        if let Algorithm::LeakyQueue { max_wait } = &mut self.policy.backend.algorithm {
            *max_wait = longest.min(*max_wait);
        }
        self
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
        self.policy.fmt(f)
    }
}
