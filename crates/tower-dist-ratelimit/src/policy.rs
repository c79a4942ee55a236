mod algorithm;
mod missing_key;
mod request_policy;

use std::{fmt, sync::Arc, time::Duration};

pub use algorithm::Algorithm;
pub use missing_key::MissingKey;
pub use request_policy::RequestPolicy;

use crate::{
    BuildError, Quota,
    backend::{BackendError, BoxFuture, NewStore, Store, any_store, bucket_store},
    build_error::ensure,
    key::{IntoKey, KeyExtractor, KeySink, RequestParts},
};

/// A function of an HTTP request.
type PartsFn<T> = Arc<dyn Fn(RequestParts<'_>) -> T + Send + Sync>;

/// A function that returns the own quota of a request's key, if the key has one.
#[derive(Clone)]
pub(crate) enum DynamicQuota {
    Now(PartsFn<Option<Quota>>),
    Later(PartsFn<QuotaLookup>),
}

/// A pending quota look-up. The look-up itself never fails. The error is for [`Timeout`](crate::backend::Timeout),
/// which wraps the look-up.
pub(crate) type QuotaLookup = BoxFuture<'static, Result<Option<Quota>, BackendError>>;

/// Maximum length of a policy's name in bytes. It is bounded, because responses can carry the names.
const MAX_NAME: usize = 64;

/// One limit: its name, its quota, the key that it counts by, and the cost of a request.
///
/// # Algorithms
///
/// | algorithm | maximum tokens in any window | use |
/// |---|---|---|
/// | token bucket (default), [`leaky_bucket`](Self::leaky_bucket) | burst + limit | most limits: bursts are allowed and bounded |
/// | [`leaky_queue`](Self::leaky_queue) | limit, evenly spaced, if each request costs 1 | calls to a service that does not tolerate bursts; requests wait |
/// | [`fixed_window`](Self::fixed_window), [`fixed_window_staggered`](Self::fixed_window_staggered), [`fixed_window_from_first_request`](Self::fixed_window_from_first_request) | 2 × limit | hourly or daily quotas that people have to understand |
/// | [`sliding_window`](Self::sliding_window) | almost 2 × limit; 1.02 to 1.15 × limit on real traffic | a sliding window at the price of two counters |
/// | [`sliding_window_buckets`](Self::sliding_window_buckets) | almost 2 × limit; closer to the limit on real traffic | a more precise sliding window at the price of more counters |
/// | [`sliding_window_strict`](Self::sliding_window_strict) | limit | hard limits in fixed memory |
/// | [`sliding_window_log`](Self::sliding_window_log) | limit | hard limits that are small |
///
/// These maxima hold with [`Consistency::Exact`](crate::Consistency::Exact), with a fixed quota, and without
/// corrections: a refund lets further requests pass, and an extra charge takes tokens even if too few are free. The
/// maxima assume that the backend works and keeps all keys, and that its clocks agree.
///
/// # Default
///
/// A token bucket that all requests share; in a [`Limiter`](crate::Limiter), one bucket per key. Each request costs 1
/// token.
///
/// # Errors
///
/// Building a layer or limiter fails if
/// - the name is not 1 to 64 printable ASCII characters, or another policy of the same layer or limiter has that name,
/// - a number of the quota or of the algorithm is out of range,
/// - the quota has a burst other than its limit but the algorithm has no burst,
/// - the fixed cost is zero, or exceeds the burst (the limit, if the algorithm has no burst), or
/// - the key has an invalid setting, such as an invalid header name.
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
    pub(crate) backend: BackendPolicy,
    pub(crate) key: Option<Arc<dyn KeyExtractor>>,
    /// The fixed cost of a request; 1 if `cost_fn` is set.
    pub(crate) cost: u64,
    pub(crate) cost_fn: Option<PartsFn<u64>>,
    pub(crate) only_if: Option<PartsFn<bool>>,
    pub(crate) missing_key: Option<MissingKey>,
    pub(crate) dynamic: Option<DynamicQuota>,
    pub(crate) hidden: bool,
    /// Builds the store of the policy in a [`Memory`](crate::backend::Memory).
    store: NewStore,
}

