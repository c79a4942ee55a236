use std::{fmt, sync::Arc, time::Duration};

use super::{CallLimitLayer, CallLimits};
use crate::{
    BuildError, Consistency, FailureMode, RequestPolicy, build_error::ensure, limits::Settings,
    setters::shared_setters, throttle::WaitQueues,
};

/// Settings of a [`CallLimitLayer`]. With [`waiting`](Self::waiting), the builder builds a
/// [`ThrottleLayer`](crate::ThrottleLayer) instead.
///
/// # Default
///
/// | setting | default |
/// |---|---|
/// | [`limit`](Self::limit) | none; at least one is needed |
/// | [`failure_mode`](Self::failure_mode) | [`FailureMode::Local`] with 1 instance |
/// | [`backend_timeout`](Self::backend_timeout) | 50 ms |
/// | [`consistency`](Self::consistency) | [`Consistency::Exact`] |
/// | [`deny_cache`](Self::deny_cache) | on, for remote backends |
/// | [`waiting`](Self::waiting) | off: requests over the limit are rejected immediately |
/// | [`max_wait`](CallLimitLayerBuilder::max_wait) | 1 s |
/// | [`max_waiters`](CallLimitLayerBuilder::max_waiters) | 1024 |
/// | [`shadow`](Self::shadow) | off: the limit rejects requests |
/// | [`name`](Self::name) | empty |
/// | [`observer`](Self::observer) | none |
#[must_use = "a builder does nothing until it builds"]
pub struct CallLimitLayerBuilder<Req, M = Rejecting> {
    settings: Settings,
    policies: Vec<RequestPolicy<Req>>,
    mode: M,
}

/// Mode of a [`CallLimitLayer`] that rejects requests over the limit.
#[derive(Clone, Copy, Debug)]
pub struct Rejecting;

/// Mode of a [`CallLimitLayer`] that delays requests until their turn.
#[derive(Clone, Debug)]
pub struct Waits {
    pub(crate) max_wait: Duration,
    pub(crate) queues: Arc<WaitQueues>,
}

/// Maximum `max_wait`. The bound keeps an instant plus a wait in range.
const MAX_WAIT: Duration = Duration::from_secs(3600);

impl<Req> CallLimitLayerBuilder<Req> {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            policies: Vec::new(),
            mode: Rejecting,
        }
    }
}

impl<Req, M> CallLimitLayerBuilder<Req, M> {
    shared_setters!();

    /// Adds a policy: a [`Policy`](crate::Policy) that counts all requests together, or a [`RequestPolicy`], such as
    /// the result of [`Policy::by_request`](crate::Policy::by_request). A request passes if all policies allow it. If a
    /// policy rejects the request, the backend usually charges no policy, or [refunds](crate::Source::Parts) the
    /// charges.
    pub fn limit(mut self, policy: impl Into<RequestPolicy<Req>>) -> Self {
        self.policies.push(policy.into());
        self
    }

    fn layer(self) -> Result<CallLimitLayer<Req, M>, BuildError> {
        let checked = self.policies.iter().map(|policy| {
            let bound = "unset in a CallLimitLayer or ThrottleLayer";
            policy.policy.check_ignores_requests(bound)?;
            Ok(policy.policy.clone())
        });
        let limits = self.settings.build(checked.collect::<Result<_, _>>()?)?;
        let policies = self.policies;
        let calls = CallLimits {
            limits: Arc::new(limits),
            policies,
        };
        Ok(CallLimitLayer {
            calls: Arc::new(calls),
            mode: self.mode,
        })
    }
}

impl<Req> CallLimitLayerBuilder<Req> {
    /// Delays requests over the limit until their turn. A request that would wait longer than
    /// [`max_wait`](CallLimitLayerBuilder::max_wait) is usually rejected. Use this mode for requests that your program
    /// sends, to stay within the receiver's limit. See [`ThrottleLayer`](crate::ThrottleLayer).
    pub fn waiting(self) -> CallLimitLayerBuilder<Req, Waits> {
        CallLimitLayerBuilder {
            settings: self.settings,
            policies: self.policies,
            mode: Waits {
                max_wait: Duration::from_secs(1),
                queues: WaitQueues::new(1024),
            },
        }
    }

    /// Checks the settings and registers the policies with the backend.
    ///
    /// # Errors
    ///
    /// Fails without a policy, and with more policies than the backend can decide together. Fails with an invalid
    /// policy or setting, and with a policy that the backend does not support. Fails if a policy has a setting for HTTP
    /// requests: `by`, `by_fn`, `by_str`, `only_if`, `cost_fn`, `quota_by` or `quota_by_async` of
    /// [`Policy`](crate::Policy).
    pub fn build(self) -> Result<CallLimitLayer<Req>, BuildError> {
        self.layer()
    }
}

impl<Req> CallLimitLayerBuilder<Req, Waits> {
    /// Maximum time that a request waits for its turn: above zero and at most one hour. After a late answer of the
    /// backend, or in a leaky queue, the wait can be up to a [`backend_timeout`](Self::backend_timeout) longer.
    ///
    /// # Default
    ///
    /// 1 s, so that a caller soon learns that its request is rejected.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.mode.max_wait = wait;
        self
    }

    /// Maximum number of requests that wait for tokens concurrently, over all keys: at least 1. A request that a [leaky
    /// queue](crate::Policy::leaky_queue) has accepted does not count.
    ///
    /// # Default
    ///
    /// 1024.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.mode.queues = WaitQueues::new(waiters);
        self
    }

    /// Checks the settings and registers the policies with the backend.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as `build` of a builder on which [`waiting`](CallLimitLayerBuilder::waiting) was not
    /// called. Also fails if `max_wait` or `max_waiters` is out of range.
    pub fn build(mut self) -> Result<CallLimitLayer<Req, Waits>, BuildError> {
        let max_wait = self.mode.max_wait;
        let is_valid = !max_wait.is_zero() && max_wait <= MAX_WAIT;
        ensure!(is_valid, "max_wait" is max_wait, "above 0 and at most {MAX_WAIT:?}");
        let max_waiters = self.mode.queues.max_waiters;
        ensure!(max_waiters > 0, "max_waiters" is 0, "at least 1");
        // Limits the `max_wait` of each leaky queue to the layer's `max_wait`. Otherwise a queue could give a place to
        // a request that the layer then rejects for its long wait, and the place would stay taken.
        let policies = self.policies.into_iter();
        let policies = policies.map(|policy| policy.queueing_at_most(max_wait));
        self.policies = policies.collect();
        self.layer()
    }
}

impl<Req, M> fmt::Debug for CallLimitLayerBuilder<Req, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimitLayerBuilder")
            .field("policies", &self.policies)
            .field("failure_mode", &self.settings.failure_mode)
            .field("backend_timeout", &self.settings.timeout)
            .finish_non_exhaustive()
    }
}
