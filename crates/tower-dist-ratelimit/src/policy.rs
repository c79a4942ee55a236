mod algorithm;
mod cost;
mod dynamic;
mod missing_key;
mod request_policy;

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub use algorithm::Algorithm;
pub(crate) use cost::Cost;
pub(crate) use dynamic::Dynamic;
pub use missing_key::MissingKey;
pub use request_policy::RequestPolicy;
pub(crate) use request_policy::{CostOf, KeyOf, QuotaOf};

use crate::{
    BuildError, Quota,
    key::{IntoKey, KeyExtractor, KeySink, RequestParts},
};

/// Whether a policy applies to a request.
type OnlyIf = Arc<dyn Fn(RequestParts<'_>) -> bool + Send + Sync>;

/// The longest name. Names go out with every response.
const MAX_NAME: usize = 64;

/// One limit: its name, how much, for whom, and what a request costs.
///
/// # Which algorithm
///
/// | | in any window at most | for |
/// |---|---|---|
/// | token bucket (default), [`leaky_bucket`](Self::leaky_bucket) | burst + limit | nearly everything: bursts are allowed and bounded |
/// | [`leaky_queue`](Self::leaky_queue) | the limit, evenly | calls to others that must not come in bursts; requests wait |
/// | [`fixed_window`](Self::fixed_window), [`fixed_window_staggered`](Self::fixed_window_staggered), [`fixed_window_from_first_request`](Self::fixed_window_from_first_request) | 2 × limit | quotas by the hour or day that people have to understand |
/// | [`sliding_window`](Self::sliding_window) | 1.99 × limit; 1.02 to 1.15 on real traffic | a sliding window for the price of two counters |
/// | [`sliding_window_buckets`](Self::sliding_window_buckets) | 1.99 × limit; closer on real traffic | the same, at the price of some more |
/// | [`sliding_window_strict`](Self::sliding_window_strict) | the limit | hard limits with fixed memory |
/// | [`sliding_window_log`](Self::sliding_window_log) | the limit | hard limits, when they are small |
///
/// # Default
///
/// A token bucket, one for all requests; each costs 1 token.
///
/// # Errors
///
/// Reported when the limiter is built: a name that cannot stand in the `RateLimit` fields (1 to 64 printable ASCII
/// characters; quotes and backslashes are fine), one that two policies have, a quota that cannot be kept, a fixed cost
/// that is zero or above the burst, a key that no request can have; a number of the algorithm that is out of its bounds,
/// and a burst with an algorithm that has none.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, key};
///
/// let policy = Policy::new("uploads", Quota::per_hour(1_000).burst(50))
///     .by(key::header("x-api-key"))
///     .cost_fn(|head| if head.method() == "POST" { 10 } else { 1 });
/// assert_eq!((policy.name(), policy.quota().limit()), ("uploads", 1_000));
/// ```
#[derive(Clone)]
#[must_use = "a policy does nothing until it is given to a limiter"]
pub struct Policy {
    name: String,
    quota: Quota,
    algorithm: Algorithm,
    dynamic_quotas: bool,
    colocated: Option<String>,
    pub(crate) key: Option<Arc<dyn KeyExtractor>>,
    pub(crate) cost: Cost,
    pub(crate) only_if: Option<OnlyIf>,
    pub(crate) missing_key: Option<MissingKey>,
    pub(crate) dynamic: Option<Dynamic>,
    pub(crate) hidden: bool,
}

impl Policy {
    /// A policy of this name, which clients see.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self {
            name: name.into(),
            quota,
            algorithm: Algorithm::default(),
            dynamic_quotas: false,
            colocated: None,
            key: None,
            cost: Cost::Fixed(1),
            only_if: None,
            missing_key: None,
            dynamic: None,
            hidden: false,
        }
    }

    /// A leaky bucket as a meter: each request pours in its cost, the bucket leaks `limit` tokens per window, and what
    /// would make it overflow is rejected. Its capacity is the quota's burst.
    ///
    /// It admits exactly what a token bucket admits, which is the same seen from the other side.
    pub fn leaky_bucket(self) -> Self {
        self.counted(Algorithm::LeakyBucket)
    }

    /// A leaky bucket as a queue: requests pass one at a time, `window / limit` apart for each token they cost, and wait
    /// for their turn. Those that would wait longer than `max_wait` (above zero, at most 100 years) are rejected.
    ///
    /// For what must not come in bursts at all, such as a partner's API. The wait is the decision's
    /// [`delay`](crate::Decision::delay).
    ///
    /// Who is dropped while it waits leaves its place empty: those behind it have their times already. What is put back on
    /// purpose, by a [handle](crate::RateLimitHandle) or a [`Limiter`](crate::Limiter::refund), moves up whoever comes next, who can
    /// then come together with the last that waits.
    pub fn leaky_queue(self, max_wait: Duration) -> Self {
        self.counted(Algorithm::LeakyQueue { max_wait })
    }

    /// A counter that starts again with every window. The windows of all keys begin together, counted from when the
    /// limiter was made, or by the store's clock if it has one.
    ///
    /// The cheapest to understand and to explain. Around the end of a window twice the limit can pass at once.
    pub fn fixed_window(self) -> Self {
        self.counted(Algorithm::FixedWindow { staggered: false })
    }

    /// A [fixed window](Self::fixed_window) that begins at another time for each key, so that not all clients come back
    /// in the same instant.
    pub fn fixed_window_staggered(self) -> Self {
        self.counted(Algorithm::FixedWindow { staggered: true })
    }

    /// A [fixed window](Self::fixed_window) that begins with a key's first request, and the next one with the first
    /// request after that.
    pub fn fixed_window_from_first_request(self) -> Self {
        self.counted(Algorithm::FixedWindowFromFirstRequest)
    }

    /// Two windows, weighted: what was counted in this window, and of the previous one as large a share as is less than
    /// a window ago. With 43 of 60 seconds gone that is 17/60.
    ///
    /// Close to a true sliding window on real traffic (up to 1.15 times the limit), at the price of two counters. Who
    /// tries hard can get nearly twice the limit into one window.
    pub fn sliding_window(self) -> Self {
        self.counted(Algorithm::SlidingWindow)
    }

    /// `count` sub-windows per window, from 2 to 100: what was counted in them, and a share of the one that is half gone.
    /// Four in a minute are five counters of 15 seconds.
    ///
    /// Closer than [two windows](Self::sliding_window) on real traffic, no better against those who try hard.
    pub fn sliding_window_buckets(self, count: u32) -> Self {
        self.counted(Algorithm::SlidingWindowBuckets { count })
    }

    /// `count` sub-windows per window, from 2 to 100, and the one that is half gone as a whole.
    ///
    /// Never more than the limit in any window, with a fixed amount of memory. The price: what can be sustained is
    /// `count / (count + 1)` of the limit, 80 % with four, 91 % with ten.
    pub fn sliding_window_strict(self, count: u32) -> Self {
        self.counted(Algorithm::SlidingWindowStrict { count })
    }

    /// The time of every request: exactly the limit in any window.
    ///
    /// For small limits that must hold, such as logins: at most 10,000, and 16 to 32 bytes per token in the window.
    pub fn sliding_window_log(self) -> Self {
        self.counted(Algorithm::SlidingWindowLog)
    }

    /// Counts by this algorithm.
    ///
    /// # Default
    ///
    /// [`Algorithm::TokenBucket`].
    ///
    /// ```
    /// use tower_dist_ratelimit::{Algorithm, Policy, Quota};
    ///
    /// let chosen = Policy::new("login", Quota::per_minute(5)).counted(Algorithm::SlidingWindowLog);
    /// assert_eq!(chosen.algorithm(), Algorithm::SlidingWindowLog);
    /// ```
    pub fn counted(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Lets charges bring a [quota](crate::backend::Charge::quota) of their own: limits that differ from key to key or
    /// change while the limiter runs.
    ///
    /// # Default
    ///
    /// All keys have the policy's quota, always.
    ///
    /// # Cost
    ///
    /// In [`Memory`](crate::backend::Memory) a bucket then needs a short lock, and 80 bytes per key. On Redis and Memcached a
    /// rejected request writes its key if it brings another quota than the last one.
    pub fn dynamic_quotas(self) -> Self {
        Self {
            dynamic_quotas: true,
            ..self
        }
    }

    /// Keeps all keys of this policy in one place of a store that is spread over several servers, together with those of
    /// every policy that is colocated under the same name.
    ///
    /// In a Redis Cluster, policies that are decided together but have different keys are otherwise asked in parallel,
    /// and what was taken is put back when one rejects; colocated, they are decided in one step. The price: all of their
    /// load is on one server.
    ///
    /// # Default
    ///
    /// Each key is where its hash says. Stores of one server do not care.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, key};
    ///
    /// let user = Policy::new("user", Quota::per_minute(60)).by(key::header("x-user")).colocate("orders");
    /// let total = Policy::new("total", Quota::per_second(5_000)).colocate("orders");
    /// assert_eq!(user.colocated(), total.colocated());
    /// ```
    pub fn colocate(self, name: impl Into<String>) -> Self {
        Self {
            colocated: Some(name.into()),
            ..self
        }
    }

    /// One bucket per key.
    ///
    /// # Default
    ///
    /// One bucket for all requests.
    pub fn by(self, key: impl KeyExtractor) -> Self {
        Self {
            key: Some(Arc::new(key)),
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
        F: Fn(RequestParts<'_>) -> K + Send + Sync + 'static,
        K: IntoKey + 'static,
    {
        self.by(move |head: RequestParts<'_>, sink: &mut KeySink| key(head).write(sink))
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
        F: for<'a> Fn(RequestParts<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        self.by(move |head: RequestParts<'_>, sink: &mut KeySink| key(head).write(sink))
    }

    /// One bucket per key that the closure takes from a request of any type, for a
    /// [`CallLimitLayer`](crate::CallLimitLayer); its argument says the type.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota};
    ///
    /// struct Mail { to: String }
    ///
    /// let policy = Policy::new("per-domain", Quota::per_minute(10))
    ///     .by_request(|mail: &Mail| mail.to.split_once('@').map(|(_, domain)| domain.to_owned()));
    /// # let _ = policy;
    /// ```
    pub fn by_request<Req, F, K>(self, key: F) -> RequestPolicy<Req>
    where
        F: Fn(&Req) -> K + Send + Sync + 'static,
        K: IntoKey,
    {
        RequestPolicy::by(self, key)
    }

    /// What each request costs, in tokens, from 1 to the burst, or to the limit where there is no burst.
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

    /// What a request costs, in tokens. Zero is free; above the burst, or the limit where there is no burst, it can never pass.
    pub fn cost_fn<F>(self, cost: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> u64 + Send + Sync + 'static,
    {
        Self {
            cost: Cost::Of(Arc::new(cost)),
            ..self
        }
    }

    /// What happens to requests that have no key.
    ///
    /// # Default
    ///
    /// [`MissingKey::Error`] for [`peer_addr`](crate::key::peer_addr()), [`client_ip`](crate::key::client_ip()) and other keys
    /// with a [hint](KeyExtractor::hint); [`MissingKey::Shared`] for all others.
    pub fn missing_key(self, action: MissingKey) -> Self {
        Self {
            missing_key: Some(action),
            ..self
        }
    }

    /// Requests that the policy applies to; the layer decides on all others as if it did not have the policy.
    ///
    /// So one layer holds the limits of the whole service and those of its routes, and decides on them together: a request
    /// that any policy rejects is charged to none. With a layer of its own for each route, the outer layer has charged the
    /// request already when the inner one rejects it.
    ///
    /// For HTTP and gRPC, in a [`RateLimitLayer`](crate::RateLimitLayer). The closure sees the request as it is where the layer
    /// stands. In axum, [`Router::layer`](https://docs.rs/axum/0.8/axum/struct.Router.html#method.layer) puts it behind the
    /// router, where the request has a `MatchedPath`.
    ///
    /// # Default
    ///
    /// All requests.
    ///
    /// # Cost
    ///
    /// One call of a boxed closure per request. The `RateLimit-Policy` field is then written for each response.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::{Request, Response, StatusCode};
    /// use tower::{Layer, Service, ServiceExt, service_fn};
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory};
    ///
    /// let login = Policy::new("login", Quota::per_minute(1)).only_if(|head| head.uri().path() == "/login");
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("all", Quota::per_minute(3)))
    ///     .limit(login)
    ///     .build()?;
    /// let mut service = layer.layer(service_fn(|_: Request<String>| async {
    ///     Ok::<_, std::convert::Infallible>(Response::new(bytes::Bytes::new()))
    /// }));
    /// let mut statuses = Vec::new();
    /// for path in ["/login", "/login", "/", "/", "/"] {
    ///     let request = Request::builder().uri(path).body(String::new())?;
    ///     statuses.push(service.ready().await?.call(request).await?.status().as_u16());
    /// }
    /// // The second login is rejected, and takes nothing from the limit of all.
    /// assert_eq!(statuses, [200, 429, 200, 200, 429]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn only_if<F>(self, applies: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> bool + Send + Sync + 'static,
    {
        Self {
            only_if: Some(Arc::new(applies)),
            ..self
        }
    }

    /// Leaves the policy out of responses: the layer decides and charges as usual, but no header and no body names it.
    ///
    /// For limits that protect the service as a whole, which clients cannot plan with. A rejection still has its status and its
    /// `Retry-After`. [Observers](crate::Observer) and [`Rejection::violated`](crate::Rejection::violated) see the policy.
    ///
    /// # Default
    ///
    /// Every policy is shown.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("total", Quota::per_second(5_000)).hidden())
    ///     .limit(Policy::new("client", Quota::per_second(10)).by(key::header("x-api-key")))
    ///     .build()?;
    /// let service = layer.layer(service_fn(async |_: Request<()>| {
    ///     Ok::<_, std::convert::Infallible>(Response::new(bytes::Bytes::new()))
    /// }));
    /// let response = service.oneshot(Request::builder().header("x-api-key", "a").body(())?).await?;
    /// assert_eq!(response.headers()["ratelimit-policy"], r#""client";q=10;w=1"#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hidden(self) -> Self {
        Self {
            hidden: true,
            ..self
        }
    }

    /// Gives each key a quota of its own, which is looked up with every request, so that it can change at any time.
    ///
    /// `None` is the policy's own quota, and so is a quota that could not have been built. A limit of zero rejects
    /// everything, without asking the store. Windows and logs keep their length: they take the limit of a quota, whatever its window,
    /// and a log no more than 10,000 of it. What a key has used stays used when its quota changes: lowered below that,
    /// it is rejected until enough has come back; raised, it gets the difference at once. A bucket drains at the rate of the
    /// old quota until the first request that brings the new one, allowed or not, and at the new rate from then on.
    ///
    /// # Default
    ///
    /// All keys have the policy's own quota.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, key};
    ///
    /// #[derive(Clone)]
    /// struct User { id: u64, per_minute: u64 }
    ///
    /// Policy::new("per-user", Quota::per_minute(60))
    ///     .by(key::extension(|user: &User| user.id))
    ///     .quota_by(|head| Some(Quota::per_minute(head.extensions().get::<User>()?.per_minute)));
    /// ```
    pub fn quota_by<F>(self, quota: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> Option<Quota> + Send + Sync + 'static,
    {
        Self {
            dynamic: Some(Dynamic::Now(Arc::new(quota))),
            ..self.dynamic_quotas()
        }
    }

    /// The same as [`quota_by`](Self::quota_by), for quotas that take some waiting: in a database, or with the service that
    /// knows what a token is worth.
    ///
    /// The look-up has the layer's [deadline](crate::RateLimitLayerBuilder::backend_timeout). The backend has the same
    /// deadline once more, counted from when it is asked, so a slow look-up never opens the backend's circuit. A look-up
    /// that is late is decided by [`FailureMode`](crate::FailureMode). Meanwhile the request holds the inner service ready, so
    /// keep the looked-up quotas in a cache.
    ///
    /// For HTTP and gRPC, as a [`RateLimitLayer`](crate::RateLimitLayer) decides on them. Where requests are of other types, or wait for
    /// their turn, a layer above looks the quota up and puts it into the request, where
    /// [`RequestPolicy::quota_by`](crate::RequestPolicy::quota_by) finds it.
    ///
    /// # Cost
    ///
    /// Each request boxes the look-up and what waits for it.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, key};
    ///
    /// async fn look_up(tenant: String) -> Option<Quota> {
    ///     (tenant == "big").then(|| Quota::per_second(1_000))
    /// }
    ///
    /// Policy::new("per-tenant", Quota::per_second(10)).by(key::header("x-tenant")).quota_by_async(|head| {
    ///     let tenant = head.headers().get("x-tenant").and_then(|value| value.to_str().ok());
    ///     look_up(tenant.unwrap_or_default().to_owned())
    /// });
    /// ```
    pub fn quota_by_async<F, Fut>(self, quota: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<Quota>> + Send + 'static,
    {
        Self {
            dynamic: Some(Dynamic::Later(Arc::new(move |head| Box::pin(quota(head))))),
            ..self.dynamic_quotas()
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

    /// How it counts.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Under which name it is [colocated](Self::colocate).
    #[must_use]
    pub fn colocated(&self) -> Option<&str> {
        self.colocated.as_deref()
    }

    /// Whether charges can bring a quota of their own.
    #[must_use]
    pub fn has_dynamic_quotas(&self) -> bool {
        self.dynamic_quotas
    }

    /// What the server lacks when a request has no key.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        self.key.as_ref()?.hint()
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
        self.algorithm.check(self.quota)?;
        // Where there is no burst, it is the limit.
        let most = self.quota.burst_size();
        self.cost.check(self.algorithm.largest(), most)?;
        self.key.as_ref().map_or(Ok(()), |key| key.check())
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("quota", &self.quota)
            .field("algorithm", &self.algorithm)
            .field("dynamic_quotas", &self.dynamic_quotas)
            .field("missing_key", &self.missing_key)
            .finish_non_exhaustive()
    }
}
