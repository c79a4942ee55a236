use std::fmt;

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
}

impl fmt::Debug for Charge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge")
            .field("policy", &self.policy)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}

impl<'a> Charge<'a> {
    /// A charge of `cost` tokens.
    #[must_use]
    pub const fn new(policy: PolicyId, key: &'a [u8], cost: u64) -> Self {
        Self { policy, key, cost }
    }
}
