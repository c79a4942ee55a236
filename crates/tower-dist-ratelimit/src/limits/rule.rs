use std::{ops::Range, sync::Once};

use crate::{
    Fields, Policy, Quota,
    backend::PolicyId,
    headers,
    key::{KeySink, RequestHead},
    policy::MissingKey,
};

/// A policy and what follows from it.
pub(crate) struct Rule {
    pub(crate) policy: Policy,
    pub(super) id: PolicyId,
    /// The name, as it stands in fields and in JSON.
    pub(crate) quoted: String,
    /// A response is near the limit when it leaves this many tokens or fewer.
    pub(super) near: u64,
    warned: Once,
}

/// Whether a policy applies to a request.
pub(super) enum Applies {
    /// To the key in this place.
    To(Range<usize>),
    No,
    /// It refuses such requests.
    ButHasNoKey,
}

impl Rule {
    pub(crate) fn new(policy: Policy, id: PolicyId, fields: Fields) -> Self {
        let near = match fields {
            Fields::NearLimit(share) => near(policy.quota(), share),
            _ => 0,
        };
        Self {
            id,
            quoted: headers::quote(policy.name()),
            near,
            warned: Once::new(),
            policy,
        }
    }

    /// Whether the policy applies to a request, and then where in the sink its key is.
    pub(super) fn apply(&self, head: RequestHead<'_>, sink: &mut KeySink) -> Applies {
        let Some(extractor) = &self.policy.key else {
            return Applies::To(0..0);
        };
        let (key, found) = sink.key(|sink| extractor.extract(head, sink));
        if !found {
            self.warn_of_missing_key(extractor.hint());
        }
        match self.policy.missing_key {
            _ if found => Applies::To(key),
            MissingKey::Shared => Applies::To(key),
            MissingKey::Skip => Applies::No,
            MissingKey::Refuse => Applies::ButHasNoKey,
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
                policy = self.policy.name(),
                action = ?self.policy.missing_key,
                hint,
                "a request has no key; all that have none are treated alike"
            );
        });
    }
}

/// This share of the burst, rounded up: rather told too early than too late.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 0 to the burst, and `as` saturates"
)]
fn near(quota: Quota, share: f64) -> u64 {
    (quota.burst_size() as f64 * share).ceil() as u64
}
