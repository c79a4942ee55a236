use std::{ops::Range, sync::Arc, sync::Once};

use bytes::Bytes;

use super::PolicyCharge;
use crate::{
    Algorithm, Policy, Quota, Reason,
    backend::PolicyId,
    headers,
    key::{KeySink, RequestParts},
    policy::{DynamicQuota, MissingKey, QuotaLookup},
    reject::over_quota,
};

/// A policy of a layer or limiter, with its id in the backend.
pub(crate) struct Rule {
    pub(crate) policy: Policy,
    pub(crate) id: PolicyId,
    pub(crate) name: Arc<str>,
    /// The name, quoted for header fields and JSON.
    pub(crate) quoted: String,
    /// The problem document of a rejection by quota, if the document names this policy alone.
    pub(crate) problem: Bytes,
    warned: Once,
    /// The name of the layer or limiter, for log events; empty if it has none.
    limit: Arc<str>,
}

/// Whether a policy applies to a request.
pub(crate) enum Applies {
    Yes,
    /// The policy applies, with a pending quota look-up.
    WithQuota(QuotaLookup),
    No,
    /// The key is missing, and the policy rejects such requests.
    Rejects(Reason),
}

impl Rule {
    pub(super) fn new(policy: Policy, id: PolicyId, limit: &Arc<str>) -> Self {
        let quoted = headers::quote(policy.name());
        Self {
            id,
            name: policy.name().into(),
            problem: over_quota(&quoted),
            quoted,
            warned: Once::new(),
            limit: Arc::clone(limit),
            policy,
        }
    }

    /// Returns whether the policy applies to an HTTP request, and fills in its charge.
    #[inline]
    pub(crate) fn apply(
        &self,
        head: RequestParts<'_>,
        sink: &mut KeySink,
        asked: &mut PolicyCharge,
    ) -> Applies {
        match self.key(head, sink) {
            Ok(key) => asked.key = key,
            Err(applies) => return applies,
        }
        if let Some(cost) = &self.policy.cost_fn {
            asked.cost = cost(head);
        }
        match &self.policy.dynamic {
            None => Applies::Yes,
            Some(DynamicQuota::Now(quota)) => {
                asked.quota = quota(head).and_then(Quota::usable);
                Applies::Yes
            }
            Some(DynamicQuota::Later(quota)) => Applies::WithQuota(quota(head)),
        }
    }

    #[inline]
    pub(crate) fn key(
        &self,
        head: RequestParts<'_>,
        sink: &mut KeySink,
    ) -> Result<Range<usize>, Applies> {
        if let Some(only_if) = &self.policy.only_if
            && !only_if(head)
        {
            return Err(Applies::No);
        }
        let Some(extractor) = &self.policy.key else {
            return Ok(0..0);
        };
        let (key, found) = sink.key(|sink| extractor.extract(head, sink));
        if found {
            return Ok(key);
        }
        self.without_key().map(|()| key)
    }

    /// Returns the quota of a charge: the key's dynamic quota, adapted to the algorithm, or else the policy's quota.
    pub(crate) fn quota(&self, asked: &PolicyCharge) -> Quota {
        let own = self.policy.quota();
        let kept = |quota| self.policy.algorithm().kept(quota, own);
        asked.quota.map_or(own, kept)
    }

    /// Returns the quota in the form that clients see: for a leaky queue, the burst becomes [`Quota::places`].
    pub(crate) fn shown(&self, quota: Quota) -> Quota {
        match self.policy.algorithm() {
            Algorithm::LeakyQueue { max_wait } => quota.burst(quota.places(max_wait)),
            _ => quota,
        }
    }

    /// Handles a missing key. `Ok` means that the policy counts the request under the empty key.
    pub(crate) fn without_key(&self) -> Result<(), Applies> {
        let hint = self.policy.hint();
        let default = hint.map_or(MissingKey::Shared, |_| MissingKey::Error);
        let action = self.policy.missing_key.unwrap_or(default);
        // Clients may omit a key without a hint. If the action is then `Skip` or `Reject`, a missing key is not logged.
        if hint.is_some() || matches!(action, MissingKey::Shared | MissingKey::Error) {
            self.log_missing_key(action, hint);
        }
        match action {
            MissingKey::Shared => Ok(()),
            MissingKey::Skip => Err(Applies::No),
            MissingKey::Reject => Err(Applies::Rejects(Reason::MissingKey)),
            MissingKey::Error => Err(Applies::Rejects(Reason::Misconfigured)),
        }
    }

    /// Logs once, so that clients cannot flood the logs.
    fn log_missing_key(&self, action: MissingKey, hint: Option<&'static str>) {
        self.warned.call_once(|| {
            #[cfg(not(feature = "tracing"))]
            let _ = (action, hint, &self.limit);
            #[cfg(feature = "tracing")]
            let limit = Some(&*self.limit).filter(|name| !name.is_empty());
            #[cfg(feature = "tracing")]
            match action {
                MissingKey::Error => tracing::error!(
                    name = limit,
                    policy = &*self.name,
                    hint,
                    "rate-limit key missing: requests without it are rejected with an internal error"
                ),
                _ => tracing::warn!(
                    name = limit,
                    policy = &*self.name,
                    ?action,
                    hint,
                    "rate-limit key missing: the `missing_key` action of the policy applies"
                ),
            }
        });
    }
}
