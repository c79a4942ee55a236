use std::{ops::Range, sync::Arc, sync::Once};

use bytes::Bytes;

use super::Asked;
use crate::{
    Policy, Quota,
    backend::{BoxFuture, PolicyId},
    headers,
    key::{KeySink, RequestHead},
    policy::{Dynamic, MissingKey},
    refuse::over_quota,
};

/// A policy and what follows from it.
pub(crate) struct Rule {
    pub(crate) policy: Policy,
    pub(crate) id: PolicyId,
    pub(crate) name: Arc<str>,
    /// The name, as it stands in fields and in JSON.
    pub(crate) quoted: String,
    /// The problem document of a request that this policy alone refuses.
    pub(crate) problem: Bytes,
    warned: Once,
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
    /// It refuses such requests.
    ButHasNoKey,
}

/// What a key is allowed.
pub(crate) enum Quoted {
    /// What the policy says.
    Own,
    Found(Option<Quota>),
    LookedUp(BoxFuture<'static, Option<Quota>>),
}

impl Rule {
    pub(super) fn new(policy: Policy, id: PolicyId) -> Self {
        let quoted = headers::quote(policy.name());
        Self {
            id,
            name: policy.name().into(),
            problem: over_quota(&quoted),
            quoted,
            warned: Once::new(),
            policy,
        }
    }

    /// Whether and how the policy applies to an HTTP request.
    #[inline]
    pub(crate) fn look(&self, head: RequestHead<'_>, sink: &mut KeySink) -> Applies {
        let key = match self.key(head, sink) {
            Ok(key) => key,
            Err(applies) => return applies,
        };
        Applies::To {
            key,
            cost: self.policy.cost.of(head),
            quota: match &self.policy.dynamic {
                None => Quoted::Own,
                Some(Dynamic::Now(quota)) => Quoted::Found(quota(head)),
                Some(Dynamic::Later(quota)) => Quoted::LookedUp(quota(head)),
            },
        }
    }

    #[inline]
    pub(crate) fn key(
        &self,
        head: RequestHead<'_>,
        sink: &mut KeySink,
    ) -> Result<Range<usize>, Applies> {
        let Some(extractor) = &self.policy.key else {
            return Ok(0..0);
        };
        let (key, found) = sink.key(|sink| extractor.extract(head, sink));
        if found {
            return Ok(key);
        }
        self.without_key(extractor.hint()).map(|()| key)
    }

    /// What a key is allowed, as far as it holds: windows keep their length, and logs are bounded.
    pub(crate) fn quota(&self, asked: &Asked) -> Quota {
        let own = self.policy.quota();
        let kept = |quota| self.policy.algorithm().kept(quota, own);
        asked.quota.map_or(own, kept)
    }

    /// A key that is missing is the empty one, if the policy applies at all.
    pub(crate) fn without_key(&self, hint: Option<&'static str>) -> Result<(), Applies> {
        self.warn_of_missing_key(hint);
        match self.policy.missing_key {
            MissingKey::Shared => Ok(()),
            MissingKey::Skip => Err(Applies::No),
            MissingKey::Refuse => Err(Applies::ButHasNoKey),
        }
    }

    /// Where leaving the key out is allowed for, only if that is hardly what was meant.
    fn warn_of_missing_key(&self, hint: Option<&'static str>) {
        if self.policy.missing_key != MissingKey::Shared && hint.is_none() {
            return;
        }
        self.warned.call_once(|| {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                policy = &*self.name,
                action = ?self.policy.missing_key,
                hint,
                "a request has no key; all that have none are treated alike"
            );
        });
    }
}
