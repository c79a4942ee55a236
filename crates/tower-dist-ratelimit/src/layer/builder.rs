use std::{fmt, sync::Arc, time::Duration};

use http::Response;

use super::RateLimitLayer;
use crate::{
    BuildError, Fields, OnError, Policy, ProblemJson, Refusal, RefuseWith,
    backend::{Backend, DEADLINE},
    headers,
    ladder::Health,
    limits::{self, Limits, Rule},
};

/// The longest deadline: longer than that no client waits for a decision.
const MAX_DEADLINE: Duration = Duration::from_secs(60);

/// Settings of a [`RateLimitLayer`], from [`RateLimitLayer::builder`].
///
/// # Default
///
/// | setting | default |
/// |---|---|
/// | [`limit`](Self::limit) | none; at least one is needed |
/// | [`headers`](Self::headers) | [`Fields::Always`] |
/// | [`on_backend_error`](Self::on_backend_error) | [`OnError::Deny`] |
/// | [`backend_deadline`](Self::backend_deadline) | 50 ms |
/// | [`refusal`](Self::refusal) | [`ProblemJson`] |
#[must_use = "a builder does nothing until it builds"]
pub struct RateLimitLayerBuilder<R = ProblemJson> {
    backend: Arc<dyn Backend>,
    policies: Vec<Policy>,
    fields: Fields,
    on_error: OnError,
    deadline: Duration,
    refuse: R,
}

impl RateLimitLayerBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Self {
        Self {
            backend,
            policies: Vec::new(),
            fields: Fields::default(),
            on_error: OnError::default(),
            deadline: DEADLINE,
            refuse: ProblemJson,
        }
    }
}

impl<R> RateLimitLayerBuilder<R> {
    /// Adds a policy. A request passes if all policies allow it; otherwise it is charged to none.
    pub fn limit(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Which responses carry the `RateLimit` fields.
    pub fn headers(self, fields: Fields) -> Self {
        Self { fields, ..self }
    }

    /// What happens when the store fails or is late.
    pub fn on_backend_error(self, action: OnError) -> Self {
        Self {
            on_error: action,
            ..self
        }
    }

    /// How long a request waits for the store at most, above zero and up to a minute.
    ///
    /// While it waits it holds the inner service ready, and with it a permit if the inner service limits concurrency.
    pub fn backend_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Makes refusals with a closure: for bodies that are not `From<Bytes>`, or for other words.
    ///
    /// The layer adds `Retry-After`, unless the response has one, and the `RateLimit` fields.
    ///
    /// ```
    /// use http::Response;
    /// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory};
    ///
    /// let layer = RateLimitLayer::builder(Memory::default())
    ///     .limit(Policy::new("all", Quota::per_second(100)))
    ///     .refusal(|refusal| {
    ///         let mut response = Response::new(String::from("slow down"));
    ///         *response.status_mut() = refusal.status();
    ///         response
    ///     })
    ///     .build()?;
    /// # Ok::<(), tower_dist_ratelimit::BuildError>(())
    /// ```
    pub fn refusal<F, B>(self, refuse: F) -> RateLimitLayerBuilder<RefuseWith<F>>
    where
        F: Fn(&Refusal<'_>) -> Response<B>,
    {
        RateLimitLayerBuilder {
            backend: self.backend,
            policies: self.policies,
            fields: self.fields,
            on_error: self.on_error,
            deadline: self.deadline,
            refuse: RefuseWith(refuse),
        }
    }

    /// Checks the settings and prepares the store.
    ///
    /// # Errors
    ///
    /// No policy, or more than the store can decide together; a policy or a setting that cannot work; a policy that the
    /// store cannot keep.
    pub fn build(self) -> Result<RateLimitLayer<R>, BuildError> {
        if let Fields::NearLimit(share) = self.fields
            && !(share > 0.0 && share <= 1.0)
        {
            return Err(BuildError::new(
                "headers",
                format_args!("NearLimit({share})"),
                "above 0 and at most 1",
            ));
        }
        if self.deadline.is_zero() || self.deadline > MAX_DEADLINE {
            let value = format_args!("{:?}", self.deadline);
            return Err(BuildError::new(
                "backend_deadline",
                value,
                format_args!("above 0 and at most {MAX_DEADLINE:?}"),
            ));
        }
        let ids = limits::register(&*self.backend, &self.policies)?;
        let rules: Vec<_> = self
            .policies
            .into_iter()
            .zip(ids)
            .map(|(policy, id)| Rule::new(policy, id, self.fields))
            .collect();
        let named = rules
            .iter()
            .map(|rule| (rule.quoted.as_str(), rule.policy.quota()));
        let limits = Limits {
            policy_field: headers::policies(named),
            rules,
            backend: self.backend,
            fields: self.fields,
            on_error: self.on_error,
            deadline: self.deadline,
            health: Health::default(),
        };
        Ok(RateLimitLayer {
            limits: Arc::new(limits),
            refuse: self.refuse,
        })
    }
}

impl<R> fmt::Debug for RateLimitLayerBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayerBuilder")
            .field("policies", &self.policies)
            .field("fields", &self.fields)
            .field("on_error", &self.on_error)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
