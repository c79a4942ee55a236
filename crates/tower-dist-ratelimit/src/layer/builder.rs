use std::{fmt, sync::Arc, time::Duration};

use http::Response;

use super::RateLimitLayer;
use crate::{
    BuildError, Consistency, FailureMode, GrpcRejection, Observer, Policy, ProblemJson, RejectWith,
    Rejection, ResponseHeaders,
    backend::Backend,
    headers,
    http::{Answers, HttpLimits, ResponseHead},
    key::RequestParts,
    limits::Settings,
};

/// Settings of a [`RateLimitLayer`], from [`RateLimitLayer::builder`].
///
/// # Default
///
/// | setting | default |
/// |---|---|
/// | [`limit`](Self::limit) | none; at least one is needed |
/// | [`exempt`](Self::exempt) | nobody |
/// | [`headers`](Self::headers) | [`ResponseHeaders::Always`] |
/// | [`x_ratelimit`](Self::x_ratelimit) | left out |
/// | [`failure_mode`](Self::failure_mode) | [`FailureMode::Local`] with 1 instance |
/// | [`backend_timeout`](Self::backend_timeout) | 50 ms |
/// | [`consistency`](Self::consistency) | [`Consistency::Exact`] |
/// | [`deny_cache`](Self::deny_cache) | on, for remote stores |
/// | [`rejection`](Self::rejection), [`grpc`](Self::grpc) | [`ProblemJson`] |
/// | [`handle`](Self::handle), [`refund_when`](Self::refund_when) | what is charged stays charged |
/// | [`shadow`](Self::shadow) | requests are rejected |
/// | [`name`](Self::name) | empty |
/// | [`observer`](Self::observer) | none |
#[must_use = "a builder does nothing until it builds"]
pub struct RateLimitLayerBuilder<R = ProblemJson> {
    settings: Settings,
    policies: Vec<Policy>,
    answers: Answers,
    reject: R,
}

impl RateLimitLayerBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            settings: Settings::new(backend),
            policies: Vec::new(),
            answers: Answers::default(),
            reject: ProblemJson,
        }
    }
}

impl<R> RateLimitLayerBuilder<R> {
    /// Adds a policy. A request passes if all policies allow it; otherwise it is charged to none.
    ///
    /// A layer inside another one decides after it: what the inner layer rejects, the outer layer has charged. To decide on
    /// limits for all requests and limits for some together, put them into one layer, with [`Policy::only_if`].
    pub fn limit(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Leaves requests alone for which the closure says true, such as health checks and CORS preflights: no policy applies
    /// to them, nothing is charged, and the response gets no fields. Given several times, any of them will do.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("all", Quota::per_second(100)))
    ///     .exempt(|head| head.uri().path() == "/healthz" || head.method() == "OPTIONS")
    ///     .build()?;
    /// # Ok::<(), tower_dist_ratelimit::BuildError>(())
    /// ```
    pub fn exempt<F>(mut self, exempt: F) -> Self
    where
        F: Fn(RequestParts<'_>) -> bool + Send + Sync + 'static,
    {
        self.answers.exempt.push(Box::new(exempt));
        self
    }

    /// Which responses carry the `RateLimit` fields.
    pub fn headers(mut self, fields: ResponseHeaders) -> Self {
        self.answers.fields = fields;
        self
    }

    /// Adds `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (in seconds from now) wherever the
    /// `RateLimit` fields go, for clients that know no others. They have room for one policy: one that rejects, or
    /// else the one with the fewest tokens left. If an inner service has set one of them, all stay as they are.
    pub fn x_ratelimit(mut self) -> Self {
        self.answers.x_ratelimit = true;
        self
    }

    /// Who decides when the store fails or is late.
    ///
    /// # Default
    ///
    /// [`FailureMode::Local`] with 1 instance: each instance limits by itself as if it were the only one.
    pub fn failure_mode(mut self, mode: FailureMode) -> Self {
        self.settings.failure_mode = mode;
        self
    }

    /// Maximum time that a request waits for the backend, above zero and up to a minute.
    ///
    /// Time counts from when the backend is asked. [Quota look-ups](Policy::quota_by_async) have as much time before that.
    /// While a request waits it holds the inner service ready, and with it a permit if the inner service limits concurrency.
    pub fn backend_timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// How this instance counts together with the others of its fleet: [leases](crate::Consistency::Leased) save round trips.
    ///
    /// # Default
    ///
    /// [`Consistency::Exact`].
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.settings.nearby.consistency = consistency;
        self
    }

    /// Whether rejections of a remote store are remembered here: a request that costs at least as much as one that was rejected is
    /// rejected without a round trip until the store would admit the other one, and for at most 1 s. Nothing is rejected that the
    /// store would admit, unless another instance puts tokens back, or raises a limit, within that second.
    ///
    /// # Default
    ///
    /// `true`. Of no effect in [`Memory`](crate::backend::Memory).
    ///
    /// # Cost
    ///
    /// 130 kB per limiter, and 300 bytes for each of at most 4,096 rejections.
    pub fn deny_cache(mut self, on: bool) -> Self {
        self.settings.nearby.deny_cache = on;
        self
    }

    /// Puts a [`RateLimitHandle`](crate::RateLimitHandle) among the extensions of each request that passes, with which what it was
    /// charged can be looked at and corrected.
    ///
    /// # Cost
    ///
    /// Three allocations for the handle, and those of the request's first extension.
    pub fn handle(mut self) -> Self {
        self.answers.handle = true;
        self
    }

    /// Puts back what a request was charged if the closure says so about its response; `None` is an inner service that failed
    /// without one. Looked at when the response's head is there, before its body.
    ///
    /// So failures of your own cost your clients nothing; or, the other way round, only failures count, which is
    /// what a limit on guessing passwords needs.
    ///
    /// What somebody has [settled](crate::RateLimitHandle::settle) by then stays.
    ///
    /// # Cost
    ///
    /// Four allocations per request.
    ///
    /// ```
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("logins", Quota::per_minute(5)).by(key::peer_addr()))
    ///     .refund_when(|response| response.is_some_and(|response| response.status().is_success()))
    ///     .build()?;
    /// # Ok::<(), tower_dist_ratelimit::BuildError>(())
    /// ```
    pub fn refund_when<F>(mut self, refund: F) -> Self
    where
        F: Fn(Option<ResponseHead<'_>>) -> bool + Send + Sync + 'static,
    {
        self.answers.refund_when = Some(Box::new(refund));
        self
    }

    /// Decides and charges without rejecting, and without a word to the client: for trying limits out in production.
    ///
    /// The [observer](Self::observer) is told what would have been rejected. Also a store that fails, and a missing key, reject nobody.
    /// Nobody waits for a turn in a [leaky queue](Policy::leaky_queue) either. A store that is slow delays requests as it would have
    /// otherwise.
    pub fn shadow(mut self) -> Self {
        self.settings.shadow = true;
        self
    }

    /// Sets the observer of the limit's events. An `Arc` of an observer is an observer, too.
    ///
    /// # Default
    ///
    /// No observer.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.watch.observer = Some(Arc::new(observer));
        self
    }

