use std::fmt;

use crate::Quota;

/// A policy as its backend knows it, from [`register`](super::Backend::register).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(u32);

impl PolicyId {
    /// The policy of this number; the backend chooses it.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number it was made with.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Tokens to take from one key's share of one policy.
///
/// Its `Debug` leaves the key out: that is often a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charge<'a> {
    /// Whose limit.
    pub policy: PolicyId,
    /// Who pays: any bytes, of any length, also none. The same on every machine.
    pub key: &'a [u8],
    /// How many tokens; zero only looks.
    pub cost: u64,
    /// As many tokens as are there, up to this; below the cost it is the cost. How many it were is the decision's
    /// [`granted`](crate::Decision::granted). A leaky queue grants no more than the cost, a look nothing.
    pub up_to: u64,
    /// Another quota than the policy's, for this key from now on. Only of a policy with
    /// [`dynamic_quotas`](crate::Policy::dynamic_quotas); an error of others.
    ///
    /// What was used stays used; it drains at the rate of the former quota until this charge, and at the rate of this one from
    /// then on, also if the charge is rejected. A charge of zero cost, a refund and a quota of zero change nothing. With a lower limit a key that has used more is rejected until that has gone, with a
    /// higher one there is room at once. A limit of zero rejects every cost. Windows keep their length: of another
    /// window's quota they take the limit.
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
    /// A charge of `cost` tokens, and no more, by the policy's own quota.
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

    /// The same, of up to so many tokens if they are there.
    #[must_use]
    pub const fn up_to(self, tokens: u64) -> Self {
        Self {
            up_to: tokens,
            ..self
        }
    }

    /// The same, by this quota.
    #[must_use]
    pub const fn quota(self, quota: Quota) -> Self {
        Self {
            quota: Some(quota),
            ..self
        }
    }
}
