use std::{fmt, sync::Arc, time::Duration};

use http::Response;

use super::RateLimitLayer;
use crate::{
    BuildError, Consistency, Decided, FailureMode, GrpcRejection, Policy, ProblemJson, Rejection,
    ResponseHeaders,
    backend::Backend,
    headers::LatestRejection,
    http::{HttpLimits, HttpSettings, ResponseHead, policies_of},
    key::RequestParts,
    limits::{Check, Settings},
    setters::shared_setters,
};

/// Settings of a [`RateLimitLayer`], from [`RateLimitLayer::builder`].
///
/// # Default
///
/// | setting | default |
/// |---|---|
/// | [`limit`](Self::limit) | none; at least one is needed |
/// | [`name`](Self::name) | empty |
/// | [`exempt`](Self::exempt) | no request |
/// | [`headers`](Self::headers) | [`ResponseHeaders::Always`] |
/// | [`x_ratelimit`](Self::x_ratelimit) | no `X-RateLimit` headers |
/// | [`failure_mode`](Self::failure_mode) | [`FailureMode::Local`] with 1 instance |
/// | [`backend_timeout`](Self::backend_timeout) | 50 ms |
/// | [`consistency`](Self::consistency) | [`Consistency::Exact`] |
/// | [`deny_cache`](Self::deny_cache) | on, for remote backends |
/// | [`rejection`](Self::rejection), [`grpc`](Self::grpc) | [`ProblemJson`] |
/// | [`handle`](Self::handle), [`refund_when`](Self::refund_when) | charges stay |
/// | [`shadow`](Self::shadow) | off: the limit rejects requests |
/// | [`observer`](Self::observer) | none |
#[must_use = "a builder does nothing until it builds"]
pub struct RateLimitLayerBuilder<R = ProblemJson> {
    settings: Settings,
    policies: Vec<Policy>,
    answers: HttpSettings,
    /// The result of checking the setting of the response headers.
    headers: Result<(), BuildError>,
    reject: R,
}

impl RateLimitLayer {
    /// Returns a builder of a layer that keeps its counts in this backend.
    pub fn builder(backend: impl Backend) -> RateLimitLayerBuilder {
        RateLimitLayerBuilder {
            settings: Settings::new(backend),
            policies: Vec::new(),
            answers: HttpSettings::default(),
            headers: Ok(()),
            reject: ProblemJson,
        }
    }
}

impl<R> RateLimitLayerBuilder<R> {
    shared_setters!();

    /// Adds a policy. A request passes if all policies that apply to the request allow it. Otherwise the backend
    /// usually charges no policy, or [refunds](crate::Source::Parts) the charges.
    ///
    /// With two nested layers, the outer layer has already charged a request that the inner layer rejects. To avoid
    /// this, add both policies to one layer. With [`Policy::only_if`], a policy applies only to some requests.
    pub fn limit(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Exempts requests for which the closure returns `true`, such as health checks and CORS preflights. No policy
    /// applies to these requests, and the layer adds no headers to their responses. With several closures, a request is
    /// exempt if one of them returns `true`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("all", Quota::per_minute(1)))
    ///     .exempt(|head| head.uri().path() == "/healthz" || head.method() == "OPTIONS")
    ///     .build()?;
    /// let service = layer.layer(service_fn(async |_: Request<()>| {
    ///     Ok::<_, std::convert::Infallible>(Response::new(bytes::Bytes::new()))
    /// }));
    /// let mut statuses = Vec::new();
    /// for path in ["/", "/", "/healthz"] {
    ///     let request = Request::builder().uri(path).body(())?;
    ///     statuses.push(service.clone().oneshot(request).await?.status().as_u16());
    /// }
    /// assert_eq!(statuses, [200, 429, 200]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn exempt<F>(mut self, exempt: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> bool + Send + Sync + 'static,
    {
        self.answers.exempt.push(Box::new(exempt));
        self
    }

    /// Selects the responses that carry the `RateLimit` headers.
    ///
    /// # Default
    ///
    /// [`ResponseHeaders::Always`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, ResponseHeaders, backend::Memory};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("all", Quota::per_hour(4)))
    ///     .headers(ResponseHeaders::NearLimit(0.25))
    ///     .build()?;
    /// let service = layer.layer(service_fn(async |_: Request<()>| {
    ///     Ok::<_, std::convert::Infallible>(Response::new(bytes::Bytes::new()))
    /// }));
    /// // 3, 2, 1 and 0 of 4 tokens remain.
    /// for near in [false, false, true, true] {
    ///     let response = service.clone().oneshot(Request::new(())).await?;
    ///     assert_eq!(response.headers().contains_key("ratelimit"), near);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn headers(mut self, fields: ResponseHeaders) -> Self {
        self.answers.fields = fields;
        // The check formats floating-point numbers. It runs here and not in `build`, so that a binary without a call of
        // this setter lacks that code.
        self.headers = fields.check();
        self
    }

    /// Also adds `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (in seconds from now) to the
    /// responses with `RateLimit` headers, for clients that know only these three.
    ///
    /// The three headers ignore [hidden](Policy::hidden) policies, and describe one of the other policies. If any of
    /// these other policies reject the request, the headers describe the rejecting policy with the longest wait.
    /// Otherwise, they describe the policy with the fewest remaining tokens. If the described policy can never admit
    /// the request, `X-RateLimit-Reset` is missing. If the response already has one of the three headers, the layer
    /// adds none of them.
    pub fn x_ratelimit(mut self) -> Self {
        self.answers.x_ratelimit = true;
        self
    }