    /// Sets the limit's name: the label `name` of its events, metrics and log lines.
    ///
    /// # Default
    ///
    /// The empty name.
    pub fn name(mut self, name: &str) -> Self {
        self.settings.watch.name = name.into();
        self
    }

    /// Makes rejections with a closure: for bodies that are not `From<Bytes>`, or for other words.
    ///
    /// The layer adds `Retry-After`, unless the response has one, and the `RateLimit` fields.
    ///
    /// ```
    /// use http::Response;
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("all", Quota::per_second(100)))
    ///     .rejection(|rejection| {
    ///         let mut response = Response::new(String::from("slow down"));
    ///         *response.status_mut() = rejection.status();
    ///         response
    ///     })
    ///     .build()?;
    /// # Ok::<(), tower_dist_ratelimit::BuildError>(())
    /// ```
    pub fn rejection<F, B>(self, reject: F) -> RateLimitLayerBuilder<RejectWith<F>>
    where
        F: Fn(&Rejection<'_>) -> Response<B>,
    {
        self.reject(RejectWith(reject))
    }

    /// Makes rejections as gRPC does, for tonic and all other bodies with an empty `Default`. See [`GrpcRejection`].
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
            reject,
        }
    }

    /// Checks the settings and prepares the store.
    ///
    /// # Errors
    ///
    /// No policy, or more than the store can decide together; a policy or a setting that cannot work; a policy that the
    /// store cannot keep.
    pub fn build(self) -> Result<RateLimitLayer<R>, BuildError> {
        if let ResponseHeaders::NearLimit(share) = self.answers.fields
            && !(share > 0.0 && share <= 1.0)
        {
            return Err(BuildError::new(
                "headers",
                format_args!("NearLimit({share})"),
                "above 0 and at most 1",
            ));
        }
        let limits = self.settings.build(self.policies)?;
        let mut policies = limits.rules.iter().map(|rule| &rule.policy);
        let varies = policies.any(|policy| policy.dynamic.is_some() || policy.only_if.is_some());
        let rules = limits.rules.iter().filter(|rule| !rule.policy.hidden);
        let shown = rules.map(|rule| (rule.quoted.as_str(), rule.shown(rule.policy.quota())));
        let http = HttpLimits {
            policy_field: headers::policies(shown).filter(|_| !varies),
            limits: Arc::new(limits),
            answers: self.answers,
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