/// The settings of a policy that every backend can read. A [`Registry`](crate::backend::Registry) compares them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackendPolicy {
    name: String,
    quota: Quota,
    algorithm: Algorithm,
    pub(crate) dynamic_quotas: bool,
    colocated: Option<String>,
}

impl Policy {
    /// Creates a policy. HTTP responses can show the name to clients, unless the policy is [hidden](Self::hidden).
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self {
            backend: BackendPolicy {
                name: name.into(),
                quota,
                algorithm: Algorithm::default(),
                dynamic_quotas: false,
                colocated: None,
            },
            key: None,
            cost: 1,
            cost_fn: None,
            only_if: None,
            missing_key: None,
            dynamic: None,
            hidden: false,
            store: bucket_store,
        }
    }

    /// Counts with a leaky bucket as a meter. Each admitted request adds its cost, and the bucket leaks `limit` tokens
    /// per window. The policy rejects a request that would overflow the bucket. The capacity is the quota's burst.
    ///
    /// A leaky bucket admits exactly the requests that a token bucket with the same quota admits.
    pub fn leaky_bucket(mut self) -> Self {
        self.backend.algorithm = Algorithm::LeakyBucket;
        self
    }

    /// Counts with a leaky bucket as a queue. Requests wait for their turn and pass one at a time. After each request,
    /// the queue pauses for `window / limit` per token of the request's cost. A request of cost zero passes
    /// immediately. The queue rejects a request that would wait in it longer than `max_wait`. `max_wait` is above zero
    /// and at most 100 years; some backends allow less.
    ///
    /// Use it for calls that must not come in bursts at all, such as those to a partner's API. Layers wait for the
    /// decision's [`delay`](crate::Decision::delay), except in [shadow](crate::RateLimitLayerBuilder::shadow) mode.
    /// With a [`Limiter`](crate::Limiter), the caller has to wait for the delay.
    ///
    /// If a caller drops a waiting request, the request's place in the queue stays empty, because later requests can
    /// already have their times. A refund by a [handle](crate::RateLimitHandle) or a
    /// [`Limiter`](crate::Limiter::refund) moves only new requests forward. The next new request can then pass at the
    /// same time as a waiting request.
    pub fn leaky_queue(self, max_wait: Duration) -> Self {
        self.counted(Algorithm::LeakyQueue { max_wait })
    }

    /// Counts in windows that start at the same time for all keys. The backend's clock usually determines these times.
    /// In [`Memory`](crate::backend::Memory) the first window starts when the backend is created.
    ///
    /// This is the easiest algorithm to explain. Around the end of a window, twice the limit can pass in a moment.
    pub fn fixed_window(self) -> Self {
        self.counted(Algorithm::FixedWindow { staggered: false })
    }

    /// Counts in [fixed windows](Self::fixed_window) that usually start at a different time for each key, so that
    /// rejected clients do not all retry in the same instant.
    pub fn fixed_window_staggered(self) -> Self {
        self.counted(Algorithm::FixedWindow { staggered: true })
    }

    /// Counts in [fixed windows](Self::fixed_window) that start separately for each key. A window starts when tokens
    /// are charged to a key that has no open window.
    pub fn fixed_window_from_first_request(self) -> Self {
        self.counted(Algorithm::FixedWindowFromFirstRequest)
    }

    /// Counts the current window in full, and the previous window in proportion to its overlap with a window that ends
    /// now. When 43 of 60 seconds of the current window have passed, the overlap is 17/60.
    ///
    /// It needs two counters. On real traffic it usually admits at most 1.02 to 1.15 times the limit in a window, close
    /// to a true sliding window. An attacker can send nearly twice the limit in one window.
    pub fn sliding_window(self) -> Self {
        self.counted(Algorithm::SlidingWindow)
    }

    /// Divides a window into `count` buckets, from 2 to 100, with one counter each. One more counter holds the oldest
    /// bucket. Only a part of the oldest bucket is inside a window that ends now, and the bucket counts in proportion
    /// to that part. With four buckets, a minute takes five counters of 15 seconds each.
    ///
    /// On real traffic, the maximum in a window is usually closer to the limit than with
    /// [`sliding_window`](Self::sliding_window). An attacker can still send nearly twice the limit in one window.
    pub fn sliding_window_buckets(self, count: u32) -> Self {
        self.counted(Algorithm::SlidingWindowBuckets { count })
    }

    /// Divides a window into `count` buckets, from 2 to 100, with one counter each. One more counter holds the
    /// oldest bucket, which is only partly inside a window that ends now, but counts in full.
    ///
    /// Under the conditions that [`Policy`](Policy#algorithms) lists, the algorithm never admits more than the limit in
    /// any window. It uses a fixed amount of memory. The highest rate that it sustains is `count / (count + 1)` of the
    /// limit: 80 % with four buckets, 91 % with ten.
    pub fn sliding_window_strict(self, count: u32) -> Self {
        self.counted(Algorithm::SlidingWindowStrict { count })
    }

    /// Stores the times and the costs of admitted requests. Under the conditions that [`Policy`](Policy#algorithms)
    /// lists, the algorithm never admits more than the limit in any window.
    ///
    /// Use it for small limits that must hold, such as logins. The limit is at most 10,000, or less in some backends.
    /// In [`Memory`](crate::backend::Memory), each request in the window usually takes 16 to 37 bytes.
    pub fn sliding_window_log(self) -> Self {
        self.counted(Algorithm::SlidingWindowLog)
    }

    /// Counts with this algorithm.
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
    pub fn counted(mut self, algorithm: Algorithm) -> Self {
        self.backend.algorithm = algorithm;
        self.store = any_store;
        self
    }

    /// Lets each charge carry a [quota](crate::backend::Charge::quota), for limits that differ from key to key or
    /// change at run time.
    ///
    /// # Default
    ///
    /// All keys have the policy's quota.
    ///
    /// # Cost
    ///
    /// In [`Memory`](crate::backend::Memory), a bucket or queue then needs a short lock and about 100 bytes per key. On
    /// Redis and Memcached, a bucket or queue stores a quota's rate with each key that has used tokens. A rejected
    /// request usually writes the key only if the rate of its quota differs from the stored rate.
    pub fn dynamic_quotas(mut self) -> Self {
        self.backend.dynamic_quotas = true;
        self.store = any_store;
        self
    }

    /// Keeps all keys of this policy on one server of a backend that supports this setting, such as a Redis Cluster.
    /// Policies that are colocated under the same name share that server.
    ///
    /// Without this setting, a Redis Cluster usually decides policies with different keys in parallel. If one policy
    /// rejects, the charges to the other policies are refunded. Policies under one name are usually decided in one
    /// step, but one server carries all of their load. A change of this setting can restart the counts.
    ///
    /// # Default
    ///
    /// The hash of a key selects its server.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, key};
    ///
    /// let user = Policy::new("user", Quota::per_minute(60)).by(key::header("x-user")).colocate("orders");
    /// let total = Policy::new("total", Quota::per_second(5_000)).colocate("orders");
    /// assert_eq!(user.colocated(), total.colocated());
    /// ```
    pub fn colocate(mut self, name: impl Into<String>) -> Self {
        self.backend.colocated = Some(name.into());
        self
    }

    /// Keeps one count per key.
    ///
    /// # Default
    ///
    /// In a layer, all requests share one count. In a [`Limiter`](crate::Limiter), each key has its own count.
    pub fn by(mut self, key: impl KeyExtractor) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// Keeps one count per key that the closure returns. A key is any [`IntoKey`] that borrows nothing from the
    /// request.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota};
    ///
    /// #[derive(Clone)]
    /// struct User { id: u64 }
    ///
    /// let policy = Policy::new("per-user", Quota::per_second(5))
    ///     .by_fn(|head| head.extensions().get::<User>().map(|user| user.id));
    /// assert_eq!(policy.name(), "per-user");
    /// ```
    pub fn by_fn<F, K>(self, key: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> K + Send + Sync + 'static,
        K: IntoKey + 'static,
    {
        self.by(move |head: RequestParts<'_>, sink: &mut KeySink| key(head).write(sink))
    }

    /// Keeps one count per text that the closure borrows from the request. The closure needs no allocation.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota};
    ///
    /// let policy = Policy::new("per-host", Quota::per_second(5)).by_str(|head| head.uri().host());
    /// assert_eq!(policy.name(), "per-host");
    /// ```
    pub fn by_str<F>(self, key: F) -> Self
    where
        F: for<'a> Fn(RequestParts<'a>) -> Option<&'a str> + Send + Sync + 'static,
    {
        self.by(move |head: RequestParts<'_>, sink: &mut KeySink| key(head).write(sink))
    }

    /// Keeps one count per key that the closure takes from a request of any type, for a
    /// [`CallLimitLayer`](crate::CallLimitLayer). Annotate the closure's argument with the type.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use tower::{Layer, Service, ServiceExt, service_fn};
    /// use tower_dist_ratelimit::{CallLimitLayer, Policy, Quota, backend::Memory};
    ///
    /// struct Mail { to: String }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = Policy::new("per-domain", Quota::per_minute(10))
    ///     .by_request(|mail: &Mail| mail.to.split_once('@').map(|(_, domain)| domain.to_owned()));
    /// let layer = CallLimitLayer::builder(Memory::default()).limit(policy).build()?;
    ///
    /// let mut service = layer.layer(service_fn(async |_: Mail| Ok::<_, Infallible>(())));
    /// for _ in 0..10 {
    ///     service.ready().await?.call(Mail { to: "ada@example.com".to_owned() }).await?;
    /// }
    /// assert!(service.ready().await?.call(Mail { to: "bob@example.com".to_owned() }).await.is_err());
    /// assert!(service.ready().await?.call(Mail { to: "ada@example.org".to_owned() }).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn by_request<Req, F, K>(self, key: F) -> RequestPolicy<Req>
    where
        F: Fn(&Req) -> K + Send + Sync + 'static,
        K: IntoKey,
    {
        RequestPolicy {
            key: Some(Arc::new(move |request, sink| key(request).write(sink))),
            ..RequestPolicy::from(self)
        }
    }

    /// Sets the cost of a request in tokens: from 1 to the burst, or to the limit if the algorithm has no burst.
    ///
    /// # Default
    ///
    /// 1.
    pub fn cost(mut self, tokens: u64) -> Self {
        (self.cost, self.cost_fn) = (tokens, None);
        self
    }

    /// Computes the cost of a request in tokens. A request of cost zero takes no tokens. The policy rejects a request
    /// that costs more than the burst, or than the limit if the algorithm has no burst. Waiting does not help.
    pub fn cost_fn<F>(mut self, cost: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> u64 + Send + Sync + 'static,
    {
        self.cost = 1;
        self.cost_fn = Some(Arc::new(cost));
        self
    }

    /// Sets how the policy handles a request without a key.
    ///
    /// # Default
    ///
    /// [`MissingKey::Error`] for [`peer_addr`](crate::key::peer_addr()), [`client_ip`](crate::key::client_ip()) and
    /// other keys with a [hint](KeyExtractor::hint); [`MissingKey::Shared`] for all others.
    pub fn missing_key(mut self, action: MissingKey) -> Self {
        self.missing_key = Some(action);
        self
    }

    /// Applies the policy only to requests for which the closure returns `true`.
    ///
    /// So one layer can hold the limits of a whole service and the limits of its routes, and decide them together. If
    /// one policy rejects a request, the backend usually charges no policy, or [refunds](crate::Source::Parts) the
    /// charges. With two nested layers, the outer layer usually has already charged a request that the inner layer
    /// rejects.
    ///
    /// This works in a [`RateLimitLayer`](crate::RateLimitLayer), for HTTP and gRPC. The closure sees the request as it
    /// arrives at the layer. In axum, [`Router::layer`](https://docs.rs/axum/0.8/axum/struct.Router.html#method.layer)
    /// runs after routing, so a request that matches a route usually has a `MatchedPath`. Inside `nest`, the URI has lost
    /// the prefix of the nested router; `MatchedPath` and `OriginalUri` have it.
    ///
    /// # Default
    ///
    /// All requests.
    ///
    /// # Cost
    ///
    /// One dynamic call per request. A layer with such a policy formats `RateLimit-Policy` for each response with that
    /// header.
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
    /// // The second login is rejected, and is not charged to the limit of all requests.
    /// assert_eq!(statuses, [200, 429, 200, 200, 429]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn only_if<F>(mut self, applies: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> bool + Send + Sync + 'static,
    {
        self.only_if = Some(Arc::new(applies));
        self
    }

    /// Hides the policy from HTTP and gRPC clients. The layer decides and charges as usual, but no header and no
    /// built-in rejection body names the policy.
    ///
    /// Use it for limits that protect the service as a whole, because clients cannot plan for such limits. A rejection
    /// keeps its status and its retry hint, such as `Retry-After`. [Observers](crate::Observer) and
    /// [`Rejection::violated`](crate::Rejection::violated) see the policy.
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
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Gives each key its own quota. The closure runs for every request that the policy counts, so the quota can change
    /// at any time.
    ///
    /// | closure returns | quota of the request |
    /// |---|---|
    /// | `None` | the policy's quota |
    /// | a limit or burst of zero | zero: the policy rejects the request, without a round trip |
    /// | any other quota with a window of zero or above 100 years | the policy's quota |
    /// | another quota, with a bucket or leaky queue | that quota, or the nearest quota within the backend's bounds |
    /// | another quota, with a window or log algorithm | the returned limit within the backend's bounds, with the policy's window; the limit of a log is at most 10,000, or less in some backends |
    ///
    /// Used tokens stay used when the quota changes. If a bucket, window or log has more used tokens than the new burst
    /// or limit, it rejects requests until enough tokens have returned. If the new burst or limit is higher, the key
    /// gets the difference immediately. Buckets and queues usually use the new rate from the first charge with the new
    /// quota, even if that charge is rejected. A request of cost zero does not change the rate.
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
    /// let policy = Policy::new("per-user", Quota::per_minute(60))
    ///     .by(key::extension(|user: &User| user.id))
    ///     .quota_by(|head| Some(Quota::per_minute(head.extensions().get::<User>()?.per_minute)));
    /// assert!(policy.has_dynamic_quotas());
    /// ```
    pub fn quota_by<F>(mut self, quota: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> Option<Quota> + Send + Sync + 'static,
    {
        self.dynamic = Some(DynamicQuota::Now(Arc::new(quota)));
        self.dynamic_quotas()
    }

    /// Gives each key its own quota, like [`quota_by`](Self::quota_by), with an asynchronous look-up, such as in a
    /// database.
    ///
    /// The look-up must finish within the layer's [timeout](crate::RateLimitLayerBuilder::backend_timeout). If the
    /// look-up times out, [`FailureMode`](crate::FailureMode) decides. The mode [`Local`](crate::FailureMode::Local)
    /// then usually decides with this process's share of the quotas. Over a [`Memory`](crate::backend::Memory) without
    /// a [consistency](crate::RateLimitLayerBuilder::consistency) setting, `Local` instead decides all policies of the
    /// request with their full quotas from [`Policy::new`](Self::new). If another quota of the request is already known
    /// to be zero, the request is rejected without the rest of the look-up.
    ///
    /// After the look-up, the backend has the whole timeout again, so a slow look-up never opens the backend's circuit.
    /// During the look-up the request occupies the ready inner service, so keep the quotas in a cache.
    ///
    /// This works in a [`RateLimitLayer`](crate::RateLimitLayer), for HTTP and gRPC. For other requests, and for
    /// requests that [wait](crate::ThrottleLayer) for their turn, let a layer above look up the quota and store it in
    /// the request. Then read it with [`RequestPolicy::quota_by`](crate::RequestPolicy::quota_by).
    ///
    /// # Cost
    ///
    /// Each request that the policy counts allocates for the look-up and for the pending decision.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, key};
    ///
    /// async fn look_up(tenant: String) -> Option<Quota> {
    ///     (tenant == "big").then(|| Quota::per_second(1_000))
    /// }
    ///
    /// let policy = Policy::new("per-tenant", Quota::per_second(10)).by(key::header("x-tenant")).quota_by_async(|head| {
    ///     let tenant = head.headers().get("x-tenant").and_then(|value| value.to_str().ok());
    ///     look_up(tenant.unwrap_or_default().to_owned())
    /// });
    /// assert!(policy.has_dynamic_quotas());
    /// ```
    pub fn quota_by_async<F, Fut>(mut self, quota: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<Quota>> + Send + 'static,
    {
        let look_up = move |head: RequestParts<'_>| -> QuotaLookup {
            let quota = quota(head);
            Box::pin(async { Ok(quota.await) })
        };
        self.dynamic = Some(DynamicQuota::Later(Arc::new(look_up)));
        self.dynamic_quotas()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.backend.name
    }

    /// The quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.backend.quota
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.backend.algorithm
    }

    /// The name under which the policy is [colocated](Self::colocate). `None` if it is not colocated.
    #[must_use]
    pub fn colocated(&self) -> Option<&str> {
        self.backend.colocated.as_deref()
    }

    /// Returns whether the policy has [dynamic quotas](Self::dynamic_quotas), so that a charge can have its own quota.
    #[must_use]
    pub fn has_dynamic_quotas(&self) -> bool {
        self.backend.dynamic_quotas
    }

    /// Builds the store of the policy, with room for this number of keys.
    pub(crate) fn new_store(&self, capacity: usize) -> Result<Arc<dyn Store>, BuildError> {
        let (algorithm, quota) = (self.algorithm(), self.quota());
        (self.store)(algorithm, quota, self.has_dynamic_quotas(), capacity)
            .map_err(|error| error.in_policy(self.name()))
    }

    /// Returns the key's explanation of how to configure the server.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        self.key.as_ref()?.hint()
    }

    /// Returns an error if a setting of the policy reads HTTP requests. `bound` is the [bound](BuildError::bound) of
    /// the error.
    pub(crate) fn check_ignores_requests(&self, bound: &str) -> Result<(), BuildError> {
        let fields = [
            ("by", self.key.is_some()),
            ("only_if", self.only_if.is_some()),
            ("quota_by", self.dynamic.is_some()),
            ("cost_fn", self.cost_fn.is_some()),
        ];
        match fields.into_iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => Err(BuildError::new(field, "set", bound).in_policy(self.name())),
            None => Ok(()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        self.check_parts()
            .map_err(|error| error.in_policy(&self.backend.name))
    }

    fn check_parts(&self) -> Result<(), BuildError> {
        let BackendPolicy {
            name,
            quota,
            algorithm,
            ..
        } = &self.backend;
        let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let is_valid = matches!(name.len(), 1..=MAX_NAME) && name.bytes().all(printable);
        ensure!(is_valid, "name" is name, "1 to {MAX_NAME} printable ASCII characters");
        quota.check()?;
        algorithm.check(*quota)?;
        // If the algorithm has no burst, this number equals the limit.
        let most = quota.burst_size();
        let largest = match algorithm.is_bucket() {
            true => "burst",
            false => "limit",
        };
        ensure!(self.cost > 0, "cost" is 0, "at least 1");
        ensure!(self.cost <= most, "cost" is self.cost, "at most the {largest}, {most}");
        self.key.as_ref().map_or(Ok(()), |key| key.check())
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.backend.name)
            .field("quota", &self.backend.quota)
            .field("algorithm", &self.backend.algorithm)
            .field("dynamic_quotas", &self.backend.dynamic_quotas)
            .field("missing_key", &self.missing_key)
            .finish_non_exhaustive()
    }
}