    /// Inserts a [`RateLimitHandle`](crate::RateLimitHandle) into the extensions of each request that passes. With the
    /// handle, the service reads and corrects the request's charge.
    ///
    /// # Cost
    ///
    /// Usually two allocations per policy, and the allocations of the request's extensions.
    pub fn handle(mut self) -> Self {
        self.answers.handle = true;
        self.answers.make_handle = Some(HttpLimits::make_handle);
        self
    }

    /// Refunds a request if the closure returns `true` for its response head. If the inner service failed without a
    /// response, the closure gets `None`.
    ///
    /// Use it to refund requests that failed on the server's side, or to count only failed requests, for example failed
    /// logins. A charge is not refunded if the service has [settled](crate::RateLimitHandle::settle) the charge, or if
    /// the charge has left its window. If the backend fails, the refund can be
    /// [lost](RateLimitLayer::lost_corrections). If the caller drops the call before its response, the closure does not
    /// run, so the charge usually stays.
    ///
    /// # Cost
    ///
    /// Usually two allocations per policy, and one for the pending refund.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::{Request, Response, StatusCode};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory};
    ///
    /// // One failed login per hour.
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("logins", Quota::per_hour(1)))
    ///     .refund_when(|response| response.is_some_and(|response| response.status().is_success()))
    ///     .build()?;
    /// let login = layer.layer(service_fn(async |request: Request<&'static str>| {
    ///     let mut response = Response::new(bytes::Bytes::new());
    ///     if *request.body() != "right password" {
    ///         *response.status_mut() = StatusCode::UNAUTHORIZED;
    ///     }
    ///     Ok::<_, std::convert::Infallible>(response)
    /// }));
    /// let mut statuses = Vec::new();
    /// for password in ["right password", "right password", "guess", "guess"] {
    ///     statuses.push(login.clone().oneshot(Request::new(password)).await?.status().as_u16());
    /// }
    /// assert_eq!(statuses, [200, 200, 401, 429]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn refund_when<F>(mut self, refund: F) -> Self
    where
        F: Fn(Option<ResponseHead<'_>>) -> bool + Send + Sync + 'static,
    {
        self.answers.make_handle = Some(HttpLimits::make_handle);
        self.answers.refund_when = Some(Arc::new(refund));
        self
    }

    /// Builds rejection responses with a closure. Use it for a response other than [`ProblemJson`], or if the body's
    /// type does not implement `From<Bytes>`.
    ///
    /// If the wait is known, the layer adds `Retry-After`, unless the closure has set this header. The layer can also
    /// add the [`RateLimit` headers](Self::headers).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::{Request, Response};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("all", Quota::per_hour(1)))
    ///     .rejection(|rejection| {
    ///         let mut response = Response::new(String::from("slow down"));
    ///         *response.status_mut() = rejection.status();
    ///         response
    ///     })
    ///     .build()?;
    /// let service = layer.layer(service_fn(async |_: Request<()>| {
    ///     Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
    /// }));
    /// assert_eq!(service.clone().oneshot(Request::new(())).await?.body(), "hello");
    /// let rejected = service.oneshot(Request::new(())).await?;
    /// assert_eq!(rejected.status(), 429);
    /// assert_eq!(rejected.body(), "slow down");
    /// assert!(rejected.headers().contains_key("retry-after"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn rejection<F, B>(self, reject: F) -> RateLimitLayerBuilder<F>
    where
        F: Fn(&Rejection<'_>) -> Response<B>,
    {
        self.reject(reject)
    }

    /// Builds rejection responses as gRPC statuses. The `Default` of the body's type must be an empty body, as with
    /// tonic's body. See [`GrpcRejection`].
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("per-token", Quota::per_second(100)).by(key::bearer()))
    ///     .grpc()
    ///     .build()?;
    /// // tonic::transport::Server::builder().layer(layer)
    /// # Ok::<(), tower_dist_ratelimit::BuildError>(())
    /// ```
    pub fn grpc(self) -> RateLimitLayerBuilder<GrpcRejection> {
        self.reject(GrpcRejection)
    }

    fn reject<Q>(self, reject: Q) -> RateLimitLayerBuilder<Q> {
        RateLimitLayerBuilder {
            settings: self.settings,
            policies: self.policies,
            answers: self.answers,
            headers: self.headers,
            reject,
        }
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Fails without a policy, and with more policies than the backend can decide together. Fails with an invalid
    /// policy or setting, and with a policy that the backend does not support.
    pub fn build(self) -> Result<RateLimitLayer<R>, BuildError> {
        self.headers?;
        let limits = self.settings.build(self.policies)?;
        let mut policies = limits.rules.iter().map(|rule| &rule.policy);
        let varies = policies.any(|policy| policy.dynamic.is_some() || policy.only_if.is_some());
        let request = Check::default();
        let none = Decided::new(&limits.rules, &request);
        let http = HttpLimits {
            policy_field: policies_of(&limits.rules, none).filter(|_| !varies),
            limits: Arc::new(limits),
            answers: self.answers,
            latest: LatestRejection::default(),
        };
        Ok(RateLimitLayer {
            http: Arc::new(http),
            reject: self.reject,
        })
    }
}

impl<R> fmt::Debug for RateLimitLayerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayerBuilder")
            .field("policies", &self.policies)
            .field("fields", &self.answers.fields)
            .field("failure_mode", &self.settings.failure_mode)
            .field("backend_timeout", &self.settings.timeout)
            .finish_non_exhaustive()
    }
}
