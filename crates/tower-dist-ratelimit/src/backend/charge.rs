use std::fmt;

use crate::Quota;

/// The id of a policy in its backend, from [`register`](super::Backend::register).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(u32);

impl PolicyId {
    /// The id with this number. A backend chooses the numbers of its policies.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the id.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A charge of tokens to one key under one policy.
///
/// Its `Debug` output leaves the key out, because keys are often secrets.
///
/// ```
/// use tower_dist_ratelimit::backend::{Backend, Charge, Memory};
/// use tower_dist_ratelimit::{Decision, Policy, Quota};
///
/// let memory = Memory::default();
/// let id = memory.register(&[Policy::new("mails", Quota::per_hour(10))])?[0];
/// let mut out = [Decision::default()];
/// memory.acquire(&[Charge::new(id, b"alice", 2).up_to(7)], &mut out);
/// assert_eq!((out[0].granted, out[0].remaining), (7, 3));
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charge<'a> {
    /// The policy to charge.
    pub policy: PolicyId,
    /// The key to charge: any bytes. All instances of a service usually compute the same key for a client. Every
    /// backend has to accept keys of up to 64 KiB.
    pub key: &'a [u8],
    /// The number of tokens. A charge of zero cost takes nothing.
    pub cost: u64,
    /// The maximum grant, in tokens. If the request is allowed, a charge takes all free tokens up to this number, and
    /// at least its cost. [`granted`](crate::Decision::granted) is the number of tokens that the charge took. A leaky
    /// queue grants only the cost. A charge of zero cost grants nothing.
    pub up_to: u64,
    /// A quota for the key, in place of the policy's own. It stays in force until another charge changes it. A charge
    /// with a cost above zero and without a quota puts the policy's own quota in force again. A charge with a quota
    /// fails if the policy has no [`dynamic_quotas`](crate::Policy::dynamic_quotas).
    ///
    /// - Used tokens stay used. In buckets and queues, they drain at the former quota's rate until this charge. Then
    ///   they drain at this quota's rate, even if this charge is rejected.
    /// - If a bucket has more used tokens than this quota's burst, this quota rejects every cost above zero until
    ///   enough tokens have drained. If the burst is larger than before, the additional tokens are usually free
    ///   immediately.
    /// - In algorithms with windows, only the limit changes, and the window keeps its length. The rules above for a
    ///   burst then hold for the limit.
    /// - A quota of zero rejects every cost above zero, and never comes into force. A charge of zero cost and a refund
    ///   do not change the quota in force.
    pub quota: Option<Quota>,
}

impl fmt::Debug for Charge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge")
            .field("policy", &self.policy)
            .field("cost", &self.cost)
            .field("up_to", &self.up_to)
            .field("quota", &self.quota)
            .finish_non_exhaustive()
    }
}

impl<'a> Charge<'a> {
    /// A charge of exactly `cost` tokens, under the policy's own quota.
    #[must_use]
    pub const fn new(policy: PolicyId, key: &'a [u8], cost: u64) -> Self {
        Self {
            policy,
            key,
            cost,
            up_to: cost,
            quota: None,
        }
    }

    /// The same charge with this maximum grant. If the charge is allowed, it usually takes all free tokens up to
    /// `tokens`, and at least its cost. See the [field](field@Self::up_to).
    #[must_use]
    pub const fn up_to(mut self, tokens: u64) -> Self {
        self.up_to = tokens;
        self
    }

    /// The same charge under this quota.
    #[must_use]
    pub const fn quota(self, quota: Quota) -> Self {
        self.with(Some(quota))
    }

    pub(crate) const fn with(mut self, quota: Option<Quota>) -> Self {
        self.quota = quota;
        self
    }
}

/// The policy, key and quota of a charge, stored for later charges and refunds to the key.
#[derive(Clone, Debug)]
pub(crate) struct OwnedCharge {
    policy: PolicyId,
    key: Box<[u8]>,
    quota: Option<Quota>,
}

impl OwnedCharge {
    /// Longest key, in bytes, that leases and eventual counts store. They store a key beyond its request, so the bound
    /// keeps clients from filling the memory. A [`RateLimitHandle`](crate::RateLimitHandle) stores a key of any length.
    pub(crate) const LONGEST_KEY: usize = 1_000;

    pub(crate) fn of(charge: &Charge<'_>) -> Self {
        Self {
            policy: charge.policy,
            key: charge.key.into(),
            quota: charge.quota,
        }
    }

    pub(crate) fn charge(&self, cost: u64) -> Charge<'_> {
        Charge::new(self.policy, &self.key, cost).with(self.quota)
    }
}
