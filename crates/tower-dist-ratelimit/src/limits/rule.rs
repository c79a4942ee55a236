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
        match self.policy.missing_key {
            _ if found => Applies::To(key),
            MissingKey::Shared => {
                self.warn_of_missing_key();
                Applies::To(key)
            }
            MissingKey::Skip => Applies::No,
            MissingKey::Refuse => Applies::ButHasNoKey,
        }
    }

    fn warn_of_missing_key(&self) {
        self.warned.call_once(|| {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                policy = self.policy.name(),
                "a request has no key, and shares one bucket with all others that have none; \
                 if the key is the peer's address, serve with into_make_service_with_connect_info"
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
