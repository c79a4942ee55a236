use std::{ops::Range, sync::Arc, sync::Once};

use bytes::Bytes;

use super::Asked;
use crate::{
    Algorithm, Policy, Quota, Reason,
    backend::{BoxFuture, PolicyId},
    headers,
    key::{KeySink, RequestParts},
    observe::Watch,
    policy::{DynamicQuota, MissingKey},
    reject::over_quota,
};

/// A policy and what follows from it.
pub(crate) struct Rule {
    pub(crate) policy: Policy,
    pub(crate) id: PolicyId,
    pub(crate) name: Arc<str>,
    /// The name, as it stands in fields and in JSON.
    pub(crate) quoted: String,
    /// The problem document of a request that this policy alone rejects.
    pub(crate) problem: Bytes,
    missing_key: MissingKey,
    warned: Once,
    watch: Watch,
}

/// Whether a policy applies to a request.
pub(crate) enum Applies {
    To {
        /// Where in the sink the key is.
        key: Range<usize>,
        cost: u64,
        quota: Quoted,
    },
    No,
    /// The key is missing, and the policy rejects such requests.
    Rejects(Reason),
}

/// The quota of a key.
pub(crate) enum Quoted {
    /// Another quota than the policy's, or none.
    Known(Option<Quota>),
    LookedUp(BoxFuture<'static, Option<Quota>>),
}

impl Quoted {
    /// A quota that a function found. An invalid one counts as none, but zero is valid: it allows nothing.
    #[inline]
    pub(crate) fn found(quota: Option<Quota>) -> Self {
        Self::Known(usable(quota))
    }
}

impl Rule {
    pub(super) fn new(policy: Policy, id: PolicyId, watch: &Watch) -> Self {
        let quoted = headers::quote(policy.name());
        let default = match policy.hint() {
            Some(_) => MissingKey::Error,
            None => MissingKey::Shared,
        };
        Self {
            id,
            missing_key: policy.missing_key.unwrap_or(default),
            name: policy.name().into(),
            problem: over_quota(&quoted),
            quoted,
            warned: Once::new(),
            watch: watch.clone(),
            policy,
        }
    }

    /// Whether and how the policy applies to an HTTP request.
    #[inline]
    pub(crate) fn look(&self, head: RequestParts<'_>, sink: &mut KeySink) -> Applies {
        let key = match self.key(head, sink) {
            Ok(key) => key,
            Err(applies) => return applies,
        };
        Applies::To {
            key,
            cost: match &self.policy.cost_fn {
                None => self.policy.cost,
                Some(cost) => cost(head),
            },
            quota: match &self.policy.dynamic {
                None => Quoted::Known(None),
                Some(DynamicQuota::Now(quota)) => Quoted::found(quota(head)),
                Some(DynamicQuota::Later(quota)) => Quoted::LookedUp(quota(head)),
            },
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

    /// What a key is allowed, as far as it holds: windows keep their length, and logs are bounded.
    pub(crate) fn quota(&self, asked: &Asked) -> Quota {
        let own = self.policy.quota();
        let kept = |quota| self.policy.algorithm().kept(quota, own);
        asked.quota.map_or(own, kept)
    }

    /// The same as clients are shown it: with what can be used at most as the burst.
    pub(crate) fn shown(&self, quota: Quota) -> Quota {
        match self.policy.algorithm() {
            Algorithm::LeakyQueue { max_wait } => quota.burst(quota.places(max_wait)),
            _ => quota,
        }
    }

    /// A key that is missing is the empty one, if the policy applies at all.
    pub(crate) fn without_key(&self) -> Result<(), Applies> {
        let hint = self.policy.hint();
        // A key that clients may leave out is no event, if the policy was told what to do then.
        if hint.is_some() || matches!(self.missing_key, MissingKey::Shared | MissingKey::Error) {
            self.log_missing_key(hint);
        }
        match self.missing_key {
            MissingKey::Shared => Ok(()),
            MissingKey::Skip => Err(Applies::No),
            MissingKey::Reject => Err(Applies::Rejects(Reason::MissingKey)),
            MissingKey::Error => Err(Applies::Rejects(Reason::Misconfigured)),
        }
    }

    /// Once, so that clients cannot flood the logs.
    fn log_missing_key(&self, hint: Option<&'static str>) {
        self.warned.call_once(|| {
            #[cfg(not(feature = "tracing"))]
            let _ = hint;
            #[cfg(feature = "tracing")]
            match self.missing_key {
                MissingKey::Error => tracing::error!(
                    name = self.watch.name(),
                    policy = &*self.name,
                    hint,
                    "rate-limit key missing: requests without it are rejected with an internal error"
                ),
                action => tracing::warn!(
                    name = self.watch.name(),
                    policy = &*self.name,
                    ?action,
                    hint,
                    "rate-limit key missing: all requests without it are treated alike"
                ),
            }
        });
    }
}

/// A quota that could not have been built is none; but zero is one, for a key that is allowed nothing.
pub(super) fn usable(quota: Option<Quota>) -> Option<Quota> {
    quota.filter(|quota| quota.is_zero() || quota.check().is_ok())
}
